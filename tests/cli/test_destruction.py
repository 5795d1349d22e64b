"""Commands that destroy something are never suggested, and ask first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import pylogtable
from pylogtable.cli.app import app
from tests.builders import Clock, kafka
from tests.cli.conftest import AtTerminal, Run, start

#: What destroys records, positions, tables, files or versions, or ends something for good.
DESTROYING = {
    "compact",
    "delete-records",
    "erase",
    "groups delete",
    "groups remove-member",
    "groups reset",
    "maintain",
    "retain",
    "run",
    "topics delete",
    "topics promote",
    "unpublish",
    "vacuum",
}


def all_commands(group: click.Group = app, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from all_commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_destroying_commands_are_marked_and_can_be_confirmed() -> None:
    marked = {name: command for name, command in all_commands() if command.destroys}  # type: ignore[attr-defined]
    assert marked.keys() == DESTROYING
    for name, command in all_commands():
        options = {option for param in command.params for option in param.opts}
        can_confirm = bool(options & {"--yes", "--execute"})
        # `topics alter` asks only before it drops columns.
        assert can_confirm == (name in marked or name == "topics alter"), name


def test_unknown_command_never_leads_to_one_that_destroys(run: Run) -> None:
    # What is less like it is no better hint: `tail`, here.
    run("retani", "x").failed("there is no command", "available: topics, offsets", status=2)
    for name in DESTROYING:
        *group, command = name.split()
        for typed in (command[:-1], f"{command}s", command.replace("e", "ee", 1) + "d"):
            told = run(*group, typed)
            told.failed("there is no command", status=2)
            assert f"did you mean {command!r}" not in told.err
    run("consum", "x").failed("did you mean 'consume'?", status=2)
    run("topics", "lst").failed("did you mean 'list'?", status=2)


@pytest.fixture
def expired(store_dir: Path) -> pylogtable.Topic:
    """Three records of two keys. All of them have expired, and one key has two."""
    settings = {"retention.ms": 1000, "cleanup.policy": "compact,delete"}
    topic = pylogtable.open(store_dir, clock=Clock()).create_topic("t", config=settings)
    topic.append(kafka(["a", "b", "a"]))
    return topic


POLICIES = [
    (("retain", "t"), 0, "remove 3 records of t for good, as its retention.ms"),
    (("compact", "t", "--force"), 0, "remove the records that have a newer one with the same key"),
    (
        ("maintain",),
        0,
        "apply retention, compaction, merge, publication, vacuum and group expiry to 1",
    ),
]


@pytest.mark.parametrize(
    ("command", "left", "question"), POLICIES, ids=lambda value: str(value)[:12]
)
def test_job_that_applies_settings_asks_people_and_no_scheduler(
    run: Run,
    at_terminal: AtTerminal,
    expired: pylogtable.Topic,
    command: tuple[str, ...],
    left: int,
    question: str,
) -> None:
    before = expired.at().version
    for answer in ("n\n", "\n", ""):
        asked = at_terminal(*command, answer=answer)
        assert asked.status != 0
        assert question in asked.err
        assert "Continue? [y/N]" in asked.err
        assert expired.at().version == before
    agreed = at_terminal(*command, answer="y\n")
    assert agreed.status == 0, agreed
    assert expired.count() == left


@pytest.mark.parametrize(
    ("command", "left", "question"), POLICIES, ids=lambda value: str(value)[:12]
)
@pytest.mark.parametrize("is_scheduler", [True, False])
def test_job_that_applies_settings_runs_without_a_question(
    run: Run,
    at_terminal: AtTerminal,
    expired: pylogtable.Topic,
    command: tuple[str, ...],
    left: int,
    question: str,
    is_scheduler: bool,
) -> None:
    """A scheduler has no terminal, and people can say --yes."""
    done = run(*command) if is_scheduler else at_terminal(*command, "--yes", answer="")
    assert done.status == 0, done
    assert "Continue?" not in done.err
    assert expired.count() == left


def test_retain_does_not_ask_if_nothing_has_expired(
    at_terminal: AtTerminal, clicks: pylogtable.Topic
) -> None:
    done = at_terminal("retain", "clicks", answer="")
    assert done.status == 0
    assert done.out.startswith("clicks: removed 0 records in 0 segments; ")
    assert "Continue?" not in done.err


def test_compact_of_a_topic_with_another_policy_says_so_at_once(
    at_terminal: AtTerminal, clicks: pylogtable.Topic
) -> None:
    told = at_terminal("compact", "clicks", answer="")
    assert told.status == 1
    assert "Continue?" not in told.err
    assert "cleanup.policy=compact" in told.err


def test_question_on_a_real_terminal(expired: pylogtable.Topic) -> None:
    ours, theirs = os.openpty()
    running = start("retain", "t", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"n\n")
    assert running.wait(60) == 1
    os.close(ours)
    assert b"This will remove 3 records of t for good" in shown
    assert expired.count() == 3


#: Without --yes or --execute, and without a terminal.
REFUSED = [
    ("topics", "delete", "t"),
    ("topics", "alter", "t", "--drop-column", "n"),
    ("groups", "delete", "g"),
    ("delete-records", "t", "--offset", "0:latest"),
    ("erase", "t", "--where", "offset=0"),
    ("unpublish", "t"),
    ("vacuum", "t"),
    ("groups", "reset", "g", "--topic", "t", "--to-latest"),
]


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_everything_else_needs_a_word_where_nobody_can_be_asked(
    run: Run, store_dir: Path, command: tuple[str, ...]
) -> None:
    import pyarrow as pa

    store = pylogtable.open(store_dir)
    topic = store.create_topic("t", 1, {"id": pa.int64(), "n": pa.int64()}, key="id")
    topic.append(pa.table({"id": [1, 2], "n": [3, 4]}))
    topic.group("g").commit({0: 0})
    before = {path: path.read_bytes() for path in store_dir.rglob("*") if path.is_file()}
    told = run(*command)
    assert "--yes" in told.err + told.out or "--execute" in told.err or command[0] == "vacuum"
    assert {path: path.read_bytes() for path in store_dir.rglob("*") if path.is_file()} == before
