"""The table of Kafka's and kcat's flags: each row works as our words do, or says what to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pylogtable
from pylogtable.cli import flag_values
from pylogtable.cli.app import PROGRAM, app
from pylogtable.cli.consume import _follow, _Printer
from pylogtable.cli.following import Silence
from pylogtable.cli.kafka_words import COMMANDS, EVERY, MODES, TOOLS, WORDS, Mode, Word
from pylogtable.cli.session import Session
from pylogtable.cli.spelling import DESTROYING_OPTIONS
from tests.builders import kafka
from tests.cli.conftest import Run, start
from tests.cli.test_destruction import DESTROYING, all_commands
from tests.cli.test_program import until
from tests.documents import read, section

LEAVES = dict(all_commands())

#: A value for each kind of value.
EXAMPLES = {
    "TOPIC": "clicks", "GROUP": "billing", "N": "1", "LIST": "0,1", "OFFSET": "1", "FORMAT": "%k",
    "HOST:PORT": "localhost:9092", "NAME=VALUE": "a.b=hush", "MS": "7000", "TEXT": ";",
    "CLASS": "org.acme.X", "PATTERN": "a.*", "FILE": "x.conf", "KEY": "k", "CODEC": "zstd",
    "LEVEL": "read_uncommitted", "TYPE": "brokers", "URL": "http://registry:8081",
}  # fmt: skip

#: What is translated by a function: values, and our words.
TRANSLATED: dict[Any, list[tuple[list[str], list[str]]]] = {
    flag_values.offsets: [
        (["beginning"], ["--from", "beginning"]),
        (["end"], ["--from", "end"]),
        (["earliest"], ["--from", "earliest"]),
        (["7"], ["--from", "7"]),
        (["-5"], ["--from=-5"]),
        (["s@1714564800000"], ["--from", "@1714564800000"]),
        (["s@1714564800000", "e@1714564900000"],
         ["--from", "@1714564800000", "--to", "@1714564900000"]),
    ],
    flag_values.printed: [
        (["print.key=true"], ["--key-separator", "\\t"]),
        (["print.key=true", "key.separator=:"], ["--key-separator", ":"]),
        (["print.key=true,key.separator=|"], ["--key-separator", "|"]),
        (["print.key=false"], []),
        (["print.value=true"], []),
        (["print.partition=true", "print.offset=true", "print.key=true"],
         ["--format", "Partition:%p\\tOffset:%o\\t%k\\t%s\\n"]),
        (["print.key=true", "print.value=false"], ["--format", "%k\\n"]),
        (["print.key=true", "key.separator=%", "line.separator=;"], ["--format", "%k%%%s;"]),
    ],
    flag_values.parsed: [
        (["parse.key=true"], ["--key-separator", "\\t"]),
        (["parse.key=true", "key.separator=:"], ["--key-separator", ":"]),
        (["parse.key=false", "key.separator=:"], []),
        (["null.marker=NULL"], ["--null-value", "NULL"]),
    ],
    flag_values.settings: [
        (["retention.ms=-1"], ["--config", "retention.ms=-1"]),
        (["retention.ms=-1,cleanup.policy=[compact,delete],segment.bytes=1"],
         ["--config", "retention.ms=-1", "--config", "cleanup.policy=compact,delete",
          "--config", "segment.bytes=1"]),
    ],
    flag_values.names: [(["a,b", "c"], ["--unset", "a", "--unset", "b", "--unset", "c"])],
    flag_values.entity: [(["topics"], [])],
    flag_values.isolation: [(["read_committed"], [])],
    flag_values.serdes: [
        (["value=avro"], ["--value-format", "avro"]),
        (["key=avro", "value=avro"], ["--key-format", "avro", "--value-format", "avro"]),
    ],
    flag_values.group_id: [(["group.id=g"], ["--group", "g"])],
    flag_values.offset_reset: [],
}  # fmt: skip

#: Values that have no meaning here, and a part of the message.
REFUSED = [
    ("consume t --property print.timestamp=true,print.key=true", r"--format '%T\t%k\t%s\n'"),
    ("consume t --property print.headers=true", r"--format '%h\t%s\n'"),
    ("consume t --property null.literal=-", "there is no null.literal here; use --format"),
    ("consume t --property print.key", "it is not name=value"),
    ("produce t --property parse.headers=true", "there is no parse.headers here; use --header"),
    ("produce t --property parse.key=true --property null.marker=N", "only values can be null"),
    ("topics alter t --entity-type brokers --add-config a=1", "only topics have settings here"),
    ("consume t --isolation-level read_uncommitted", "nobody sees records here that are not"),
    ("consume t -e --follow", "it ends at the last record; give it or --follow, not both"),
    ("groups describe billing --all-groups", "without GROUP it shows all groups"),
    ("consume t --max-messages", "it needs a value, N"),
    ("consume t -s avro -r http://r:1", "kcat's -s avro: for values it is --value-format avro "
     "--schema-registry URL, and for keys --key-format avro"),
    ("consume t -s value=i", "kcat's -s value=i: it unpacks no numbers here"),
    ("consume t --consumer-property auto.offset.reset=latest", "use --from latest; a group"),
    ("tail t -X auto.offset.reset=earliest", "use --from earliest; a group"),
    ("consume t --property schema.registry.url=http://r:1,print.key=true",
     "use pylogtable consume --value-format avro --schema-registry http://r:1; json-schema"),
    ("kafka-avro-console-consumer --topic t --from-beginning",
     "type: pylogtable consume --value-format avro t --from earliest"),
]  # fmt: skip


def rows() -> Iterator[tuple[Word, str, str]]:
    """Each flag at each command; those of every command at two."""
    for word in WORDS:
        for command in ("segments", "topics list") if EVERY in word.commands else word.commands:
            for flag in word.flags:
                yield word, command, flag


def parsed(command: str, words: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command gets: its own arguments and the shared ones."""
    session = Session()
    leaf = LEAVES[command]
    context = click.Context(app, info_name=PROGRAM, obj=session)
    for name in command.split()[:-1]:
        context = click.Context(app, info_name=name, parent=context)
    inner = leaf.make_context(command.split()[-1], list(words), parent=context)
    return inner.params, session.given


