"""Given keys to find: which segments, row groups and records may have them.

A segment is skipped if its records were placed by key and the keys belong to other partitions. A
row group is skipped if its statistics or its Bloom filter exclude the keys [READ-7].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.format.schema import to_arrow
from pylogtable.format.tombstones import one_chunk
from pylogtable.lazy_arrow import pc
from pylogtable.segments.bloom import may_contain, plain_bytes, xxh64
from pylogtable.segments.projection import check_column_names
from pylogtable.segments.segment_reader import Records, open_segment, segment_errors
from pylogtable.storage.base import ObjectStore

Mask = npt.NDArray[np.bool_]


class WantedKeys:
    """The distinct keys to find, as columns and as canonical bytes."""

    def __init__(self, topic: TopicInfo, keys: object) -> None:
        self.names = topic.key
        columns = _key_columns(topic, keys)
        all_bytes = key_bytes(columns)
        if all_bytes.null_count:
            raise InvalidRequestError("a null key cannot be looked up; leave nulls out of `keys`")
        first = _first_of_each(all_bytes)
        self.bytes: pa.BinaryArray = all_bytes.take(first)
        self.columns = [column.take(first) for column in columns]
        self._hashes = [_plain_hashes(column) for column in self.columns]
        self._homes: dict[int, tuple[npt.NDArray[np.int32], frozenset[int]]] = {}

    def __len__(self) -> int:
        return len(self.bytes)

    def in_segment(self, segment: Segment) -> Mask:
        """Which keys this segment may have, according to its entry in the manifest."""
        if segment.hashed_over is None:
            return np.ones(len(self), dtype=bool)
        belongs: Mask = self._homes_over(segment.hashed_over)[0] == segment.partition
        return belongs

    def may_be_in(self, segment: Segment) -> bool:
        """True if this segment may have one of the keys, according to its entry."""
        if segment.hashed_over is None or not segment.records:
            return segment.records > 0 and len(self) > 0
        return segment.partition in self._homes_over(segment.hashed_over)[1]

    def may_match(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments that may have one of the keys, according to the manifest."""
        return [segment for segment in segments if self.may_be_in(segment)]

    def matches(self, columns: Sequence[pa.Array], possible: Mask | None = None) -> pa.Array:
        """Which records have one of the keys, by the key columns of these records. With `possible`,
        only these of the keys are looked for."""
        wanted = self.bytes if possible is None else self.bytes.filter(pa.array(possible))
        return pc.is_in(key_bytes(columns), value_set=wanted)

    def find(self, store: ObjectStore, topic: TopicInfo, segment: Segment) -> Mask:
        """Which records of the segment have one of the keys. Keys are read only from row groups
        that may have one."""
        reader = open_segment(store, segment)
        check_column_names(reader, topic, self.names)
        mask = np.zeros(segment.records, dtype=bool)
        at = 0
        wanted = self.in_segment(segment)
        for group, facts in enumerate(reader.groups):
            if not self.in_row_group(reader, group, wanted).any():
                at += facts.rows
                continue
            for batch in reader.batches([group], self.names):
                found = self.matches([batch.column(name) for name in self.names])
                mask[at : at + batch.num_rows] = found.to_numpy(zero_copy_only=False)
                at += batch.num_rows
        return mask

    def check_same_columns(self, topic: TopicInfo) -> None:
        """Nothing to check: the key of a topic never changes [META-4]."""

    def _homes_over(self, partitions: int) -> tuple[npt.NDArray[np.int32], frozenset[int]]:
        """The partition of each key among so many, and all of these partitions. It is kept: a topic
        may have a million segments."""
        if partitions not in self._homes:
            homes = partition_for(self.bytes, partitions)
            self._homes[partitions] = homes, frozenset(np.unique(homes).tolist())
        return self._homes[partitions]

    def is_filtered(self, reader: Records, group: int) -> bool:
        """True if the row group has a Bloom filter of a key column that can be used. Then a key
        that `in_row_group` finds possible is nearly always there."""
        pairs = zip(self.names, self._hashes, strict=True)
        indexes = (reader.column_index(name) for name, hashes in pairs if hashes is not None)
        return any(at is not None and reader.has_filter(group, at) for at in indexes)

    def in_row_group(self, reader: Records, group: int, wanted: Mask) -> Mask:
        """Which of the keys `wanted` this row group may have, according to statistics and Bloom
        filters."""
        wanted = wanted.copy()
        for name, values, hashes in zip(self.names, self.columns, self._hashes, strict=True):
            index = reader.column_index(name)
            if index is None or not wanted.any():
                continue
            statistics = reader.statistics(group, index)
            with segment_errors(reader.segment.path):
                wanted &= _by_statistics(statistics, values)
            if hashes is None or not wanted.any():
                continue
            bloom = reader.read_filter(group, index)
            if bloom is None:
                continue
            found = may_contain(bloom, hashes)
            wanted &= found | ~np.asarray(pc.is_valid(values))
        return wanted


