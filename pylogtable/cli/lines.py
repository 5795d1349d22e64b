"""Lines from standard input in batches: by size, or when the oldest has waited long enough."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Batch:
    """Whole lines without their ends; `first` is the number of the first, counted from 1."""

    first: int
    lines: list[bytes]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class LineReader:
    """Reads in a thread of its own, so that waiting for input does not keep lines waiting."""

    def __init__(self, source: IO[bytes], batch_bytes: int, linger_seconds: float) -> None:
        self._source = source
        self._batch_bytes = batch_bytes
        self._linger = linger_seconds
        # What comes in: bytes, None at the end, an error, or a timer for the lines it was set for.
        self._inbox: queue.Queue[bytes | int | Exception | None] = queue.Queue(maxsize=8)
        self._lines: list[bytes] = []
        self._size = 0
        self._next = 1
        self._timer: threading.Timer | None = None

    def batches(self) -> Iterator[Batch]:
        """The batches; the last line need not have an end."""
        threading.Thread(target=self._pump, daemon=True).start()
        rest = b""
        while True:
            came = self._inbox.get()
            if isinstance(came, Exception):
                raise came
            if isinstance(came, int):
                if came == self._next:
                    yield from self.take()
                continue
            if came is None:
                if rest:
                    self._add([rest])
                yield from self.take()
                return
            *whole, rest = (rest + came).split(b"\n")
            self._add(whole)
            if self._size >= self._batch_bytes:
                yield from self.take()

    def take(self) -> Iterator[Batch]:
        """What has been read and not handed out, as one batch."""
        if self._timer is not None:
            self._timer.cancel()
        if self._lines:
            batch = Batch(self._next, self._lines)
            self._next += len(self._lines)
            self._lines, self._size = [], 0
            yield batch

    def _add(self, lines: list[bytes]) -> None:
        if lines and not self._lines:
            self._timer = threading.Timer(self._linger, self._inbox.put, [self._next])
            self._timer.daemon = True
            self._timer.start()
        self._lines += lines
        self._size += sum(map(len, lines))

    def _pump(self) -> None:
        # Without a buffer a read gives what there is, and holds no lock at the program's end.
        source = getattr(self._source, "raw", self._source)
        try:
            while chunk := source.read(_CHUNK_BYTES):
                self._inbox.put(chunk)
            self._inbox.put(None)
        except Exception as error:
            self._inbox.put(error)