def required(command: str, *, but: Sequence[str] = ()) -> list[str]:
    """The arguments and options without which the command does nothing, except these."""
    found = []
    for param in LEAVES[command].params:
        if param.required and param.name not in but:
            is_option = isinstance(param, click.Option)
            found += [max(param.opts, key=len), "x"] if is_option else ["x"]
    return found


def of_ours(word: Word) -> list[str]:
    """Our words for a flag with the value of the examples."""
    assert isinstance(word.ours, str)
    values = shlex.split(word.ours)
    if word.metavar:
        values = [EXAMPLES[word.metavar] if part == word.metavar else part for part in values]
    return [f"{values[0]}={values[1]}"] if len(values) == 2 else values


@pytest.mark.parametrize(
    ("word", "command", "flag"),
    [row for row in rows() if isinstance(row[0].ours, str)],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_flag_that_means_the_same_is_our_word(word: Word, command: str, flag: str) -> None:
    given = [flag, EXAMPLES[word.metavar]] if word.metavar else [flag]
    ours = of_ours(word)
    # What our words give is not given twice.
    gives = {
        param.name
        for param in LEAVES[command].params
        for name in ours
        if name.partition("=")[0] in param.opts
        or (not name.startswith("-") and isinstance(param, click.Argument))
    }
    rest = required(command, but=[str(name) for name in gives])
    assert parsed(command, [*rest, *given]) == parsed(command, [*rest, *ours])
    if word.metavar and flag.startswith("--"):
        attached = [f"{flag}={EXAMPLES[word.metavar]}"]
        assert parsed(command, [*rest, *attached]) == parsed(command, [*rest, *ours])
    elif word.metavar:
        attached = [f"{flag}{EXAMPLES[word.metavar]}"]
        assert parsed(command, [*rest, *attached]) == parsed(command, [*rest, *ours])


@pytest.mark.parametrize(
    ("word", "command", "flag"),
    [row for row in rows() if callable(row[0].ours)],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_values_that_mean_the_same_are_our_words(word: Word, command: str, flag: str) -> None:
    rest = required(command)
    for values, ours in TRANSLATED[word.ours]:
        given = [part for value in values for part in (flag, value)]
        assert parsed(command, [*rest, *given]) == parsed(command, [*rest, *ours]), values


@pytest.mark.parametrize(
    ("word", "command", "flag"),
    [row for row in rows() if not row[0].works],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_flag_without_our_meaning_says_what_to_type(
    run: Run, word: Word, command: str, flag: str
) -> None:
    value = EXAMPLES[word.metavar] if word.metavar else ""
    rest = required(command)
    told = run(*command.split(), *rest, flag, *([value] if value else []))
    shown = flag if word.is_secret else shlex.join([flag, *([value] if value else [])])
    says = word.says.format(value=shlex.join([value]) if value else "")
    told.failed(f"pylogtable: {word.tool}'s {shown}: {says}", status=2)
    assert "hush" not in told.err
    line = shlex.join(["pylogtable", *command.split(), *rest])
    assert told.err.endswith(f"; type: {line}\n") == word.can_be_left_out


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=lambda value: value[:40])
def test_value_without_our_meaning_says_what_to_do(run: Run, line: str, message: str) -> None:
    run(*shlex.split(line)).failed(message, status=2)


def test_folder_that_is_called_like_a_serde_is_a_store(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYLOGTABLE_STORE")
    monkeypatch.chdir(tmp_path)
    run("consume", "t", "-s", "avro").failed("kcat's -s avro: for values", status=2)
    pylogtable.open(tmp_path / "avro").create_topic("t").append(kafka("x", ["y"]))
    assert run("consume", "t", "-s", "avro").out == "y\n"


def test_our_own_flags_win_unless_the_table_says_when_they_do_not() -> None:
    for word, command, flag in rows():
        own = {name for param in LEAVES[command].params for name in param.opts}
        assert flag not in own or word.applies is not None or EVERY in word.commands, (
            flag,
            command,
        )


def test_every_command_of_a_topic_takes_it_by_kafkas_flag_as_well() -> None:
    takes_it = {command for word, command, flag in rows() if flag == "--topic" and word.works}
    for name, command in LEAVES.items():
        arguments = {param.name for param in command.params if isinstance(param, click.Argument)}
        own = {option for param in command.params for option in param.opts}
        # Of the others one of several arguments is a store, or the topic is of another one.
        if (
            arguments in ({"topic"}, {"topics"})
            and "--topic" not in own
            and name != "topics promote"
        ):
            assert name in takes_it, name


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"{mode.group} {mode.flag}")
def test_flag_that_is_a_command_names_it(run: Run, mode: Mode) -> None:
    """For the group and for the tool; on another command; and on the command itself."""
    value = ["billing"] if mode.has_value else []
    group = [mode.group] if mode.group else []
    told = run(*group, mode.flag, *value, "--bootstrap-server", "b:1")
    said = f"{mode.tool}'s {mode.flag} is `pylogtable {mode.command}` here"
    told.failed(said, "there is no broker here", status=2)
    assert f"; type: pylogtable {mode.command}" in told.err
    if mode.has_value:
        return
    other = "groups list" if mode.group == "groups" else "topics list"
    if mode.command != other:
        told = run(*other.split(), mode.flag)
        told.failed(f"that is `pylogtable {mode.command}` here", status=2)
    rest = required(mode.command)
    assert parsed(mode.command, [*rest, mode.flag]) == parsed(mode.command, rest)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("--list", "topics list"),
        ("topics --list --bootstrap-server localhost:9092", "topics list"),
        (
            "topics --create --topic orders --partitions 3 --replication-factor 3 "
            "--bootstrap-server localhost:9092 --config retention.ms=-1",
            "topics create orders --partitions 3 --config retention.ms=-1",
        ),
        ("topics --topic orders --describe", "topics describe orders"),
        ("kafka-topics.sh --list --bootstrap-server b:9092", "topics list"),
        ("./bin/kafka-topics.sh --describe --topic orders", "topics describe orders"),
        (
            "kafka-configs --alter --entity-type topics --entity-name orders --add-config a=1,b=2",
            "topics alter --config a=1 --config b=2 orders",
        ),
        ("kafka-consumer-groups --describe --group g --members", "groups describe g"),
        (
            "groups --reset-offsets --group g --topic t:0,1 --to-earliest --execute",
            "groups reset g --topic t:0,1 --to-earliest --execute",
        ),
        ("groups --delete-offsets --group g --topic t", "groups delete g --topic t"),
        (
            "kafka-console-consumer --topic t --from-beginning --max-messages 5",
            "consume t --from earliest --count 5",
        ),
        (
            "kafka-console-producer --topic t --property parse.key=true --property key.separator=:",
            "produce --key-separator : t",
        ),
        ("kafka-get-offsets --topic t --time -2", "offsets t --time -2"),
        (
            "kafka-delete-records --offset-json-file d.json",
            "delete-records --offset-json-file d.json",
        ),
        ("kcat -b b:9092 -C -t t -o -5 -e -f '%k\\n'", "consume --from -5 t --format '%k\\n'"),
        ("-b b:9092 -L -J", "topics describe --output json"),
        ("-b b:9092 -P -t t -K:", "produce t -K:"),
        ("-G g t", "consume --group g t"),
        ("--store ./x topics list -b b:9092", "topics list --store ./x"),
        (
            'topics list --storage-options \'{"secret": "hush"}\' -b b:9092',
            "topics list --storage-options …",
        ),
        (
            '--storage-options \'{"secret": "hush"}\' topics list -b b:9092',
            "topics list --storage-options=…",
        ),
    ],
)
def test_whole_line_is_given_in_our_words(run: Run, typed: str, line: str) -> None:
    told = run(*shlex.split(typed))
    told.failed(f"; type: pylogtable {line}", status=2)
    assert told.err.endswith(f"pylogtable {line}\n")
    assert "hush" not in told.err


