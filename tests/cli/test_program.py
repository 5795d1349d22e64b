"""The program as a process: imports, signals, shell completion, help and errors."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import pylogtable
from pylogtable.cli.app import app, main
from pylogtable.cli.signals import Terminated
from pylogtable.cli.stdin_batches import LineReader
from tests.builders import kafka
from tests.cli.conftest import ROOT, Run, environment, parse, start

HEAVY = {"pyspark", "pandas", "s3fs", "fsspec", "boto3", "botocore", "aiohttp", "rich"}
NOT_FOR_METADATA = {*HEAVY, "pyarrow.compute", "pyarrow.parquet", "pyarrow.dataset", "pyarrow.fs"}


def imported_by(*runs: list[str]) -> set[str]:
    """The modules that a process has imported after these runs of the program."""
    code = (
        "import sys; from pylogtable.cli.app import main\n"
        f"assert not any(map(main, {list(runs)!r}))\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(ran.stderr.split())


def until(condition: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    """Wait until the running process has brought about the condition."""
    while not condition():
        assert running.poll() is None
        time.sleep(0.02)


def test_help_imports_no_arrow() -> None:
    modules = imported_by(["--help"])
    assert not modules & {*NOT_FOR_METADATA, "pyarrow", "numpy"}


def test_metadata_commands_import_nothing_heavy(clicks: pylogtable.Topic) -> None:
    looks = [["topics", "list"], ["topics", "describe", "clicks"], ["offsets"]]
    assert not imported_by(*looks) & NOT_FOR_METADATA


def test_consume_follow_sees_new_records_and_ends_on_ctrl_c(clicks: pylogtable.Topic) -> None:
    running = start("consume", "clicks", "--follow", "--from", "latest", "--group", "g", "-K", "=")
    assert running.stdout is not None
    assert running.stderr is not None
    # The group has positions once the program has started to read.
    until(lambda: len(clicks.group("g").positions()) == 2, running)
    clicks.append(kafka(["k"], ["new"]))
    assert running.stdout.readline() == b"k=new\n"
    clicks.alter(partitions=3)
    import pyarrow as pa

    clicks.append(kafka(["l"], ["other"], partition=pa.array([2], pa.int32())))
    assert running.stdout.readline() == b"l=other\n"
    until(lambda: clicks.group("g").lag().records == 0, running)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert running.stderr.read() == b""


def test_two_programs_share_the_partitions_of_a_group(store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t", partitions=4)
    import pyarrow as pa

    everywhere = pa.array(range(4), pa.int32())
    one = start("consume", "t", "--group", "g", "--follow", "--format", "%p:%s\\n")
    until(lambda: "g" in topic.groups(), one)
    other = start("consume", "t", "--group", "g", "--follow", "--format", "%p:%s\\n")

    def owners() -> dict[int, str | None]:
        return {row.partition: row.member for row in topic.group("g").describe()}

    def shares() -> list[int]:
        counts = Counter(member for member in owners().values() if member is not None)
        assert all(member.startswith("console-consumer-") for member in counts)
        return sorted(counts.values())

    until(lambda: shares() == [2, 2], other)
    topic.append(kafka(["k"] * 4, ["x"] * 4, partition=everywhere))
    printed = []
    for running in (one, other):
        assert running.stdout is not None
        printed += [running.stdout.readline() for _ in range(2)]
    assert sorted(printed) == [b"0:x\n", b"1:x\n", b"2:x\n", b"3:x\n"]

    until(lambda: topic.group("g").positions() == topic.end_offsets(), one)
    one.send_signal(signal.SIGTERM)
    assert one.wait(60) == 143
    assert shares() in ([2], [4])  # it has left its group, and does not wait for its lease to end
    until(lambda: shares() == [4], other)
    topic.append(kafka(["k"] * 4, ["y"] * 4, partition=everywhere))
    assert other.stdout is not None
    assert sorted(other.stdout.readline() for _ in range(4)) == [
        f"{number}:y\n".encode() for number in range(4)
    ]
    until(lambda: topic.group("g").positions() == topic.end_offsets(), other)
    other.send_signal(signal.SIGINT)
    assert other.wait(60) == 130
    assert set(owners().values()) == {None}
    for running in (one, other):
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.read() == running.stderr.read() == b""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_produce_appends_what_it_has_read_when_a_signal_comes(
    clicks: pylogtable.Topic, number: signal.Signals, status: int
) -> None:
    running = start("produce", "clicks", "--linger", "3600", "--partition", "1")
    assert running.stdin is not None
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdin.write(b"one\ntwo\nthr")
    running.stdin.flush()
    pipe = running.stdin.fileno()
    until(lambda: unread_bytes(pipe) == 0, running)
    assert clicks.count() == 4
    running.send_signal(number)
    if number == signal.SIGTERM:
        running.send_signal(number)  # as `timeout` does
    assert running.wait(60) == status
    assert running.stderr.read() == b""
    assert running.stdout.read() == b"clicks: 2 records in 1 commit; 1:[1,3)\n"
    assert clicks.read(1, 1).read_all()["value"].to_pylist() == [b"one", b"two"]


def unread_bytes(pipe: int) -> int:
    """How much of what was written to a pipe nobody has read yet."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_produce_loses_no_line_of_an_endless_input(
    clicks: pylogtable.Topic, number: signal.Signals, status: int
) -> None:
    """The signal comes while commits run and the next lines are read. What is not appended is still
    in the pipe, except for the line that the last read has cut."""
    theirs, ours = os.pipe()
    running = start(
        "produce", "clicks", "--partition", "1", "--batch-bytes", "200000", stdin=theirs
    )
    written = 0

    def write() -> None:
        nonlocal written
        with open(ours, "wb", buffering=0) as sink:
            while running.poll() is None:
                written += sink.write(b"%09d\n" % (written // 10))

    writer = threading.Thread(target=write)
    with open(theirs, "rb", buffering=0) as pipe:
        writer.start()
        until(lambda: clicks.version >= 5, running)
        running.send_signal(number)
        left = 0
        # The writer sees that the program has ended once there is room in the pipe.
        assert running.wait(60) == status
        while read := len(pipe.read(1 << 16)):
            left += read
    writer.join()
    appended = clicks.read(1, 1).read_all()["value"].to_pylist()
    assert appended == [b"%09d" % line for line in range((written - left) // 10)]
    assert running.stderr is not None
    assert running.stderr.read() == b""


def test_input_is_read_without_a_gap_when_a_signal_comes() -> None:
    """What is read ahead is given out, and the rest is left in the pipe."""
    theirs, ours = os.pipe()
    lines = [b"%07d" % number for number in range(400_000)]

    def write() -> None:
        with os.fdopen(ours, "wb") as sink:
            sink.write(b"\n".join(lines) + b"\n")

    writer = threading.Thread(target=write)
    writer.start()
    with open(theirs, "rb", buffering=0) as source:
        reader = LineReader(source, 1, 3600, max_line_bytes=1000)
        batches = reader.batches()
        with reader.stopped_by_signals() as signals:
            given = next(batches).lines
            signal.raise_signal(signal.SIGTERM)
            for batch in batches:
                given += batch.lines
        left = source.readall().split(b"\n")
    writer.join()
    with pytest.raises(Terminated):
        signals.raise_again()
    # The last line of a read may be cut. Its end is the first piece of what is left.
    assert given == lines[: len(given)]
    assert len(given) < len(lines)
    assert left[1:-1] == lines[len(given) + 1 :]


def test_maintain_ends_by_sigterm_as_by_ctrl_c(
    run: Run, clicks: pylogtable.Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job cleans up after Ctrl-C, it cleans up after SIGTERM, in every command."""
    seen: list[type[BaseException]] = []

    def job(*_: object, **__: object) -> list[object]:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as error:
            seen.append(type(error))
            raise
        return []

    monkeypatch.setattr(pylogtable.Store, "maintain", job)
    ended = run("maintain")
    assert (ended.status, ended.out, ended.err) == (143, "", "")
    assert seen == [Terminated]


def test_produce_appends_slow_input_as_it_arrives(clicks: pylogtable.Topic) -> None:
    """Ctrl-C ends the input: all complete lines are appended and counted."""
    running = start("produce", "clicks", "--linger", "0.05", "--partition", "1")
    assert running.stdin is not None
    for text, count in ((b"one\ntw", 5), (b"o\nthr", 6)):
        running.stdin.write(text)
        running.stdin.flush()
        until(lambda wanted=count: clicks.count() == wanted, running)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    assert running.stdout is not None
    assert running.stdout.read() == b"clicks: 2 records in 2 commits; 1:[1,3)\n"
    assert running.stderr is not None
    assert running.stderr.read() == b""
    assert clicks.read(1, 1).read_all()["value"].to_pylist() == [b"one", b"two"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["consume", "cl"], ["clicks"]),
        (["tail", "clicks", "--partition", "0,"], ["0,0", "0,1"]),
        (["consume", "--from", "e"], ["earliest", "end"]),
        (["consume", "--to", ""], ["earliest", "latest", "beginning", "end"]),
        (["offsets", "--time", "m"], ["max-timestamp"]),
        (["topics", "create", "x", "--config", "cleanup"], ["cleanup.policy="]),
        (["topics", "alter", "clicks", "--unset", "cleanup"], ["cleanup.policy"]),
        (["consume", "clicks", "--group", ""], ["mailer"]),
        (["groups", "d"], ["describe", "delete"]),
        (["offs"], ["offsets"]),
        (["topics", ""], ["list", "describe", "create", "alter", "promote", "delete"]),
    ],
)
def test_shell_completion_of_commands_topics_and_groups(
    clicks: pylogtable.Topic, orders: pylogtable.Topic, words: list[str], offered: list[str]
) -> None:
    clicks.group("mailer").commit({0: 0})
    asked = {"COMP_WORDS": " ".join(["pylogtable", *words]), "COMP_CWORD": str(len(words))}
    ran = subprocess.run(
        [sys.executable, "-m", "pylogtable"],
        env=environment(_PYLOGTABLE_COMPLETE="bash_complete", **asked),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stderr == ""
    assert sorted(ran.stdout.split()) == sorted(f"plain,{word}" for word in offered)


def test_completion_scripts(run: Run) -> None:
    for shell in ("zsh", "fish"):
        script = run("completion", shell)
        assert script.status == 0
        assert "_PYLOGTABLE_COMPLETE" in script.out
    run("completion", "tcsh").failed("tcsh", status=2)


def test_an_error_is_one_line_or_one_json_object_or_with_verbose_a_traceback(
    run: Run, clicks: pylogtable.Topic
) -> None:
    import json

    run("offsets", "nope").failed("pylogtable: there is no topic 'nope'")
    told = run("offsets", "nope", "--output", "json")
    told.failed()
    error = json.loads(told.err)
    assert (error["error"], "no topic 'nope'" in error["message"]) == ("TopicNotFoundError", True)
    usage = run("--output", "json", "offsets", "--nope")
    usage.failed(status=2)
    assert json.loads(usage.err)["error"] == "UsageError"
    shown = run("offsets", "nope", "--verbose")
    assert shown.status == 1
    assert "Traceback" in shown.err
    assert shown.err.splitlines()[-1].startswith("pylogtable: there is no topic 'nope'")


def test_version(run: Run) -> None:
    assert run("--version").out == f"pylogtable, version {pylogtable.__version__}\n"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context = click.Context(group)
    found: list[tuple[str, ...]] = [path]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append((*path, name))
    return found


SHARED = ("--store", "--storage-options", "--output", "--log-level", "--log-format", "--verbose")


def test_help_of_every_command_has_examples_and_the_shared_options(run: Run) -> None:
    assert len(commands(app)) == 42
    for path in commands(app):
        shown = run(*path, "--help")
        assert (shown.status, shown.err) == (0, ""), path
        assert shown.out.startswith("Usage: pylogtable ")
        text, _, examples = shown.out.partition("Examples:\n")
        assert "pylogtable" in examples, path
        for option in SHARED:
            assert option in text, path
        for option in ("...", "…"):
            assert not any(line.endswith(option) for line in text.splitlines()[1:]), path


def test_examples_in_the_help_are_valid_commands() -> None:
    """Commands and options of each example exist."""
    import shlex

    seen = 0
    for path in commands(app):
        command: click.Command = app
        for name in path:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name) or command
        for example in command.examples:  # type: ignore[attr-defined]
            for part in example.split(" | "):
                words = shlex.split(part.split(">")[0] if "=>" not in part else part)
                if words and words[0] == "pylogtable":
                    parse(app, words[1:])
                    seen += 1
    assert seen > 50


@pytest.mark.parametrize("entry", ["pylogtable.cli.app:main"])
def test_the_installed_program_starts_main(entry: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert f'pylogtable = "{entry}"' in text
    assert callable(main)
