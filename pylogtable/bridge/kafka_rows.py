"""Messages of Kafka as Arrow rows that bring their partition and offset. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": TIMESTAMP,
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS,
    }
)


def last_places(rows: pa.RecordBatch | pa.Table) -> dict[int, int]:
    """One past the last offset of each partition that has rows."""
    ends = rows.select(["partition", "offset"])
    table = pa.Table.from_batches([ends]) if isinstance(ends, pa.RecordBatch) else ends
    found = table.group_by("partition").aggregate([("offset", "max")])
    numbers, lasts = found["partition"].to_pylist(), found["offset_max"].to_pylist()
    return {number: last + 1 for number, last in zip(numbers, lasts, strict=True)}


class Message(Protocol):
    """What is used of a message of confluent-kafka."""

    def partition(self) -> Any: ...
    def offset(self) -> Any: ...
    def timestamp(self) -> Any: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...


def rows_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages as rows, in order. Each column is built as a whole. A message without headers
    has null headers, as in Spark's Kafka source."""
    # A pair that is dropped at once does not wake Python's garbage collector.
    times = [message.timestamp()[1] for message in messages]
    headers = [message.headers() for message in messages]
    count = len(messages)
    columns = [
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array(times, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP),
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array(headers, HEADERS) if any(headers) else pa.nulls(count, HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
