"""Records that wait for their commit: the batch they are in, and their futures.

A producer can afford only one object per record. So a batch has one condition for all of its
records, and a future is just a position in the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures._base import FINISHED, RUNNING
from dataclasses import dataclass, field
from functools import cached_property
from threading import Condition, Thread, current_thread
from typing import Any, TypeVar

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
from pylogtable.errors import InvalidRequestError
from pylogtable.times import from_us

_logger = logging.getLogger(__name__)

Value = TypeVar("Value")
#: Called with a future that is done.
Callback = Callable[[Any], object]
#: Called with the error or None, and with the place in the log or None.
OnDelivery = Callable[[BaseException | None, Any], object]

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
class SentPairs:
    """Consecutive records that have a key and a value and nothing else, as two columns. So a record
    is no object of its own, which the garbage collector would look at."""

    shape: RecordShape
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    @property
    def record_count(self) -> int:
        return len(self.keys)

    @property
    def item_count(self) -> int:
        return len(self.keys)

    def to_arrow(self, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """The items from `start` to `end` as Arrow."""
        return [self.shape.pairs(self.keys[start:end], self.values[start:end])]

    def as_records(self) -> SentRecords:
        """The same records, with room for more than a key and a value."""
        pairs = zip(self.keys, self.values, strict=True)
        return SentRecords(self.shape, [(key, value, None, None, None) for key, value in pairs])


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


Sent = SentPairs | SentRecords | SentTable


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

    def __init__(self, number: int, unseen: UnseenErrors, thread: Thread) -> None:
        self.number = number
        self._thread = thread  # the one that settles it
        self.unseen = unseen
        self.sent: list[Sent] = []
        #: The last of `sent`, if it can take more records.
        self.tail: SentPairs | SentRecords | None = None
        self.record_count = 0
        self.size_bytes = 0
        self.began = 0.0  # when its first record was sent
        #: The one of all futures of the batch. Held again and again by one thread that waits for
        #: several futures: `Condition` allows that.
        self.condition = Condition()
        self._callbacks: list[tuple[SendFuture[Any], Callback]] = []
        self._waiters: dict[SendFuture[Any], list[Any]] = {}
        self._outcome: Delivered | BaseException | None = None

    def add(self, shape: RecordShape, record: RecordTuple) -> SentRecords | None:
        """Take one more record. Returns what it begins, unless it continues the tail."""
        tail = self.tail
        if tail is None or tail.shape is not shape:
            self.tail = begun = SentRecords(shape, [record])
            return begun
        if isinstance(tail, SentPairs):
            # As long as the batch is open, it stays so. Else each change would begin a new batch
            # of Arrow.
            tail = self.tail = self.sent[-1] = tail.as_records()
        tail.records.append(record)
        return None

    def settle(self, outcome: Delivered | BaseException) -> None:
        """Wake all threads that wait for the outcome, and free the records."""
        for error in outcome.errors.values() if isinstance(outcome, Delivered) else [outcome]:
            self.unseen.add(error)
        self.sent = []
        self.tail = None
        with self.condition:
            self._outcome = outcome
            callbacks, self._callbacks = self._callbacks, []
            for future, waiters in self._waiters.items():
                for waiter in waiters:
                    if future.failure(outcome) is None:
                        waiter.add_result(future)
                    else:
                        waiter.add_exception(future)
            self.condition.notify_all()
        for future, callback in callbacks:
            _call(callback, future)

    def when_settled(self, future: SendFuture[Any], callback: Callback) -> None:
        """Call `callback(future)` once it is settled: in the producer's thread, or now."""
        with self.condition:
            if self._outcome is None:
                self._callbacks.append((future, callback))
                return
        _call(callback, future)

    def waiters(self, future: SendFuture[Any]) -> list[Any]:
        """Who waits for this future in `concurrent.futures.wait` or `as_completed`."""
        self.check_can_wait()
        return self._waiters.setdefault(future, [])

    @property
    def is_settled(self) -> bool:
        return self._outcome is not None

    def check_can_wait(self) -> None:
        """Raise if the outcome is not known and this is the thread that brings it."""
        if self._outcome is None and current_thread() is self._thread:
            raise InvalidRequestError(
                "a callback cannot wait for a record that is not committed yet, in result() or "
                "otherwise: it would wait for itself forever. Give that record a callback of its "
                "own: send(..., on_delivery=...)"
            )

    def outcome(self, timeout: float | None) -> Delivered | BaseException:
        if self._outcome is None:
            self.check_can_wait()
            with self.condition:
                self.condition.wait_for(lambda: self._outcome is not None, timeout)
        if self._outcome is None:
            raise FutureTimeoutError
        return self._outcome


