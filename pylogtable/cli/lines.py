"""Lines from standard input in batches: by size, or when the oldest has waited long enough."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

_CHUNK_BYTES = 1 << 20
_CHUNKS_AHEAD = 8


@dataclass(frozen=True)
class Batch:
    """Whole lines without their ends; `first` is the number of the first, counted from 1."""

    first: int
    lines: list[bytes]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True)
class _Waited:
    """The lines from this one on have waited long enough."""

    first: int


class _Stop:
    """Nothing more is wanted."""


class LineReader:
    """Reads in a thread of its own, so that waiting for input does not keep lines waiting."""

    def __init__(self, source: IO[bytes], batch_bytes: int, linger_seconds: float) -> None:
        self._source = source
        self._batch_bytes = batch_bytes
        self._linger = linger_seconds
        # Bytes, None at the end, an error of reading, or what came in between.
        self._inbox: queue.SimpleQueue[bytes | _Waited | _Stop | Exception | None] = (
            queue.SimpleQueue()
        )
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._lines: list[bytes] = []
        self._size = 0
        self._next = 1
        self._timer: threading.Timer | None = None
        self.is_stopped = False

    def batches(self) -> Iterator[Batch]:
        """The batches; the last line need not have an end."""
        threading.Thread(target=self._pump, daemon=True).start()
        rest = b""
        while True:
            came = self._inbox.get()
            if isinstance(came, Exception):
                raise came
            if isinstance(came, bytes):
                self._room.release()
                *whole, rest = (rest + came).split(b"\n")
                self._add(whole)
            elif came is None and rest:
                self._add([rest])
            if (
                came is None
                or isinstance(came, _Stop)
                or (isinstance(came, _Waited) and came.first == self._next)
                or self._size >= self._batch_bytes
            ):
                yield from self._take()
            if came is None or isinstance(came, _Stop):
                return

    @contextmanager
    def stopped_by_ctrl_c(self) -> Iterator[None]:
        """Within this Ctrl-C ends the input, not what is being done with it; a second one does."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(*_: Any) -> None:
            self.is_stopped = True
            self._inbox.put(_Stop())
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _take(self) -> Iterator[Batch]:
        if self._timer is not None:
            self._timer.cancel()
        if self._lines:
            batch = Batch(self._next, self._lines)
            self._next += len(self._lines)
            self._lines, self._size = [], 0
            yield batch

    def _add(self, lines: list[bytes]) -> None:
        if lines and not self._lines:
            self._timer = threading.Timer(self._linger, self._inbox.put, [_Waited(self._next)])
            self._timer.daemon = True
            self._timer.start()
        self._lines += lines
        self._size += sum(map(len, lines))

    def _pump(self) -> None:
        # Without a buffer a read gives what there is, and holds no lock at the program's end.
        source = getattr(self._source, "raw", self._source)
        try:
            while chunk := source.read(_CHUNK_BYTES):
                self._room.acquire()
                self._inbox.put(chunk)
            self._inbox.put(None)
        except Exception as error:
            self._inbox.put(error)
