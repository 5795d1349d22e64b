"""Records one by one, out of the batches of a consumer.

A record counts as delivered when it is handed out. So a commit inside of the loop commits the
records up to the one that the loop is at, and the rest of the batch comes again after a restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    OFFSET,
    PARTITION,
    RESERVED,
    TIMESTAMP,
    column_schema,
    is_kafka_shaped,
)
from pylogtable.groups.delivery import Batch

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Headers = tuple[tuple[str, bytes | None], ...]


class ConsumerRecord(NamedTuple):
    """One record, from `Consumer.records`. If a topic has columns of its own, the value is a dict
    of these, without `headers`. The key is that of its key column, or a tuple if it has several."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: Any
    value: Any
    headers: Headers


class Records:
    """The records of a consumer, for `for` and `async for`."""

    def __init__(
        self,
        batches: Callable[[], Iterator[Batch]],
        abatches: Callable[[], AsyncIterator[Batch]],
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._batches = batches
        self._abatches = abatches
        self._in_thread = in_thread

    def __iter__(self) -> Iterator[ConsumerRecord]:
        for batch in self._batches():
            for record in _delivered(batch):
                yield record
                if batch.look_is_due():
                    batch.look()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        async for batch in self._abatches():
            for record in _delivered(batch):
                yield record
                if batch.look_is_due():
                    await self._in_thread(batch.look)


def _delivered(batch: Batch) -> Iterator[ConsumerRecord]:
    """The records of a batch, until something else moves its consumer."""
    delivery = batch.delivery
    positions = delivery.begin(batch.before)
    for record in records_of(batch.topic, batch.info, batch.table):
        if delivery.pending is not positions:
            return
        positions[record.partition] = record.offset + 1
        yield record
    if delivery.pending is positions:
        delivery.finish()


def records_of(topic: str, info: TopicInfo, table: pa.Table) -> Iterator[ConsumerRecord]:
    """The rows of a table as records, built column by column."""
    rows = table.num_rows

    def column(name: str) -> Any:
        return table[name].to_pylist() if name in table.column_names else repeat(None, rows)

    if is_kafka_shaped(column_schema(info.fields, None)):
        keys, values = column("key"), column("value")
    else:
        own = [n for n in table.column_names if n not in RESERVED and n != HEADERS]
        keys = repeat(None, rows)
        if info.key:
            parts = [column(name) for name in info.key]
            keys = parts[0] if len(parts) == 1 else zip(*parts, strict=True)
        values = table.select(own).to_pylist() if own else ({} for _ in range(rows))
    return map(
        ConsumerRecord._make,
        zip(
            repeat(topic, rows),
            column(PARTITION),
            column(OFFSET),
            _times(table[TIMESTAMP]),
            keys,
            values,
            _headers(table),
            strict=True,
        ),
    )


def _times(column: pa.ChunkedArray) -> Iterator[datetime]:
    """Faster than Arrow's own, which asks for the time zone of each value."""
    return (_EPOCH + timedelta(microseconds=us) for us in column.cast(pa.int64()).to_pylist())


def _headers(table: pa.Table) -> Iterator[Headers]:
    """The headers of each row as pairs; most topics have none at all."""
    empty: Headers = ()
    if HEADERS not in table.column_names:
        return repeat(empty, table.num_rows)
    column = table[HEADERS].combine_chunks()
    flat = column.flatten()
    if not len(flat):
        return repeat(empty, table.num_rows)
    pairs = tuple(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    bounds = [0, *lengths.cumsum().tolist()]
    return (pairs[start:end] for start, end in pairwise(bounds))
