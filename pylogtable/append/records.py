"""Records that are sent one by one, turned into Arrow in bulk. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.append.sent_values import converters
from pylogtable.append.shaping import Int32s
from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    column_hint,
    file_schema,
    is_kafka_shaped,
)

#: Approximate memory for a waiting record, in addition to its own bytes.
OVERHEAD_BYTES = 100

RecordTuple = tuple[Any, ...]

_TEXT = (bytes, str, type(None))


class RecordMetadata(NamedTuple):
    """Where a record is in the log, and its timestamp."""

    partition: int
    offset: int
    timestamp: datetime


class BatchMetadata(NamedTuple):
    """Where the rows of a table are in the log: `(start, end)` offsets by partition. Inside a
    partition they are in the order of the table."""

    version: int
    offsets: dict[int, tuple[int, int]]
    records: int


class RecordShape:
    """The columns of a topic's records. A record is a tuple of its columns in order, its requested
    partition, and its timestamp in microseconds."""

    def __init__(self, topic: TopicInfo) -> None:
        self.topic = topic
        self.fields = list(file_schema(topic.fields))[2:]
        self.names = [field.name for field in self.fields]
        own = [field for field in self.fields if field.name != HEADERS]
        self._converters = converters(own)
        self.is_kafka_shaped = is_kafka_shaped(pa.schema(self.fields))
        #: True if a record with just a key and a value is `(key, value, None, None, None)`.
        self.is_kafka_row = self.is_kafka_shaped and self.names == ["key", "value", HEADERS]

    def record(
        self, columns: Mapping[str, Any], partition: int | None, time_us: int | None
    ) -> tuple[RecordTuple, int]:
        """A record and about how many bytes it takes. Raises for obvious mistakes: unknown columns,
        bad headers, unknown partitions, fields that a struct does not have."""
        given = {name: value for name, value in columns.items() if value is not None}
        self._check_names(given)
        if self.is_kafka_shaped:
            for name in ("key", "value"):
                given[name] = as_bytes(name, given.get(name))
        for name, convert in self._converters.items():
            if name in given:
                given[name] = convert(given[name])
        if HEADERS in given:
            given[HEADERS] = _headers(given[HEADERS])
        size = sum(map(_size, given.values())) + OVERHEAD_BYTES
        self._check_partition(partition)
        return (*map(given.get, self.names), partition, time_us), size

    def batch(self, records: Sequence[RecordTuple]) -> pa.RecordBatch:
        """Records as Arrow; `SchemaMismatchError` if a value does not fit its column."""
        *columns, partitions, times = zip(*records, strict=True)
        return self._batch(columns, partitions, times)

    def pairs(self, keys: Sequence[Any], values: Sequence[Any]) -> pa.RecordBatch:
        """Records of a Kafka-shaped topic that have a key and a value and nothing else."""
        return self._batch([keys, values], [], [])

    def _batch(
        self,
        columns: Sequence[Sequence[Any]],
        partitions: Sequence[int | None],
        times: Sequence[int | None],
    ) -> pa.RecordBatch:
        given = [
            (field, values)
            for field, values in zip(self.fields, columns, strict=False)
            # A column without values may have been dropped from the topic since.
            if not field.nullable or values.count(None) < len(values)
        ]
        fields = [field for field, _ in given]
        arrays = [_array(field, values) for field, values in given]
        if partitions.count(None) < len(partitions):
            fields.append(pa.field(PARTITION, pa.int64()))
            arrays.append(pa.array(partitions, pa.int64()))
        if times.count(None) < len(times):
            fields.append(pa.field(TIMESTAMP, TIMESTAMP_TYPE))
            arrays.append(pa.array(times, pa.int64()).cast(TIMESTAMP_TYPE))
        if not fields:
            fields, arrays = self.fields[:1], [pa.nulls(len(columns[0]), self.fields[0].type)]
        # The append checks for forbidden nulls, and names the row.
        loose = [field.with_nullable(True) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(loose))

    def _check_names(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.names:
                hint = column_hint(self.topic.fields, name, self.names)
                raise SchemaMismatchError(f"the topic has no column {name!r}; {hint}")

    def _check_partition(self, partition: object) -> None:
        count = self.topic.partitions
        is_number = isinstance(partition, int) and not isinstance(partition, bool)
        if partition is not None and not (is_number and 0 <= partition < count):  # type: ignore[operator]
            raise InvalidRequestError(
                f"there is no partition {partition!r}; the topic has {count}, 0 to {count - 1}"
            )


def as_bytes(name: str, value: Any) -> Any:
    """A key or value of a Kafka-shaped topic; text is encoded as UTF-8."""
    if isinstance(value, _TEXT):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise SchemaMismatchError(
        f"{name} must be bytes or str, not {type(value).__name__}; serialize it first"
    )


def separate_bad(
    count: int, check: Callable[[int, int], None]
) -> tuple[list[tuple[int, int]], dict[int, Exception]]:
    """Separate good items from bad ones: the ranges of good items, in order, and the error of each
    bad one. `check(start, end)` raises if one of these items is bad; ranges that fail are halved
    until the bad items are found."""
    good: list[tuple[int, int]] = []
    bad: dict[int, Exception] = {}
    ranges = [(0, count)] if count else []
    while ranges:
        start, end = ranges.pop()
        try:
            check(start, end)
        except InvalidRequestError as error:
            if end - start == 1:
                bad[start] = error
            else:
                middle = (start + end) // 2
                ranges += [(middle, end), (start, middle)]
        else:
            good.append((start, end))
    return good, bad


def offsets_in_order(partitions: Int32s, first_offsets: Mapping[int, int]) -> npt.NDArray[np.int64]:
    """The offset of each record, from its partition and the append's first offset in that
    partition. Inside a partition, records keep their order [APPEND-4]."""
    order = np.argsort(partitions, kind="stable")
    counts = np.bincount(partitions)
    begins = np.cumsum(counts) - counts
    first = np.array(
        [first_offsets.get(number, 0) for number in range(len(counts))], dtype=np.int64
    )
    offsets = np.empty(len(partitions), dtype=np.int64)
    placed = partitions[order]
    offsets[order] = np.arange(len(partitions)) - begins[placed] + first[placed]
    return offsets


def ranges_of(partitions: Int32s, offsets: npt.NDArray[np.int64]) -> dict[int, tuple[int, int]]:
    """The `(start, end)` offsets in each partition, for records with consecutive offsets there."""
    return {
        int(number): (int(mine[0]), int(mine[-1]) + 1)
        for number in np.unique(partitions)
        for mine in [offsets[partitions == number]]
    }


def _headers(headers: Any) -> list[dict[str, Any]]:
    """Headers given as pairs of a name and bytes, or as a dict; pairs may repeat a name."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        named = [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        named = [(None, None)]
    for name, value in named:
        if not isinstance(name, str) or not isinstance(value, _TEXT):
            raise SchemaMismatchError(
                "headers must be pairs of a name and bytes, such as [('trace', b'1')], not "
                f"{headers!r}"
            )
    return [{"key": name, "value": value} for name, value in named]


def _size(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, list | tuple):
        return 16 + sum(map(_size, value))
    if isinstance(value, dict):
        return 16 + sum(map(_size, chain(value.keys(), value.values())))
    return 8


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    if values.count(None) == len(values):
        return pa.nulls(len(values), field.type)
    try:
        if pa.types.is_integer(field.type):
            # If Arrow were given the type, it would cut off the fraction of a float.
            found = pa.array(values)
            if not pa.types.is_integer(found.type) and not pa.types.is_null(found.type):
                raise pa.ArrowTypeError(f"got {found.type}")
            return found.cast(field.type)
        return pa.array(values, field.type)
    except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError) as error:
        which = f"the value {values[0]!r:.80}" if len(values) == 1 else "a value"
        raise SchemaMismatchError(
            f"column {field.name!r} is {field.type}, and {which} does not fit: {error}"
        ) from None
