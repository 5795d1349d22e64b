"""The commands of the guide, and those in the README, run as they stand."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

import pylogtable
from pylogtable.cli.app import app
from tests.cli.conftest import Result, Run
from tests.cli.test_program import commands
from tests.documents import code, quoted, read, section, table

GUIDE = "pylogtable/cli/README.md"
KAFKA_ROW = re.compile(r"^\|(?P<kafka>[^|]+)\| `(?P<ours>pylogtable [^|`]+)` \|$", re.MULTILINE)


class Shell:
    """Runs lines of a shell script that consist of our program, pipes, redirections and exports."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = run
        self._monkeypatch = monkeypatch

    def line(self, text: str) -> Result:
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|<>")
        lexer.whitespace_split = True
        words = list(lexer)
        if words[0] == "export":
            self._monkeypatch.setenv(*words[1].split("=", 1))
            return Result(0, "", "")
        target = words[words.index(">") + 1] if ">" in words else None
        words = words[: words.index(">")] if ">" in words else words
        source = words[words.index("<") + 1] if "<" in words else None
        words = words[: words.index("<")] if "<" in words else words
        result = Result(0, Path(source).read_text() if source else "", "")
        while words:
            end = words.index("|") if "|" in words else len(words)
            result = self._command(words[:end], result.out)
            assert result.status == 0, (text, result)
            words = words[end + 1 :]
        if target:
            Path(target).write_text(result.out)
        return result

    def _command(self, words: list[str], stdin: str) -> Result:
        if words[0] != "pylogtable":
            out = subprocess.run(["bash", "-c", shlex.join(words)], capture_output=True, check=True)
            return Result(0, out.stdout.decode(), "")
        # A consumer that follows would wait forever.
        until = ["--to", "latest"] if "--follow" in words else []
        return self._run(*words[1:], *until, stdin=stdin)


@pytest.fixture
def shell(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(run, monkeypatch)


def test_the_examples_of_the_guide_run_in_order(shell: Shell, tmp_path: Path) -> None:
    said: dict[str, str] = {}
    for note, body in code(read(GUIDE), "sh"):
        assert not note or note.startswith("no-run: ")
        for line in body.splitlines() if not note else []:
            said[line.split("  #")[0].strip()] = shell.line(line).out
    assert len(said) > 30
    assert said["pylogtable consume orders"].splitlines()[1] == (
        '{"order_id":2,"amount":"NaN","at":null}'
    )
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    store = pylogtable.open(tmp_path / "logs")
    assert store.topics() == ["clicks", "orders"]
    assert (
        said["pylogtable consume clicks --output json"].count("\n") == store.topic("clicks").count()
    )


def test_the_guide_lists_every_command_with_its_arguments() -> None:
    listed = [quoted(cell)[0] for cell, _ in table(section(read(GUIDE), "## All commands"))]
    expected = []
    for path in commands(app):
        command: click.Command = app
        for name in path:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), name) or command
        if not isinstance(command, click.Group):
            arguments = command.collect_usage_pieces(click.Context(command))[1:]
            shown = ["SHELL" if "bash" in argument else argument for argument in arguments]
            expected.append(" ".join([*path, *shown]))
    assert sorted(listed) == sorted(expected)


def test_the_commands_compared_with_kafka_run_in_order(shell: Shell, store_dir: Path) -> None:
    """All on one store, as somebody would try them out."""
    rows = KAFKA_ROW.findall(section(read(GUIDE), "## Coming from Kafka's tools"))
    assert len(rows) >= 20
    kafkas = " ".join(kafka for kafka, _ in rows)
    for tool in ("topics", "configs", "console-producer", "console-consumer", "get-offsets",
                 "consumer-groups", "delete-records", "dump-log"):  # fmt: skip
        assert f"kafka-{tool}" in kafkas
    Path("lines.txt").write_text("u1:a\nu2:b\nu3:c\n")
    doomed = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}
    Path("delete.json").write_text(json.dumps(doomed))
    said = {ours: shell.line(ours).out for _, ours in rows}
    assert sorted(said["pylogtable consume orders --count 10"].split()) == ["a", "b", "c"]
    assert said["pylogtable topics list"] == "orders\n"
    assert said["pylogtable groups list"] == "billing\n"
    assert pylogtable.open(store_dir).topics() == []


def test_the_examples_of_the_readme_run_in_order(shell: Shell, store_dir: Path) -> None:
    """On a store in a directory, where the README names one on S3."""
    ((_, script), *_) = code(section(read("README.md"), "## Command line"), "sh")
    lines = [line for line in script.splitlines() if not line.startswith("export ")]
    results = [shell.line(line) for line in lines]
    assert all(result.err == "" for result in results)
    said = [result.out for result in results]
    assert said[0] == "Created topic clicks.\n"
    assert said[1].startswith("clicks: 2 records in 1 commit; ")
    assert sorted(said[3].split()) == ["a", "b"]
    assert pylogtable.open(store_dir).groups() == {"billing": ["clicks"]}
