"""Records one by one, out of the batches of a consumer.

A record counts as delivered when it is handed out. So a commit inside of the loop commits the
records up to the one that the loop is at, and the rest of the batch comes again after a restart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import reduce
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    column_schema,
    is_kafka_shaped,
)
from pylogtable.groups.delivery import Batch
from pylogtable.lazy_arrow import pc

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Headers = tuple[tuple[str, bytes | None], ...]


class ConsumerRecord(NamedTuple):
    """One record, from `Consumer.records`. If a topic has columns of its own, the key is that of
    its key column, or a tuple if it has several, and the value is a dict of the other columns,
    without `headers`. The value of a tombstone is None."""

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
        keys = repeat(None, rows)
        if info.key:
            parts = [column(name) for name in info.key]
            keys = parts[0] if len(parts) == 1 else zip(*parts, strict=True)
        values = _values(info, table)
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


def _values(info: TopicInfo, table: pa.Table) -> Iterator[dict[str, Any] | None]:
    """The columns of each row that are no key, and None for a tombstone [REC-3]. With a part of the
    columns a tombstone cannot be told from a record that has no value in them."""
    wanted = [f.name for f in info.fields if f.name not in info.key and f.name != HEADERS]
    own = [name for name in table.column_names if name in wanted]
    values = table.select(own).to_pylist() if own else [{} for _ in range(table.num_rows)]
    may_be_tombstone = own and info.key and len(own) == len(wanted)
    if not may_be_tombstone or not all(table[name].null_count for name in own):
        return iter(values)
    is_null = [_all_null(table.select(names)) for names in (own, info.key)]
    return (
        None if no_value and not no_key else value
        for value, no_value, no_key in zip(values, *is_null, strict=True)
    )


def _all_null(table: pa.Table) -> list[bool]:
    """Whether all columns of a row are null."""
    found: list[bool] = reduce(pc.and_, map(pc.is_null, table.columns)).to_pylist()
    return found


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
