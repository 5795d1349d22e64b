"""SentRecords that wait for their commit: the batch they are in, and their futures.

A batch has one event for all of its records, and a future is just a place in it: one object per
record is all that a producer can afford.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event, Lock
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.shaping import Int32s
from pylogtable.format.times import from_us
from pylogtable.write.records import (
    BatchMetadata,
    RecordMetadata,
    RecordShape,
    RecordTuple,
    offsets_in_order,
    ranges_of,
)

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


@dataclass(slots=True)
class SentRecords:
    """SentRecords of one shape that were sent one after the other."""

    shape: RecordShape
    rows: list[RecordTuple] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def parts(self) -> int:
        """How many there are that can fail each for itself."""
        return len(self.rows)

    def take(self, start: int, end: int) -> Sequence[pa.RecordBatch]:
        return [self.shape.batch(self.rows[start:end])]


@dataclass(slots=True)
class SentTable:
    """A table that was sent as it is, and fails as a whole."""

    table: pa.Table

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    @property
    def parts(self) -> int:
        return 1

    def take(self, start: int, end: int) -> Sequence[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = self.table.to_batches()
        return batches


@dataclass
class Delivered:
    """Where the rows of a batch went. `kept` has the rows that were good enough, by their place
    in the batch, where not all were; `times_us` those times that were not the append's."""

    version: int
    partitions: Int32s
    bases: dict[int, int]
    now_us: int
    times_us: npt.NDArray[np.int64] | None
    kept: npt.NDArray[np.int64] | None
    errors: dict[int, Exception]

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        return offsets_in_order(self.partitions, self.bases)

    def record(self, row: int) -> RecordMetadata:
        at = self._at(row)
        us = self.now_us if self.times_us is None else int(self.times_us[at])
        return RecordMetadata(int(self.partitions[at]), int(self.offsets[at]), from_us(us))

    def rows(self, row: int, count: int) -> BatchMetadata:
        at = self._at(row)
        mine = slice(at, at + count)
        offsets = ranges_of(self.partitions[mine], self.offsets[mine])
        return BatchMetadata(self.version, offsets, count)

    def _at(self, row: int) -> int:
        return row if self.kept is None else int(np.searchsorted(self.kept, row))


class ProducerBatch:
    """What goes into one commit, in the order it was sent."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[SentRecords | SentTable] = []
        self.tail: SentRecords | None = None  # the last piece, if it takes more records
        self.count = 0
        self.size = 0
        self.born = 0.0
        self._settled = Event()
        self._lock = Lock()
        self._callbacks: list[tuple[SendFuture[Any], Callable[[SendFuture[Any]], object]]] = []
        self._outcome: Delivered | BaseException | None = None

    def settle(self, outcome: Delivered | BaseException) -> None:
        """Tell everybody who waits what became of the records, and let go of these."""
        self.sent = []
        self.tail = None
        with self._lock:
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        self._settled.set()
        for pending, callback in callbacks:
            _call(callback, pending)

    def when_settled(
        self, pending: SendFuture[Any], callback: Callable[[SendFuture[Any]], object]
    ) -> None:
        with self._lock:
            if self._outcome is None:
                self._callbacks.append((pending, callback))
                return
        _call(callback, pending)

    @property
    def is_settled(self) -> bool:
        return self._outcome is not None

    def outcome(self, timeout: float | None) -> Delivered | BaseException:
        if not self._settled.wait(timeout):
            raise FutureTimeoutError
        assert self._outcome is not None
        return self._outcome


class SendFuture(Generic[Value]):
    """The future of something that was sent: like `concurrent.futures.Future`, as far as something
    that is not to be cancelled can be."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: ProducerBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    def done(self) -> bool:
        return self._batch.is_settled

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, once it is known; None if nothing did."""
        outcome = self._batch.outcome(timeout)
        return self._error(outcome) if isinstance(outcome, Delivered) else outcome

    def result(self, timeout: float | None = None) -> Value:
        """Where it is in the log, as soon as it is there for good. Raises what went wrong, and
        `concurrent.futures.TimeoutError` after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        outcome = self._batch.outcome(timeout)
        assert isinstance(outcome, Delivered)
        return self._value(outcome)

    def add_done_callback(self, callback: Callable[[SendFuture[Value]], object]) -> None:
        """Call `callback(self)` when it is done, in the producer's thread, or now if it is."""
        self._batch.when_settled(self, callback)

    def _error(self, delivered: Delivered) -> BaseException | None:
        return delivered.errors.get(self._row)

    def _value(self, delivered: Delivered) -> Value:
        raise NotImplementedError

    def __repr__(self) -> str:
        if not self.done():
            return f"<{type(self).__name__} waiting>"
        return f"<{type(self).__name__} {self.exception() or self.result()}>"


class RecordFuture(SendFuture[RecordMetadata]):
    __slots__ = ()

    def _value(self, delivered: Delivered) -> RecordMetadata:
        return delivered.record(self._row)


class BatchFuture(SendFuture[BatchMetadata]):
    __slots__ = ("_count",)

    def __init__(self, batch: ProducerBatch, row: int, count: int) -> None:
        super().__init__(batch, row)
        self._count = count

    def _error(self, delivered: Delivered) -> BaseException | None:
        # A table without rows has no place of its own: it is the next one's.
        return super()._error(delivered) if self._count else None

    def _value(self, delivered: Delivered) -> BatchMetadata:
        return delivered.rows(self._row, self._count)


def _call(callback: Callable[[SendFuture[Any]], object], pending: SendFuture[Any]) -> None:
    try:
        callback(pending)
    except Exception:
        _log.exception("a callback of %r failed", pending)
