"""Runs the program: in this process, which is fast, or in a process of its own."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

import pylogtable
from pylogtable.cli.app import main
from pylogtable.cli.session import Session
from tests.builders import IN_FILES, kafka

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """The exit status and the output of a run."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def failed(self, *words: str, status: int = 1) -> None:
        """Assert that the run failed with this status and one line that contains the words."""
        assert self.status == status, self
        assert self.err.count("\n") == 1, self
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err, self


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program in this process."""

    def call(
        *arguments: object, stdin: bytes | str = b"", session: Session | None = None
    ) -> Result:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            patch.setattr(sys, "stderr", io.TextIOWrapper(err, "utf-8", write_through=True))
            status = main([str(argument) for argument in arguments], session)
            return Result(status, out.getvalue().decode(), err.getvalue().decode())

    return call


AtTerminal = Callable[..., Result]


class Typed(io.TextIOWrapper):
    """Text that somebody types, or reads, on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> AtTerminal:
    """Runs the program at a terminal, where somebody types `answer`."""

    def call(*arguments: str, answer: str) -> Result:
        out, err = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", Typed(io.BytesIO(answer.encode())))
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, "utf-8", write_through=True))
            patch.setattr(sys, "stderr", Typed(err, "utf-8", write_through=True))
            status = main(arguments)
            return Result(status, out.getvalue().decode(), err.getvalue().decode())

    return call


@pytest.fixture(autouse=True)
def store_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an empty store, which PYLOGTABLE_STORE names."""
    monkeypatch.setenv("PYLOGTABLE_STORE", str(tmp_path / "logs"))
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def clicks(store_dir: Path, in_files: bool) -> pylogtable.Topic:
    """A topic of Kafka's shape with two partitions: a, b, c in the first, d in the second."""
    config = IN_FILES if in_files else None
    topic = pylogtable.open(store_dir).create_topic("clicks", partitions=2, config=config)
    keys, values = ["k1", "k2", None, "k4"], ["a", "b", "c", "d"]
    topic.append(kafka(keys, values, partition=_ints(0, 0, 0, 1)))
    return topic


@pytest.fixture
def orders(store_dir: Path) -> pylogtable.Topic:
    """A topic with columns and a key."""
    import pyarrow as pa

    schema = {"id": pa.int64(), "amount": pa.float64(), "at": pa.timestamp("us", "UTC")}
    schema |= {"raw": pa.binary(), "day": pa.date32(), "price": pa.decimal128(10, 2)}
    return pylogtable.open(store_dir).create_topic("orders", 1, schema, "id")


def _ints(*numbers: int) -> Any:
    import pyarrow as pa

    return pa.array(numbers, pa.int32())


def environment(**more: str) -> dict[str, str]:
    """The environment for a process of its own."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start the program in a process of its own, which Ctrl-C reaches: a suite that was started as
    a background job ignores SIGINT, and so would the program."""
    command = [sys.executable, "-m", "pylogtable", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, **{**pipes, "env": environment(), **options})
    finally:
        signal.signal(signal.SIGINT, before)


def parse(command: click.Command, words: list[str]) -> None:
    """Parse a command line without running it; raises a usage error if it is wrong."""
    context = command.make_context("x", list(words))
    if isinstance(command, click.Group):
        # The attribute has another name before click 8.2.
        held = "_protected_args" if hasattr(context, "_protected_args") else "protected_args"
        rest = [*getattr(context, held), *context.args]
        _, inner, after = command.resolve_command(context, rest)
        assert inner is not None
        parse(inner, after)
