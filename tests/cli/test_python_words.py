"""On the command line, the library's messages advise commands and flags, and no calls of Python."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylogtable
from pylogtable.cli import python_words
from pylogtable.cli.messages import library_messages
from pylogtable.cli.python_words import for_command_line
from pylogtable.cli.session import Session
from tests.cli.conftest import ROOT, Run

#: A call, or an argument with its value, as one writes them in Python.
PYTHON = re.compile(
    r"\b[A-Za-z_][\w.]*\(\)|\b[a-z_]+=(?:True|False|None|['\"\[{(](?!§))"
    r"|\b[A-Za-z_]+\.[a-z_]+\([^)]*|\b[a-z]+_[a-z_]+\("
)

#: Nobody sees these on the command line: they are about arguments of the wrong type, or about what
#: no command does. By the beginning of the message.
ONLY_IN_PYTHON = (
    "`staged` must be",
    "partition §: the first row has offset §",  # rows with offsets of their own
    "the last txn of app id",
    "a callback cannot call",
    "a callback cannot wait",
    "this consumer is used by two threads",
    "§ has a time zone, and the column has none",
    ", or keep the offsets with",
    "txn § of app id",
    "expected_last=§ is given",
    "the note § is given without",
    "this consumer is not a member",
    "§() cannot be called inside of on_assign",
    "`topic` must be",
    "`store` must be",
    "`to_store` must be",
    "catalog must be",
    "the entry § of the catalog",
    "the catalog has no namespace",
    "send(§): name each argument",
    "the topic has no Iceberg table yet; publish",
    "pyarrow.compute.field",
    "column § must have a type such as",
    "§ records of § at version § are in § without a file",
)


def messages() -> Iterator[tuple[str, str]]:
    """Every text of the library with a space in it that is no docstring: where it is, and what it
    says, with § for what is filled in."""
    for path in sorted((ROOT / "pylogtable").rglob("*.py")):
        place = path.relative_to(ROOT / "pylogtable")
        if place.parts[0] in ("cli", "prove") or "page" in place.parts:
            continue
        found = ast.parse(path.read_text())
        nodes = list(ast.walk(found))
        inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr)
                 for part in ast.walk(node) if part is not node}  # fmt: skip
        docs = {
            id(node.body[0].value)
            for node in nodes
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in nodes:
            text = None if id(node) in inner | docs else text_of(node)
            if text is not None and " " in text:
                yield f"{place}:{getattr(node, 'lineno', 0)}", text


def text_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        else:
            assert isinstance(part, ast.FormattedValue)
            parts.append("'§'" if part.conversion == ord("r") else "§")
    return "".join(parts)


MESSAGES = list(messages())


def test_no_message_advises_python_on_the_command_line() -> None:
    """If this fails: add a phrase to `python_words`, or the message to those that only a program
    in Python can get."""
    seen = 0
    for place, text in MESSAGES:
        if PYTHON.search(text) and not text.replace("'§'", "§").startswith(ONLY_IN_PYTHON):
            seen += 1
            left = PYTHON.search(for_command_line(text))
            assert left is None, f"{place}: {left}: {text}"
    assert seen > 30


def test_every_phrase_is_one_of_a_message() -> None:
    """And every exception is a message."""
    for pattern, _ in python_words._PHRASES:
        assert any(re.search(pattern, text) for _, text in MESSAGES), pattern
    for begin in ONLY_IN_PYTHON:
        texts = (text.replace("'§'", "§") for _, text in MESSAGES)
        assert any(text.startswith(begin) for text in texts), begin


def test_what_the_messages_advise_can_be_typed() -> None:
    """Commands and options in our words exist."""
    import shlex

    from pylogtable.cli.app import app
    from tests.cli.conftest import parse

    lines = [
        found
        for _, ours in python_words._PHRASES
        for found in re.findall(
            r"pylogtable ((?:[a-z-]+ )+[A-Z]+(?: --[a-z-]+(?: [A-Z\\]\S*| [a-z.]+$)?)*)", ours
        )
    ]
    assert len(lines) > 8
    for line in lines:
        filled = line.replace("NAME:TYPE", "a:int").replace("--partitions N", "--partitions 1")
        filled = filled.replace("\\1", "a").replace("\\2", "b")
        parse(app, shlex.split(filled))


@pytest.mark.filterwarnings("default")
def test_warning_of_an_append_names_commands(run: Run) -> None:
    assert run("topics", "create", "t", "--config", "retention.ms=1").status == 0
    line = '{"value": "a", "ts": 1}\n'
    told = run("produce", "t", "--json", stdin=line)
    assert told.status == 0
    assert "run pylogtable topics alter TOPIC --config retention.ms=-1" in told.err
    assert "pylogtable maintain --topic TOPIC --dry-run says what" in told.err
    assert "topic.alter" not in told.err
    as_json = run("produce", "t", "--json", "--output", "json", stdin=line)
    assert "run pylogtable topics alter TOPIC" in json.loads(as_json.err)["warning"]


def test_what_is_logged_names_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for log_format in ("text", "json"):
        with library_messages(Session(log_format=log_format)):
            logging.getLogger("pylogtable.x").warning("%s() lists versions", "history")
        assert "pylogtable history TOPIC lists versions" in capsys.readouterr().err


def test_errors_name_commands(run: Run, clicks: pylogtable.Topic) -> None:
    run("compact", "clicks").failed(
        "to change that, run pylogtable topics alter clicks --config cleanup.policy=compact"
    )
    told = run("vacuum", "clicks", "--keep", "1h", "--yes")
    told.failed("Run it without --yes to see what would go. If nobody needs them, give --force")


def test_copy_names_commands(run: Run, clicks: pylogtable.Topic, tmp_path: Path) -> None:
    copy = f"{tmp_path}/copy"
    assert run("mirror", "clicks", copy).status == 0
    told = run("topics", "alter", f"{copy}/clicks", "--partitions", 3)
    told.failed(f"After a failover, first run pylogtable topics promote {copy}/clicks")
    assert "promote()" not in told.err