def test_line_that_the_message_gives_can_be_typed(run: Run, clicks: pylogtable.Topic) -> None:
    told = run("kcat", "-b", "x:1", "-C", "-t", "clicks", "-o", "1", "-p0", "-c1", "-f", "%k|%s;")
    line = told.err.strip().partition("; type: pylogtable ")[2]
    assert run(*shlex.split(line)).out == "k2|b;"


def test_programs_and_words_of_others_name_commands_that_exist(run: Run) -> None:
    groups = {"", "topics", "groups"}
    for tool, path in TOOLS.items():
        assert path in groups | LEAVES.keys()
        run(f"{tool}.sh", "-x").failed(f"there is no command '{tool}.sh'", status=2)
    for typed, path in COMMANDS.items():
        run(typed).failed(f"did you mean {path!r}?", status=2)
        assert path in LEAVES
        assert path not in DESTROYING


def test_flags_of_the_console_consumer_work(run: Run, clicks: pylogtable.Topic) -> None:
    def got(line: str) -> str:
        shown = run("consume", *shlex.split(line))
        assert (shown.status, shown.err) == (0, "")
        return shown.out

    assert got("clicks --from-beginning --max-messages 2") == "a\nb\n"
    assert got("--topic clicks --offset 1 --partition 0") == "b\nc\n"
    assert got("clicks --property print.key=true --property key.separator=: -c 2") == "k1:a\nk2:b\n"
    assert got("clicks --property print.partition=true --property print.offset=true -c1") == (
        "Partition:0\tOffset:0\ta\n"
    )
    assert got("clicks --from-beginning --timeout-ms 10") == "a\nb\nc\nd\n"
    assert got("clicks --follow --timeout-ms 10 --group g") == "a\nb\nc\nd\n"
    assert got("clicks --timeout-ms 0 --group g") == ""


