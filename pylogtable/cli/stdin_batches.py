"""Lines of standard input in batches: by size, or when the oldest line has waited long enough.

A signal ends the input. Then everything that has been read is still given out, so nothing is read
that the signal could find between the input and the batches: a read begins only when there is
something to read and no signal has come.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import click

from pylogtable.cli.signals import Signals, noting_signals

_CHUNK_BYTES = 1 << 20
_CHUNKS_AHEAD = 8


@dataclass(frozen=True)
class LineBatch:
    """Consecutive lines without their line ends. Lines are numbered from 1, as in editors."""

    first: int
    lines: list[bytes]

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + len(self.lines) - 1


@dataclass(frozen=True)
class _LingerOver:
    """The lines from `first` on have waited long enough."""

    first: int


class _Stop:
    """No more lines are wanted."""


class LineTooLongError(Exception):
    """A line cannot become a record, however it goes on."""


class _Lines:
    """Cuts what is read into lines. Each byte is looked at once and copied once, however many reads
    its line takes."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []  # the line whose end has not come, in pieces
        self.begun_bytes = 0

    def whole(self, read: bytes) -> list[bytes]:
        """The lines that end in these bytes."""
        first, *others = read.split(b"\n")
        self._begun.append(first)
        self.begun_bytes += len(first)
        if not others:
            return []
        lines = [self.rest(), *others]
        self._begun, self.begun_bytes = [lines.pop()], len(others[-1])
        return lines

    def rest(self) -> bytes:
        """The line whose end has not come."""
        return b"".join(self._begun)


class LineReader:
    """Reads in a thread of its own, so that a slow input does not hold back lines already read."""

    def __init__(
        self,
        source: IO[bytes],
        batch_bytes: int,
        linger_seconds: float,
        max_line_bytes: int,
    ) -> None:
        self._source = source
        self._batch_bytes = batch_bytes
        self._max_line_bytes = max_line_bytes
        self._linger = min(linger_seconds, threading.TIMEOUT_MAX)
        # Bytes, None at the end of the input, the error of a read, or one of the events above.
        self._inbox: queue.SimpleQueue[bytes | _LingerOver | _Stop | Exception | None] = (
            queue.SimpleQueue()
        )
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._lines: list[bytes] = []
        self._size = 0
        self._next = 1
        self._timer: threading.Timer | None = None
        #: The end of a pipe that becomes readable when no more lines are wanted; None if the
        #: source cannot be waited for.
        self._stop_pipe: int | None = None

    def batches(self) -> Iterator[LineBatch]:
        """All lines in batches. The last line may lack its line end. Raises `LineTooLongError` as
        soon as a line is too long, after the batch of those before it."""
        threading.Thread(target=self._pump, daemon=True).start()
        read = _Lines()
        while True:
            event = self._inbox.get()
            if isinstance(event, Exception):
                raise click.ClickException(f"standard input cannot be read: {event}") from event
            if isinstance(event, bytes):
                self._room.release()
                self._add(read.whole(event))
                if read.begun_bytes > self._max_line_bytes:
                    yield from self._take()
                    raise LineTooLongError(
                        f"line {self._next} has more than {self._max_line_bytes} bytes, the most "
                        "that a line may have; store large values elsewhere, and append where they "
                        "are"
                    )
            elif event is None and read.begun_bytes:
                self._add([read.rest()])
            is_end = event is None or isinstance(event, _Stop)
            is_due = isinstance(event, _LingerOver) and event.first == self._next
            if is_end or is_due or self._size >= self._batch_bytes:
                yield from self._take()
            if is_end:
                return

    @contextmanager
    def stopped_by_signals(self) -> Iterator[Signals]:
        """The first Ctrl-C or SIGTERM ends the input, so that the lines read so far are still
        appended. A last line without its end is none of them."""
        if not _can_be_waited_for(self._source):
            with noting_signals(lambda: self._inbox.put(_Stop())) as signals:
                yield signals
            return
        self._stop_pipe, stop = os.pipe()
        try:
            with noting_signals(lambda: _write_byte(stop)) as signals:
                yield signals
        finally:
            os.close(stop)

    def _take(self) -> Iterator[LineBatch]:
        if self._timer is not None:
            self._timer.cancel()
        if self._lines:
            batch = LineBatch(self._next, self._lines)
            self._next += len(self._lines)
            self._lines, self._size = [], 0
            yield batch

    def _add(self, lines: list[bytes]) -> None:
        if lines and not self._lines:
            over = _LingerOver(self._next)
            self._timer = threading.Timer(self._linger, self._inbox.put, [over])
            self._timer.daemon = True
            self._timer.start()
        self._lines += lines
        self._size += sum(map(len, lines))

    def _pump(self) -> None:
        # An unbuffered read returns the available bytes, and holds no lock when the program ends.
        source = getattr(self._source, "raw", self._source)
        try:
            while self._may_read():
                chunk = source.read(_CHUNK_BYTES)
                if not chunk:
                    self._inbox.put(None)
                    return
                self._room.acquire()
                self._inbox.put(chunk)
            self._inbox.put(_Stop())
        except Exception as error:
            self._inbox.put(error)
        finally:
            if self._stop_pipe is not None:
                os.close(self._stop_pipe)

    def _may_read(self) -> bool:
        """Wait until a read does not block. False if no more lines are wanted."""
        stop = self._stop_pipe
        if stop is None:
            return True
        ready, _, _ = select.select([self._source.fileno(), stop], [], [])
        return stop not in ready


def _can_be_waited_for(source: IO[bytes]) -> bool:
    """True for files, pipes and terminals. Windows waits for sockets only."""
    try:
        return source.fileno() >= 0 and os.name != "nt"
    except OSError:  # it is in memory
        return False


def _write_byte(pipe: int) -> None:
    os.write(pipe, b"x")
