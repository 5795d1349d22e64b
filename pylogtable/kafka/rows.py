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


def last_places(rows: pa.RecordBatch) -> dict[int, int]:
    """One past the last offset of each partition that has rows."""
    places = pa.Table.from_batches([rows]).group_by("partition").aggregate([("offset", "max")])
    numbers, lasts = places["partition"].to_pylist(), places["offset_max"].to_pylist()
    return {number: last + 1 for number, last in zip(numbers, lasts, strict=True)}


class Message(Protocol):
    """What is used of a message of confluent-kafka."""

    def partition(self) -> Any: ...
    def offset(self) -> Any: ...
    def timestamp(self) -> Any: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def error(self) -> Any: ...


def rows_of(messages: Sequence[Message]) -> pa.RecordBatch:
    """The messages as rows, in order. Each column is built as a whole. A message without headers
    has null headers, as in Spark's Kafka source."""
    kind = type(messages[0])  # to call its methods by `map` is twice as fast as a loop
    # A pair that is dropped at once does not wake Python's garbage collector.
    times = [pair[1] for pair in map(kind.timestamp, messages)]
    headers = list(map(kind.headers, messages))
    columns = [
        pa.array(list(map(kind.partition, messages)), pa.int32()),
        pa.array(list(map(kind.offset, messages)), pa.int64()),
        pa.array(times, pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP),
        pa.array(list(map(kind.key, messages)), pa.binary()),
        pa.array(list(map(kind.value, messages)), pa.binary()),
        pa.array(headers, HEADERS) if any(headers) else pa.nulls(len(messages), HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