def test_flags_of_kcat_work(run: Run, clicks: pylogtable.Topic) -> None:
    def got(line: str) -> str:
        shown = run("consume", *shlex.split(line))
        assert (shown.status, shown.err) == (0, "")
        return shown.out

    assert got("-C -t clicks -o beginning -e -q") == "a\nb\nc\nd\n"
    assert got(r"-Cet clicks -p 0 -c2 -f '%k %s\n'") == "k1 a\nk2 b\n"
    assert got(r"clicks -o-1 -f%s") == "cd"
    assert '"payload":"a"' in got("clicks -J -c 1")
    assert got("clicks -K : -c1 -u") == "k1:a\n"
    assert got("-G g clicks") == "a\nb\nc\nd\n"
    assert got("clicks --from beginning --to end") == "a\nb\nc\nd\n"
    assert got("clicks --from end") == got("clicks --from 0:end,1:end") == ""
    # -f without a format follows, as ever.
    assert got("clicks -f -c4") == got("-f clicks --count 4") == "a\nb\nc\nd\n"


def test_produce_takes_flags_of_both(run: Run, store_dir: Path) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    line = "produce --topic t --property parse.key=true --property key.separator=:"
    assert run(*line.split(), stdin="u1:a\n").status == 0
    assert run("produce", *shlex.split("-P -t t -K : -Z -p 0"), stdin="u2:\n").status == 0
    assert run("produce", "t", "-Z", "NULL", stdin="NULL\n").status == 0
    found = topic.read().read_all()
    assert found["key"].to_pylist() == [b"u1", b"u2", None]
    assert found["value"].to_pylist() == [b"a", None, None]