class SendFuture(Future[Value]):
    """The future of something that was sent. It works wherever a `concurrent.futures.Future` does,
    but it cannot be cancelled. It can also be awaited: `await producer.send(...)`.

    Of the base class it has the type and nothing else: a lock and a state for each record would
    cost more than the record.
    """

    __slots__ = ("_batch", "_position")

    def __init__(self, batch: ProducerBatch, position: int) -> None:
        self._batch = batch
        self._position = position

    def done(self) -> bool:
        """True once the outcome is known."""
        return self._batch.is_settled

    def running(self) -> bool:
        """True until the outcome is known: what was sent cannot be taken back."""
        return not self._batch.is_settled

    def cancel(self) -> bool:
        """False: what was sent cannot be taken back. If a task that awaits it is cancelled, the
        record is appended anyway."""
        return False

    def cancelled(self) -> bool:
        """False."""
        return False

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the outcome: the error, or None if the append succeeded. `flush` and `close` do
        not raise this error any more."""
        error = self.failure(self._batch.outcome(timeout))
        if error is not None:
            self._batch.unseen.see(error)
        return error

    def result(self, timeout: float | None = None) -> Value:
        """Wait for the commit, and return the place in the log. Raises the error if the append
        failed, and `concurrent.futures.TimeoutError` after `timeout` seconds. In a callback of the
        producer, a record that is not committed yet raises `InvalidRequestError`: nobody would
        commit it."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        outcome = self._batch.outcome(timeout)
        assert isinstance(outcome, Delivered)
        return self._value(outcome)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call `fn(self)` when it is done, in the producer's thread. If it is done already, call it
        now."""
        self._batch.when_settled(self, fn)

    def __await__(self) -> Generator[Any, None, Value]:
        """Wait for the commit in a running event loop; returns and raises what `result` does."""
        from asyncio import wrap_future

        self._batch.check_can_wait()
        return wrap_future(self).__await__()

    def failure(self, outcome: Delivered | BaseException) -> BaseException | None:
        """The error of this future, if this is the outcome of its batch."""
        return self._error(outcome) if isinstance(outcome, Delivered) else outcome

    # What `concurrent.futures.wait` and `as_completed` use, and asyncio from Python 3.14 on.

    @property
    def _condition(self) -> Condition:  # type: ignore[override]
        return self._batch.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        return FINISHED if self._batch.is_settled else RUNNING

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._batch.waiters(self)

    def _get_snapshot(self) -> tuple[bool, bool, Value | None, BaseException | None]:
        if not self.done():
            return False, False, None, None
        error = self.exception()
        return True, False, None if error is not None else self.result(), error

    def _error(self, delivered: Delivered) -> BaseException | None:
        return delivered.errors.get(self._position)

    def _value(self, delivered: Delivered) -> Value:
        raise NotImplementedError

    def __repr__(self) -> str:
        if not self.done():
            return f"<{type(self).__name__} waiting>"
        return f"<{type(self).__name__} {self.failure(self._batch.outcome(0)) or self.result()}>"


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


def telling(on_delivery: OnDelivery) -> Callback:
    """The callback of a future that tells the error, or the place in the log."""

    def tell(future: SendFuture[Any]) -> None:
        error = future.exception()
        on_delivery(error, None if error is not None else future.result())

    return tell


def _call(callback: Callback, future: SendFuture[Any]) -> None:
    try:
        callback(future)
    except BaseException:  # also `sys.exit()`: it would end the producer's thread, unseen
        _logger.exception("a callback of %r failed", future)