def wanted_keys(name: str, topic: TopicInfo, keys: object) -> WantedKeys | None:
    """The keys to find in the topic of this name; None if no keys are given."""
    if keys is None:
        return None
    if not topic.key:
        raise InvalidRequestError(
            f"topic {name!r} has no key columns, so nothing can be found by `keys`: leave them "
            "out, and filter what you read"
        )
    return WantedKeys(topic, keys)


def _key_columns(topic: TopicInfo, keys: object) -> list[pa.Array]:
    types = {field.name: to_arrow(field.type) for field in topic.fields if field.name in topic.key}
    if isinstance(keys, pa.Table | pa.RecordBatch):
        absent = [name for name in topic.key if name not in keys.schema.names]
        if absent:
            raise InvalidRequestError(f"`keys` has no key column(s) {', '.join(absent)}")
        given = [keys.column(name) for name in topic.key]
    elif isinstance(keys, pa.Array | pa.ChunkedArray) and len(topic.key) == 1:
        given = [keys]
    elif isinstance(keys, Sequence) and not isinstance(keys, str | bytes):
        rows = [key if isinstance(key, tuple) else (key,) for key in keys]
        if any(len(row) != len(topic.key) for row in rows):
            raise InvalidRequestError(
                f"each of `keys` must have {len(topic.key)} part(s): {', '.join(topic.key)}"
            )
        given = [[row[index] for row in rows] for index in range(len(topic.key))]
    else:
        raise InvalidRequestError(
            "`keys` must be a list of keys (tuples where the key has several columns), an Arrow "
            "array, or a table with the key columns"
        )
    return [
        _typed(name, column, types[name]) for name, column in zip(topic.key, given, strict=True)
    ]


def _typed(name: str, column: object, arrow: pa.DataType) -> pa.Array:
    try:
        if isinstance(column, pa.ChunkedArray):
            column = one_chunk(column)
        if isinstance(column, pa.Array):
            return column.cast(arrow)
        assert isinstance(column, list)
        if any(isinstance(part, float) for part in column):
            raise pa.ArrowTypeError(
                "a float cannot be a key"
            )  # pa.array would cut off its fraction
        if pa.types.is_binary(arrow):
            column = [part.encode() if isinstance(part, str) else part for part in column]
        return pa.array(column, arrow)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InvalidRequestError(
            f"`keys` do not fit key column {name!r} ({arrow}): {error}"
        ) from None


def _first_of_each(values: pa.BinaryArray) -> pa.Array:
    _, first = np.unique(
        pc.index_in(values, value_set=values.unique()).to_numpy(), return_index=True
    )
    return pa.array(first)


def _plain_hashes(column: pa.Array) -> npt.NDArray[np.uint64] | None:
    plain = plain_bytes(column)
    return None if plain is None else xxh64(plain)


def _by_statistics(statistics: Any, values: pa.Array) -> Mask:
    """Which values are inside the bounds of a column chunk. Nulls count as inside, and so do all
    values if the chunk has no bounds."""
    if statistics is None or not statistics.has_min_max:
        return np.ones(len(values), dtype=bool)
    if pa.types.is_temporal(values.type):
        # Compare numbers: the range of Python's dates is smaller than the format's.
        width = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
        values, low, high = values.cast(width), statistics.min_raw, statistics.max_raw
    else:
        low = pa.scalar(statistics.min).cast(values.type)
        high = pa.scalar(statistics.max).cast(values.type)
    inside = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    mask: Mask = inside.fill_null(True).to_numpy(zero_copy_only=False)
    return mask