def test_settings_are_changed_as_by_kafka_configs(run: Run, clicks: pylogtable.Topic) -> None:
    clicks.delete_records({0: 3})
    line = "topics alter --entity-type topics --entity-name clicks --add-config"
    done = run(*line.split(), "retention.ms=5,cleanup.policy=[compact,delete]")
    assert done.status == 0, done
    assert clicks.describe().config["cleanup.policy"] == "compact,delete"
    assert (
        run("topics", "alter", "clicks", "--delete-config", "retention.ms,cleanup.policy").status
        == 0
    )
    assert clicks.describe().config["cleanup.policy"] == "delete"


def test_tail_begins_at_the_end(run: Run, clicks: pylogtable.Topic) -> None:
    assert run("tail", "clicks", "--timeout-ms", 0).out == ""
    assert run("tail", "-f", "clicks", "-n", 1, "-e").out == "c\nd\n"
    assert run("tail", "clicks", "-n", 2, "--count", 3, "-f", "%s ").out == "b c d "
    assert run("tail", "clicks", "-n", 0, "--timeout-ms", 0).out == ""
    assert run("tail", "clicks", "--from-beginning", "-c", 4).out == "a\nb\nc\nd\n"
    run("tail", "clicks", "-n", 1, "--from", 0).failed("give -n or --from, not both", status=2)


def test_timeout_waits_for_records(clicks: pylogtable.Topic) -> None:
    """It is as long as a test may run: only a signal ends this one."""
    where = ("--from", "latest", "--group", "g")
    running = start("consume", "clicks", *where, "--timeout-ms", 3_600_000)
    assert running.stdout is not None
    until(lambda: len(clicks.group("g").positions()) == 2, running)
    clicks.append(kafka(["k"], ["new"]))
    assert running.stdout.readline() == b"new\n"
    running.terminate()
    assert running.wait(60) == 143


class Eventful(Silence):
    """A silence in which a record is appended, then a setting changes, and which is over then. It
    counts how often it begins."""

    def __init__(self, topic: pylogtable.Topic) -> None:
        super().__init__(None)
        self.begun = 0
        self._events = [
            lambda: topic.alter(config={"segment.bytes": 10_000_000}),
            lambda: topic.append(kafka(["k"], ["new"])),
        ]

    def begin(self) -> None:
        super().begin()
        self.begun += 1

    @property
    def is_over(self) -> bool:
        if not self._events:
            return True
        self._events.pop()()
        return False


def test_only_a_record_ends_the_silence(clicks: pylogtable.Topic, capfdbinary: Any) -> None:
    view = clicks.at()
    printer = _Printer(lambda batch: bytes(batch.num_rows), None, None)
    printer.positions = dict(view.end_offsets)
    with Eventful(clicks) as silence:
        _follow(Session(), clicks, view, printer, None, None, silence)
    assert (silence.begun, printer.printed) == (2, 1)


