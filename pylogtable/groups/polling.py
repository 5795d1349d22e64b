"""Waiting for records: `poll`, iteration and their asynchronous forms, over what is there now.

A batch counts as delivered when it is returned. With `records` it is delivered record by record,
and in asynchronous code it is given back if the code that waited for it was cancelled. What is not
delivered is not committed, and comes again with the next poll.
"""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from pylogtable.groups.delivery import Batch
from pylogtable.groups.errand import Errand
from pylogtable.groups.one_thread import Turn, in_turn
from pylogtable.groups.options import check_count, check_timeout
from pylogtable.groups.records import Records
from pylogtable.operation import Closing, operations
from pylogtable.runtime import Runtime
from pylogtable.storage.waiting import Place, async_wait_for_any, wait_for_any

# The first wait for new records. It doubles each time there are none, up to the member's limit.
FIRST_PAUSE_SECONDS = 0.01

Result = TypeVar("Result")


@operations
class Polling(Closing):
    """What consumers of one topic and of many have in common."""

    _runtime: Runtime
    _max_records: int
    _follow: bool
    _is_closed: bool
    _errand: Errand[Any] | None = None
    #: None in a consumer that is one of several of another.
    _turn: Turn | None

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield batches up to the end of the log, or forever with `follow=True`."""
        for batch in self._batches():
            yield self._shown(batch)

    async def __aiter__(self) -> AsyncIterator[pa.Table]:
        """The same for `async for`."""
        async for batch in self._abatches():
            yield self._shown(batch)

    def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> pa.Table:
        """The next records, at most `max_records`. They are in offset order inside each partition,
        and taken evenly from all partitions that have some. No record is skipped.

        If there are none, it waits up to `timeout` seconds and returns an empty table. Without a
        timeout it returns at once, or waits for a record if the consumer was made with
        `follow=True`. If the store does not answer, it raises after the timeout and the time of one
        request.
        """
        return self._shown(self._poll(timeout, max_records))

    async def apoll(
        self, timeout: float | None = None, *, max_records: int | None = None
    ) -> pa.Table:
        """`poll` for asynchronous code. It reads in a thread and waits without one. If it is
        cancelled, no record is lost: the next poll returns what this one would have."""
        return self._shown(await self._apoll(timeout, max_records))

    @in_turn
    def records(self) -> Records:
        """The records one by one, for `for` and `async for`, to the end of the log or forever as in
        an iteration over the consumer.

        A commit inside of the loop commits the records that were handed out so far, the one that
        the loop is at included. Partitions may change hands between two records.

        >>> for record in consumer.records():
        ...     process(record.key, record.value)
        ...     consumer.commit()
        """
        self._read_for_records()
        return Records(self._batches, self._abatches, lambda work: self._in_thread(work, _keep))

    def _poll(self, timeout: float | None = None, max_records: int | None = None) -> Batch:
        self._settle()
        read, pause_before = self._rounds(timeout, max_records)
        attempt = 0
        while True:
            batch = read()
            if batch.table.num_rows or (wait := pause_before(attempt)) is None:
                return batch
            self._pause(wait)
            attempt += 1

    async def _apoll(self, timeout: float | None = None, max_records: int | None = None) -> Batch:
        read, pause_before = self._rounds(timeout, max_records)
        attempt = 0
        while True:
            batch = await self._in_thread(read, Batch.give_back)
            if batch.table.num_rows or (wait := pause_before(attempt)) is None:
                return batch
            await async_wait_for_any(self._awaited(), wait, self._runtime)
            attempt += 1

    def _rounds(
        self, timeout: float | None, max_records: int | None
    ) -> tuple[Callable[[], Batch], Callable[[int], float | None]]:
        """What one round of a poll reads, and how long it waits after round number `attempt`. It
        does not wait (None) if the timeout has passed."""
        self._check_open()
        count = self._max_records if max_records is None else check_count(max_records)
        seconds = None if timeout is None else check_timeout(timeout)
        ends_at = math.inf if seconds is None else self._runtime.monotonic() + seconds

        def pause_before(attempt: int) -> float | None:
            pause = min(self._longest_pause_seconds, FIRST_PAUSE_SECONDS * 2 ** min(attempt, 16))
            if seconds is None:
                return pause if self._follow else None
            left = ends_at - self._runtime.monotonic()
            return min(pause, left) if left > 0 else None

        return partial(self._read_in_turn, count, ends_at), pause_before

    @in_turn
    def _read_in_turn(self, count: int, ends_at: float) -> Batch:
        return self._read_batch(count, ends_at)

    def _pause(self, seconds: float) -> None:
        """Wait for new records, at most this long."""
        wait_for_any(self._awaited(), seconds, self._runtime)

    def _batches(self) -> Iterator[Batch]:
        while not self._is_closed:
            batch = self._poll()
            if batch.table.num_rows:
                yield batch
            elif self._is_at_end:
                return
            elif not self._follow:
                # Other members still hold partitions of this member's share.
                self._runtime.pause(self._longest_pause_seconds)

    async def _abatches(self) -> AsyncIterator[Batch]:
        while not self._is_closed:
            batch = await self._apoll()
            if batch.table.num_rows:
                yield batch
            elif self._is_at_end:
                return
            elif not self._follow:
                await asyncio.sleep(self._longest_pause_seconds)

    async def _in_thread(
        self, work: Callable[[], Result], give_back: Callable[[Result], None]
    ) -> Result:
        """Run work of this consumer in a thread, after any other and any that was cancelled."""
        while (before := self._errand) is not None and not before.is_over.is_set():
            await asyncio.to_thread(before.wait)
        errand = Errand(work, give_back)
        self._errand = errand
        return await errand.result()

    def _settle(self) -> None:
        """Wait for a thread whose caller was cancelled: a consumer does one thing at a time."""
        if self._errand is not None:
            self._errand.wait()

    @property
    def _is_at_end(self) -> bool:
        """True if an iteration ends, now that there are no records."""
        return not self._follow and self._has_full_share

    @property
    @abstractmethod
    def _has_full_share(self) -> bool:
        """False while other members still hold partitions of this member's share."""

    @property
    @abstractmethod
    def _longest_pause_seconds(self) -> float:
        """How long it may wait between two looks at the log."""

    @abstractmethod
    def _awaited(self) -> list[Place]:
        """The next commit of each topic, where its coming is seen without a request."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise if the consumer is closed."""

    @abstractmethod
    def _read_batch(self, count: int, ends_at: float) -> Batch:
        """The next records that are there now."""

    @abstractmethod
    def _read_for_records(self) -> None:
        """From now on, read the columns that records need, also if the program has not asked for
        them."""

    @abstractmethod
    def _shown(self, batch: Batch) -> pa.Table:
        """The table with the columns that the program has asked for."""


def _keep(done: None) -> None:
    """There is nothing to give back."""
