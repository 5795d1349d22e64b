"""Records that wait for their commit: the batch they are in, and their futures.

A producer can afford only one object per record. So a batch has one event for all of its records,
and a future is just a position in the batch.
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

from pylogtable.append.records import (
    BatchMetadata,
    RecordMetadata,
    RecordShape,
    RecordTuple,
    offsets_in_order,
    ranges_of,
)
from pylogtable.append.shaping import Int32s
from pylogtable.times import from_us

_logger = logging.getLogger(__name__)

Value = TypeVar("Value")

MOST_UNSEEN = 1000


@dataclass(slots=True)
class SentRecords:
    """Consecutive records that were sent one by one. Each record is an item of its own: it is
    accepted or refused independently of the others."""

    shape: RecordShape
    records: list[RecordTuple] = field(default_factory=list)

    @property
    def record_count(self) -> int:
        return len(self.records)

    @property
    def item_count(self) -> int:
        return len(self.records)

    def to_arrow(self, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """The items from `start` to `end` as Arrow."""
        return [self.shape.batch(self.records[start:end])]


@dataclass(slots=True)
class SentTable:
    """A table that was sent with `send_batch`. It is one item: all of its rows are accepted or
    refused together."""

    table: pa.Table

    @property
    def record_count(self) -> int:
        return int(self.table.num_rows)

    @property
    def item_count(self) -> int:
        return 1

    def to_arrow(self, start: int, end: int) -> Sequence[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = self.table.to_batches()
        return batches


@dataclass
class Delivered:
    """Where the records of a batch went.

    `partitions` and `times_us` have a value for each appended record; without `times_us` all have
    the time of the append, `now_us`. `accepted` has the positions in the batch of the appended
    records, and is None if all were appended. `errors` has the error of each refused position.
    """

    version: int
    partitions: Int32s
    first_offsets: dict[int, int]
    now_us: int
    times_us: npt.NDArray[np.int64] | None
    accepted: npt.NDArray[np.int64] | None
    errors: dict[int, Exception]

    @property
    def records(self) -> int:
        """How many records were appended."""
        return len(self.partitions)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        return offsets_in_order(self.partitions, self.first_offsets)

    def record(self, position: int) -> RecordMetadata:
        """The record at this position of the batch."""
        at = self._index(position)
        us = self.now_us if self.times_us is None else int(self.times_us[at])
        return RecordMetadata(int(self.partitions[at]), int(self.offsets[at]), from_us(us))

    def table(self, position: int, count: int) -> BatchMetadata:
        """The table of `count` rows that begins at this position of the batch."""
        at = self._index(position)
        mine = slice(at, at + count)
        offsets = ranges_of(self.partitions[mine], self.offsets[mine])
        return BatchMetadata(self.version, offsets, count)

    def _index(self, position: int) -> int:
        if self.accepted is None:
            return position
        return int(np.searchsorted(self.accepted, position))


class UnseenErrors:
    """Errors of a producer that no future has given to a caller yet. `flush` and `close` raise the
    first of them. Only the first `MOST_UNSEEN` are kept."""

    def __init__(self) -> None:
        self._errors: dict[int, BaseException] = {}  # by identity, in order

    def add(self, error: BaseException) -> None:
        if len(self._errors) < MOST_UNSEEN:
            self._errors.setdefault(id(error), error)

    def see(self, error: BaseException) -> None:
        """Forget an error, because a caller has got it."""
        self._errors.pop(id(error), None)

    def take(self) -> BaseException | None:
        """Forget all, and return the first."""
        errors, self._errors = self._errors, {}
        return next(iter(errors.values()), None)


class ProducerBatch:
    """What a producer puts into one commit, in the order it was sent."""

    def __init__(self, number: int, unseen: UnseenErrors) -> None:
        self.number = number
        self.unseen = unseen
        self.sent: list[SentRecords | SentTable] = []
        self.tail: SentRecords | None = None  # the last of `sent`, if it can take more records
        self.record_count = 0
        self.size_bytes = 0
        self.began = 0.0  # when its first record was sent
        self._settled = Event()
        self._lock = Lock()
        self._callbacks: list[tuple[SendFuture[Any], Callable[[SendFuture[Any]], object]]] = []
        self._outcome: Delivered | BaseException | None = None

    def settle(self, outcome: Delivered | BaseException) -> None:
        """Wake all threads that wait for the outcome, and free the records."""
        for error in outcome.errors.values() if isinstance(outcome, Delivered) else [outcome]:
            self.unseen.add(error)
        self.sent = []
        self.tail = None
        with self._lock:
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
        self._settled.set()
        for future, callback in callbacks:
            _call(callback, future)

    def when_settled(
        self, future: SendFuture[Any], callback: Callable[[SendFuture[Any]], object]
    ) -> None:
        with self._lock:
            if self._outcome is None:
                self._callbacks.append((future, callback))
                return
        _call(callback, future)

    @property
    def is_settled(self) -> bool:
        return self._outcome is not None

    def outcome(self, timeout: float | None) -> Delivered | BaseException:
        if not self._settled.wait(timeout):
            raise FutureTimeoutError
        assert self._outcome is not None
        return self._outcome


class SendFuture(Generic[Value]):
    """The future of something that was sent. It works like `concurrent.futures.Future`, but it
    cannot be cancelled."""

    __slots__ = ("_batch", "_position")

    def __init__(self, batch: ProducerBatch, position: int) -> None:
        self._batch = batch
        self._position = position

    def done(self) -> bool:
        """True once the outcome is known."""
        return self._batch.is_settled

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome: the error, or None if the append succeeded. `flush` and `close` do
        not raise this error any more."""
        error = self._failure(timeout)
        if error is not None:
            self._batch.unseen.see(error)
        return error

    def _failure(self, timeout: float | None) -> BaseException | None:
        outcome = self._batch.outcome(timeout)
        return self._error(outcome) if isinstance(outcome, Delivered) else outcome

    def result(self, timeout: float | None = None) -> Value:
        """Wait for the commit, and return the place in the log. Raises the error if the append
        failed, and `concurrent.futures.TimeoutError` after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        outcome = self._batch.outcome(timeout)
        assert isinstance(outcome, Delivered)
        return self._value(outcome)

    def add_done_callback(self, callback: Callable[[SendFuture[Value]], object]) -> None:
        """Call `callback(self)` when it is done, in the producer's thread. If it is done already,
        call it now."""
        self._batch.when_settled(self, callback)

    def _error(self, delivered: Delivered) -> BaseException | None:
        return delivered.errors.get(self._position)

    def _value(self, delivered: Delivered) -> Value:
        raise NotImplementedError

    def __repr__(self) -> str:
        if not self.done():
            return f"<{type(self).__name__} waiting>"
        return f"<{type(self).__name__} {self._failure(None) or self.result()}>"


class RecordFuture(SendFuture[RecordMetadata]):
    """What `Producer.send` returns.

    >>> producer.send(key=b"k", value=b"v").result().offset
    """

    __slots__ = ()

    def _value(self, delivered: Delivered) -> RecordMetadata:
        return delivered.record(self._position)


class BatchFuture(SendFuture[BatchMetadata]):
    """What `Producer.send_batch` returns.

    >>> producer.send_batch(table).result().offsets
    """

    __slots__ = ("_count",)

    def __init__(self, batch: ProducerBatch, position: int, count: int) -> None:
        super().__init__(batch, position)
        self._count = count

    def _error(self, delivered: Delivered) -> BaseException | None:
        # An empty table has no position of its own: its position belongs to the next item.
        return super()._error(delivered) if self._count else None

    def _value(self, delivered: Delivered) -> BatchMetadata:
        return delivered.table(self._position, self._count)


def _call(callback: Callable[[SendFuture[Any]], object], future: SendFuture[Any]) -> None:
    try:
        callback(future)
    except BaseException:  # also `sys.exit()`: it would end the producer's thread, unseen
        _logger.exception("a callback of %r failed", future)