def test_tail_prints_what_is_appended(clicks: pylogtable.Topic) -> None:
    running = start("tail", "clicks", "--group", "g", "-K", "=")
    assert running.stdout is not None
    until(lambda: len(clicks.group("g").positions()) == 2, running)
    clicks.append(kafka(["k"], ["new"]))
    assert running.stdout.readline() == b"k=new\n"
    running.terminate()
    assert running.wait(60) == 143


def test_unknown_option_never_leads_to_one_that_destroys(run: Run) -> None:
    """`--list` was taken for `--store`."""
    for command in LEAVES:
        own = [name for param in LEAVES[command].params for name in param.opts]
        for option in sorted(DESTROYING_OPTIONS & set(own)):
            for typed in (option[:-1], f"{option}s", option.replace("e", "ee", 1) + "d"):
                told = run(*command.split(), *required(command), typed)
                told.failed("there is no option", status=2)
                found = re.search(r"did you mean '(.*?)'", told.err)
                assert found is None or found[1] not in DESTROYING_OPTIONS
    run("topics", "delete", "t", "--dry-rum").failed("did you mean '--dry-run'?", status=2)
    run("segments", "t", "--list").failed("that is `pylogtable topics list` here", status=2)
    run("segments", "t", "--lost").failed("see pylogtable segments --help", status=2)


LETTERS = st.sampled_from("abcdefghijklmnopqrstuvwxyz-_")


@st.composite
def misspelled(draw: st.DrawFn) -> tuple[str, str]:
    """A command, and its name with two mistakes at most."""
    command = draw(st.sampled_from(sorted(LEAVES)))
    *group, word = command.split()
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(word)))
        how, letter = draw(st.sampled_from(["add", "drop", "change", "swap"])), draw(LETTERS)
        before, after = word[:at], word[at:]
        word = {
            "add": before + letter + after,
            "drop": before + after[1:],
            "change": before + letter + after[1:],
            "swap": before + after[1:2] + after[:1] + after[2:],
        }[how]
    return " ".join(group), word


@given(misspelled())
def test_no_misspelling_suggests_what_destroys(case: tuple[str, str]) -> None:
    path, word = case
    group: Any = app
    context = click.Context(app, info_name=PROGRAM, obj=Session())
    for name in path.split():
        group = group.get_command(context, name)
        context = click.Context(group, info_name=name, parent=context)
    if word.startswith("-") or group.get_command(context, word) is not None:
        return
    with pytest.raises(click.UsageError) as told:
        group.resolve_command(context, [word])
    found = re.search(r"did you mean '(.*?)'", told.value.message)
    assert found is None or f"{path} {found[1]}".strip() not in DESTROYING


def test_the_guide_has_the_table() -> None:
    """If it does not, this prints the lines that belong there."""
    text = section(read("pylogtable/cli/README.md"), "### Flags of Kafka's tools and of kcat")
    found = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert found == guide_lines(), "\n" + "\n".join(guide_lines())


def guide_lines() -> list[str]:
    lines = []
    for mode in MODES:
        flag = f"{mode.flag} GROUP" if mode.has_value else mode.flag
        at = f"`{mode.group}`" if mode.group else "the program"
        lines.append(f"| `{flag}` | {at} | no: it is the command `{mode.command}` |")
    for word in WORDS:
        flags = ", ".join(f"`{flag} {word.metavar}`".replace(" `", "`") for flag in word.flags)
        at = ", ".join(f"`{name}`" for name in word.commands)
        lines.append(f"| {flags} | {'every command' if at == '`*`' else at} | {_here(word)} |")
    return lines


def _here(word: Word) -> str:
    says = word.says.format(value=word.metavar).replace("|", r"\|")
    if word.ours is None:
        return f"no: {says}"
    if callable(word.ours):
        return says
    if not word.ours:
        return f"changes nothing: {says}"
    return f"`{word.ours}`" + (f", {says}" if says else "")
