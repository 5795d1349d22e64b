"""What a terminal gets: no control character of a record, a name or a message reaches it raw."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.cli.app import main
from pylogtable.format.group_model import GroupMember, GroupState
from pylogtable.format.json_codec import encode
from pylogtable.format.paths import group_path
from tests.cli.conftest import Run, environment, start

#: A title, a colour by ESC and by C1, a bell, a carriage return, a reversed line, and HTML.
HOSTILE = "\x1b]0;owned\x07\x1b[31m\x9b31m\r\u202e\x7f<script>alert(1)</script>"
SHOWN = r"\x1b]0;owned\x07\x1b[31m\u009b31m\x0d\u202e\u007f<script>alert(1)</script>"
#: Tables have a bold head. A spinner hides the cursor, is green, and clears its line.
OURS = re.compile("\x1b\\[(?:[01]m|32m|\\?25[lh]|2K|1A)|\r(?=\x1b)")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

OnTerminal = Callable[..., str]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """Runs the program on a pseudo-terminal; returns what the terminal got."""

    def call(*arguments: object) -> str:
        ours, theirs = os.openpty()
        got: list[bytes] = []

        def read() -> None:
            try:
                while data := os.read(ours, 65536):
                    got.append(data)
            except OSError:  # the other side is closed
                pass

        reader = threading.Thread(target=read)
        reader.start()
        with monkeypatch.context() as patch:
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", "10000")
            terminal = io.TextIOWrapper(io.FileIO(theirs, "w"), "utf-8", line_buffering=True)
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            main([str(argument) for argument in arguments])
            terminal.close()
        reader.join()
        os.close(ours)
        return b"".join(got).decode().replace("\r\n", "\n")

    return call


@pytest.fixture
def hostile(store_dir: Path) -> Topic:
    """A topic with HOSTILE wherever text can be."""
    store = pylogtable.open(store_dir)
    topic = store.create_topic("t")
    header = pa.array(
        [[{"key": HOSTILE, "value": HOSTILE.encode()}]],
        pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    )
    record = {"key": [HOSTILE.encode()], "value": [HOSTILE.encode()]}
    topic.append(pa.table(record).append_column("headers", header), txn=(HOSTILE, 1))
    topic.group("g").commit({0: 0}, metadata=HOSTILE)
    now_ms = 32_503_680_000_000
    member = GroupMember(lease_until_ms=now_ms, owned=(0,))
    state = GroupState(
        operation="join",
        positions={},
        members={HOSTILE: member},
        number=0,
        commit_id="c",
        topic_id=topic.topic_id,
        committed_at_ms=now_ms,
    )
    (store_dir / "t" / group_path("m", 0)).parent.mkdir(parents=True)
    (store_dir / "t" / group_path("m", 0)).write_bytes(encode(state))
    columns = store.create_topic("c", 1, {HOSTILE: pa.string(), "n": pa.int64()}, key=HOSTILE)
    columns.append(pa.table({HOSTILE: [HOSTILE], "n": [1]}))
    return topic


COMMANDS = [
    ("consume", "t", "--format", "%k|%s|%h\\n"),
    ("consume", "t", "--output", "json"),
    ("consume", "c"),
    ("consume", "c", "--output", "json"),
    ("topics", "describe", "c"),
    ("topics", "describe", "c", "--output", "json"),
    ("groups", "describe", "g", "--output", "json"),
    ("topics", "describe", HOSTILE),
    ("topics", "describe", HOSTILE, "--output", "json"),
    ("topics", "create", "u", "--partitions", "1", "--config", f"{HOSTILE}=1"),
    ("topics", "alter", "t", "--config", f"retention.ms={HOSTILE}"),
    ("offsets", "t", "--time", HOSTILE),
    ("consume", "t", "--from", HOSTILE),
    ("consume", "t", "--group", HOSTILE),
    ("groups", "describe", HOSTILE),
    (HOSTILE,),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:40])
def test_control_characters_are_shown(
    hostile: Topic, on_terminal: OnTerminal, command: tuple[str, ...]
) -> None:
    shown = on_terminal(*command)
    assert not CONTROL.search(OURS.sub("", shown)), shown
    assert "owned" in shown
    assert "x1b" in shown or "u001b" in shown


@pytest.mark.parametrize(
    "command",
    [
        ("history", "t"),
        ("segments", "t"),
        ("segments", "c"),
        ("groups", "list"),
        ("groups", "describe", "m"),
        ("groups", "describe", "g"),
        ("verify", "t"),
        ("verify", "c"),
        ("report", "-o", "-"),
        ("maintain", "--no-vacuum"),
    ],
    ids=" ".join,
)
def test_no_other_command_passes_control_characters_on(
    hostile: Topic, on_terminal: OnTerminal, command: tuple[str, ...]
) -> None:
    shown = on_terminal(*command)
    assert shown
    assert not CONTROL.search(OURS.sub("", shown)), shown
    assert "<script>alert" not in shown or "report" not in command


def test_every_sign_is_shown_as_an_escape(hostile: Topic, on_terminal: OnTerminal) -> None:
    assert on_terminal("consume", "t") == SHOWN + "\n"


def test_json_on_a_terminal_stays_json(hostile: Topic, on_terminal: OnTerminal) -> None:
    shown = on_terminal("consume", "t", "--output", "json")
    assert json.loads(shown)["payload"] == HOSTILE


def test_text_of_other_languages_is_not_touched(store_dir: Path, on_terminal: OnTerminal) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    text = "héllo\tשל\u05d5ם 日本 👩\u200d🚀"
    topic.append(pa.table({"key": [b"k"], "value": [text.encode()]}))
    assert on_terminal("consume", "t") == text + "\n"


def test_bytes_that_are_not_text_are_shown(store_dir: Path, on_terminal: OnTerminal) -> None:
    topic = pylogtable.open(store_dir).create_topic("t")
    topic.append(pa.table({"key": [b"k"], "value": [b"a\xff\x9b\x00"]}))
    assert on_terminal("consume", "t") == r"a\xff\x9b\x00" + "\n"


def test_a_pipe_gets_every_byte(hostile: Topic, run: Run) -> None:
    assert run("consume", "t").out == HOSTILE + "\n"
    program = start("consume", "t")
    out, _ = program.communicate()
    assert out == HOSTILE.encode() + b"\n"


def test_the_program_itself_is_safe_on_a_terminal(hostile: Topic, store_dir: Path) -> None:
    """A process of its own, with the terminal as its standard streams."""
    ours, theirs = os.openpty()
    program = start(
        "consume", "t", stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm")
    )
    os.close(theirs)
    got = b""
    try:
        while data := os.read(ours, 65536):
            got += data
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert program.wait() == 0
    assert got.decode() == SHOWN + "\r\n"
