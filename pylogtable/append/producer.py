"""Sending records one by one from many threads; one thread commits them in batches.

A batch is committed as one append when `linger_ms` have passed since its first record, when it has
`batch_bytes`, or when `flush` is called. Meanwhile the next batch fills up. If that one is full
too, senders wait, so that no more than two batches are in memory.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Lock, Thread, current_thread
from typing import Any, NoReturn

import pyarrow as pa

from pylogtable.append.appender import Appender
from pylogtable.append.delivery import Delivery
from pylogtable.append.given_rows import batches_of
from pylogtable.append.producer_batch import (
    BatchFuture,
    Delivered,
    OnDelivery,
    ProducerBatch,
    RecordFuture,
    Sent,
    SentPairs,
    SentTable,
    UnseenErrors,
    telling,
)
from pylogtable.append.records import OVERHEAD_BYTES, RecordShape, RecordTuple
from pylogtable.append.shaping import RowShaper
from pylogtable.arguments import check_number
from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.lazy_arrow import load_arrow
from pylogtable.operation import Closing, new_operation
from pylogtable.times import Moment, from_us, to_us

MAX_BATCH_BYTES = 1 << 30
MAX_LINGER_MS = 86_400_000

_PLAIN = frozenset({bytes, str, type(None)})


class _Process:
    """Which process this is. To look here for each record costs a tenth of `os.getpid()`."""

    mark = object()


def _after_fork() -> None:
    _Process.mark = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Producer(Closing):
    """Sends records one by one, from any number of threads; made by `topic.producer()`.

    >>> with topic.producer() as producer:
    ...     future = producer.send(key=b"k", value=b"v")

    Close it, or use it as a context manager. Otherwise records that still wait are lost when the
    process ends.

    With an `app_id` the producer counts its records in the log, and goes on counting after a
    restart: `sequence` is the number of records that need not be sent again. Therefore the first
    refused record ends the producer, and it refuses all later ones. Only one producer may use an
    app id at a time. If two do, the first to commit continues, and the other gets a
    `CommitConflictError`. One of the two may be an earlier run that was still writing.
    """

    def __init__(
        self,
        appender: Appender,
        linger_ms: float,
        batch_bytes: int,
        app_id: str | None,
    ) -> None:
        is_number = isinstance(linger_ms, int | float) and not isinstance(linger_ms, bool)
        if not is_number or not 0 <= linger_ms <= MAX_LINGER_MS:
            raise InvalidRequestError(
                f"linger_ms must be from 0 to {MAX_LINGER_MS}, a day, not {linger_ms!r}"
            )
        check_number("batch_bytes", batch_bytes, least=1)
        if batch_bytes > MAX_BATCH_BYTES:
            raise InvalidRequestError(
                f"batch_bytes must be from 1 to {MAX_BATCH_BYTES}, not {batch_bytes!r}"
            )
        self.topic_name = appender.name
        self.app_id = app_id
        self._log = log = appender.log
        self._linger = linger_ms / 1000
        self._batch_bytes = batch_bytes
        self._delivery = Delivery(appender, app_id)
        self._shape = RecordShape(log.known.info)
        self._lock = Lock()
        self._work = Condition(self._lock)
        self._progress = Condition(self._lock)
        self._unseen = UnseenErrors()
        self._settled = 0
        self._urgent = 0
        self._broken: BaseException | None = None
        self._refused: InvalidRequestError | None = None
        self._closing = False
        self._owner = _Process.mark
        self._was_silent = False
        self._is_ended = False  # closing, broken, or a record was refused
        self._thread = Thread(target=self._run, name=f"producer of {self.topic_name}", daemon=True)
        self._open = ProducerBatch(1, self._unseen, self._thread)
        self._thread.start()

    def __repr__(self) -> str:
        state = "closed" if self._closing else "open"
        return f"<Producer of topic {self.topic_name!r}, {state}>"

    @property
    def sequence(self) -> int | None:
        """How many records of this app id are in the log: those before this producer was opened,
        and those it has committed since. None without an app id."""
        return None if self.app_id is None else self._delivery.sequence

    def send(
        self,
        *given: NoReturn,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp: Moment | None = None,
        on_delivery: OnDelivery | None = None,
        **columns: Any,
    ) -> RecordFuture:
        """Send one record: `key` and `value` as bytes or text, or the topic's columns by name.
        Columns that are not named are null. The future gives partition, offset and timestamp.

        Headers are pairs of a name and bytes, or a dict. A number is milliseconds, as `timestamp`
        and for a column of times. Obvious mistakes raise at once. Other mistakes fail the
        future of the record; without an app id, they affect no other record. Waits while two
        batches are full.

        `on_delivery(error, metadata)` is called once the outcome is known, always in the producer's
        thread. One of the two is None. Keep it short: the next batch waits for it. It may send, but
        not wait for that. A record that is refused at once has no delivery.
        """
        if self._owner is not _Process.mark:
            self._refuse_in_child()
        if given:
            self._refuse_positional(given)
        shape = self._shape
        record: RecordTuple | None = None
        if (
            shape.is_kafka_row
            and type(key) in _PLAIN
            and type(value) in _PLAIN
            and not columns
            and headers is None
            and partition is None
            and timestamp is None
        ):
            size = OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        else:
            columns.update(key=key, value=value, headers=headers)
            with self._ending_if_refused():
                shape, record, size = self._shaped(columns, partition, timestamp)
        with self._lock:
            batch = self._open
            if self._is_ended or batch.size_bytes >= self._batch_bytes:
                batch = self._admit()
            tail = batch.tail
            if record is None and type(tail) is SentPairs and tail.shape is shape:
                tail.keys.append(key)
                tail.values.append(value)
            elif tail is None and record is None:
                batch.tail = SentPairs(shape, [key], [value])
                self._start(batch, batch.tail)
            elif (begun := batch.add(shape, record or (key, value, None, None, None))) is not None:
                self._start(batch, begun)
            future = RecordFuture(batch, batch.record_count)
            batch.record_count += 1
            batch.size_bytes += size
            if on_delivery is not None:
                batch.when_settled(future, telling(on_delivery))
            if batch.size_bytes >= self._batch_bytes:
                self._work.notify()
        return future

    def send_batch(self, data: Any, *, on_delivery: OnDelivery | None = None) -> BatchFuture:
        """Send many records at once, in any form that `topic.append` takes. Columns that do not fit
        raise at once. A bad row fails the future of its table; without an app id, it affects no
        other record. `on_delivery` is called as by `send`, once for the table."""
        self._refuse_in_child()
        with self._ending_if_refused():
            table = self._table(data)
        with self._lock:
            batch = self._admit()
            batch.tail = None
            self._start(batch, SentTable(table))
            future = BatchFuture(batch, batch.record_count, table.num_rows)
            batch.record_count += table.num_rows
            batch.size_bytes += table.nbytes + OVERHEAD_BYTES
            if on_delivery is not None:
                batch.when_settled(future, telling(on_delivery))
            if batch.size_bytes >= self._batch_bytes:
                self._work.notify()
        return future

    def flush(self) -> None:
        """Wait until everything that was sent so far is committed. Raises the first error since
        the last flush, if there was one that no future has given to a caller."""
        self._refuse_in_callback()
        with self._lock:
            wanted = self._open.number if self._open.sent else self._open.number - 1
            self._urgent = max(self._urgent, wanted)
            self._work.notify()
            while self._settled < wanted:
                self._progress.wait()
            error = self._unseen.take()
        if error is not None:
            raise error

    def close(self) -> None:
        """Flush, and refuse further records. Raises what `flush` would."""
        self._refuse_in_callback()
        with self._lock:
            self._closing = self._is_ended = True
            self._work.notify()
            self._progress.notify_all()
        self._thread.join()
        error = self._unseen.take()
        if error is not None:
            raise error

    def _shaped(
        self, columns: dict[str, Any], partition: int | None, timestamp: Moment | None
    ) -> tuple[RecordShape, RecordTuple, int]:
        time_us = None if timestamp is None else _microseconds(timestamp)
        shape = self._shape
        try:
            return (shape, *shape.record(columns, partition, time_us))
        except InvalidRequestError:
            # The topic may have more columns or partitions by now.
            info = self._log.latest().info
            if info == shape.topic:
                raise
            self._shape = shape = RecordShape(info)
            return (shape, *shape.record(columns, partition, time_us))

    @contextmanager
    def _ending_if_refused(self) -> Iterator[None]:
        """With an app id, end after a refused record: the next record would get its number."""
        try:
            yield
        except InvalidRequestError as error:
            if self.app_id is not None:
                with self._lock:
                    self._refused = self._refused or error
                    self._is_ended = True
            raise

    def _table(self, data: Any) -> pa.Table:
        batches = list(batches_of(data))
        if not batches:
            return pa.table({})
        for schema in {batch.schema for batch in batches}:
            self._check_columns(schema)
        try:
            return pa.Table.from_batches(batches)
        except pa.ArrowInvalid as error:
            raise SchemaMismatchError(f"the batches have different columns: {error}") from None

    def _check_columns(self, schema: pa.Schema) -> None:
        info = self._log.known.info
        try:
            RowShaper(info, 0, 0).check_columns(schema)
        except SchemaMismatchError:
            newest = self._log.latest().info
            if newest == info:
                raise
            RowShaper(newest, 0, 0).check_columns(schema)

    def _admit(self) -> ProducerBatch:
        """Wait until there is room, and return the batch for the next record. The caller must hold
        the lock."""
        while True:
            if (why := self._broken or self._refused) is not None:
                raise InvalidRequestError(
                    f"this producer takes no more records, because earlier ones failed: {why}. "
                    "Open a new one, and continue from its `sequence`"
                ) from why
            if self._closing:
                raise InvalidRequestError(f"the producer of {self.topic_name!r} is closed")
            if self._open.size_bytes < self._batch_bytes or current_thread() is self._thread:
                return self._open
            self._progress.wait()

    def _refuse_in_child(self) -> None:
        """The thread that appends does not exist in a forked process: records would be lost."""
        if self._owner is not _Process.mark:
            raise InvalidRequestError(
                f"this producer of {self.topic_name!r} was opened in another process, which this "
                "one was forked from; open one here"
            )

    def _refuse_positional(self, given: Sequence[object]) -> None:
        with self._ending_if_refused():
            raise InvalidRequestError(
                f"send({', '.join(f'{one!r:.40}' for one in given)}): name each argument, as in "
                "send(key=b'k', value=b'v'). This producer belongs to one topic, "
                f"{self.topic_name!r}, so send takes no topic; store.topic(name).producer() gives "
                "the producer of another one"
            )

    def _refuse_in_callback(self) -> None:
        self._refuse_in_child()
        if current_thread() is self._thread:
            raise InvalidRequestError(
                "a callback cannot call flush() or close(): it would wait for itself forever"
            )

    def _start(self, batch: ProducerBatch, sent: Sent) -> None:
        if not batch.sent:
            batch.began = self._log.runtime.monotonic()
            self._work.notify()
        batch.sent.append(sent)

    def _run(self) -> None:
        load_arrow()
        with self._log.later_roots.wanted():
            self._append_batches()

    def _append_batches(self) -> None:
        while (batch := self._next()) is not None:
            outcome: Delivered | BaseException
            try:
                if self._broken is not None:
                    raise self._broken
                outcome = self._deliver(batch)
                error = next(iter(outcome.errors.values()), None)
                if error is not None and self.app_id is not None:
                    self._broken = error
                    self._is_ended = True
            except BaseException as raised:
                # There is no caller to raise to: the futures and the next flush raise it.
                outcome = raised
                is_final = self.app_id is not None or not isinstance(raised, Exception)
                if is_final and self._broken is None:
                    self._broken = raised
                    self._is_ended = True
            batch.settle(outcome)
            with self._lock:
                self._settled = batch.number
                self._progress.notify_all()

    def _deliver(self, batch: ProducerBatch) -> Delivered:
        """Append a batch. After one that ended because the store was silent, the next gets the time
        of one request only: whoever waits in `flush` waits for both."""
        reply_seconds = self._log.store.limits.reply_seconds
        with new_operation(reply_seconds if self._was_silent else math.inf) as operation:
            try:
                return self._delivery.deliver(batch)
            finally:
                self._was_silent = operation.has_given_up

    def _next(self) -> ProducerBatch | None:
        """Wait until a batch is due, and return it; None when the producer is closed."""
        lingered = False
        with self._lock:
            while True:
                batch = self._open
                if batch.sent:
                    left = self._linger - (self._log.runtime.monotonic() - batch.began)
                    is_due = batch.size_bytes >= self._batch_bytes or batch.number <= self._urgent
                    if lingered or left <= 0 or is_due or self._closing:
                        self._open = ProducerBatch(batch.number + 1, self._unseen, self._thread)
                        self._progress.notify_all()
                        return batch
                    lingered = not self._work.wait(left)
                elif self._closing:
                    return None
                else:
                    self._work.wait()


def _microseconds(timestamp: Moment) -> int:
    us = to_us(timestamp)
    try:
        from_us(us)
    except OverflowError:
        raise InvalidRequestError(
            f"the timestamp {timestamp} is outside the years 1 to 9999; give milliseconds"
        ) from None
    return us
