"""Long lines of standard input: they are read once, and refused in time."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest

import pylogtable
from pylogtable.cli.stdin_batches import LineReader, LineTooLongError
from tests.cli.conftest import start


class Endless(io.RawIOBase):
    """Bytes that count how often they are looked at. They come in pieces, and have no end unless
    there are only so many."""

    def __init__(self, pieces: int | None = None) -> None:
        self.piece_bytes = 1000
        self.read_pieces = self.touched = 0
        self._pieces = pieces

    def fileno(self) -> int:
        raise OSError("it is in memory")

    def read(self, size: int = -1) -> bytes:
        if self.read_pieces == self._pieces:
            return b""
        self.read_pieces += 1
        return Piece(b"x" * self.piece_bytes, self)


class Piece(bytes):
    """Bytes of `source`. What is made of them by adding or cutting is such bytes, too."""

    source: Endless

    def __new__(cls, data: bytes, source: Endless) -> Piece:
        made = super().__new__(cls, data)
        made.source = source
        source.touched += len(data)
        return made

    def __add__(self, other: bytes) -> Piece:  # type: ignore[override]
        return Piece(bytes(self) + bytes(other), self.source)

    def __radd__(self, other: bytes) -> Piece:
        return Piece(bytes(other) + bytes(self), self.source)

    def split(self, sep: bytes | None = None, maxsplit: int = -1) -> list[bytes]:  # type: ignore[override]
        return [Piece(part, self.source) for part in bytes(self).split(sep, maxsplit)]


def test_each_byte_of_a_long_line_is_touched_a_few_times() -> None:
    source = Endless(pieces=200)
    (batch,) = LineReader(source, 1 << 20, 3600, 1 << 20).batches()
    assert batch.lines == [b"x" * 200_000]
    assert 200_000 <= source.touched <= 3 * 200_000


def test_line_without_an_end_is_refused_once_it_is_too_long() -> None:
    """Not when it ends, which it may never do."""
    source = Endless()
    with pytest.raises(LineTooLongError, match=r"line 1 has more than 50000 bytes.*elsewhere"):
        next(LineReader(source, 1 << 20, 3600, 50_000).batches())
    assert source.read_pieces < 50 + 20  # some are read ahead


def test_lines_before_one_that_is_too_long_are_given_out() -> None:
    source = io.BytesIO(b"one\ntwo\n" + b"x" * 101 + b"\nfour\n")
    batches = LineReader(source, 1 << 20, 3600, 100).batches()
    # A line that came whole is as long as a read at most. What it becomes is checked as a record.
    assert [batch.lines for batch in batches] == [[b"one", b"two", b"x" * 101, b"four"]]
    cut = io.BytesIO(b"one\ntwo\n" + b"x" * 101)
    batches = LineReader(cut, 1 << 20, 3600, 100).batches()
    assert next(batches).lines == [b"one", b"two"]
    with pytest.raises(LineTooLongError, match="line 3 has more than 100 bytes"):
        next(batches)


@pytest.mark.deep
def test_produce_refuses_a_line_without_an_end(clicks: pylogtable.Topic) -> None:
    running = start("produce", "clicks", "--partition", "1")
    assert running.stdin is not None
    assert running.stderr is not None
    with suppress(BrokenPipeError):
        running.stdin.write(b"first\n")
        while True:
            running.stdin.write(b"x" * (1 << 20))
    assert running.wait(60) == 1
    told = running.stderr.read().decode()
    assert "line 2 has more than 536870912 bytes" in told
    assert "lines 1 to 1 are appended" in told
    assert clicks.count() == 5
