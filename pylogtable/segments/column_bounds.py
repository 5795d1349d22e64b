"""What the footer of a segment's file says about columns: least and greatest value, and nulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.schema import OFFSET
from pylogtable.segments.segment_reader import SegmentReader
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.threads import map_parallel


@dataclass(frozen=True)
class ColumnBounds:
    """Bounds of a column in one file. `least` and `greatest` are None if all values are null."""

    least: Any
    greatest: Any
    nulls: int


@dataclass(frozen=True)
class FileFacts:
    """The columns of a file, and the bounds of those that were asked for and have statistics."""

    schema: pa.Schema
    bounds: dict[str, ColumnBounds]


def facts_of(
    store: ObjectStore, files: Sequence[Segment], topic: TopicInfo
) -> dict[str, FileFacts]:
    """What the footers of files say, by path: their columns, and the bounds of offset and key.
    Columns are named as they are stored."""
    columns = [OFFSET, *(f.stored_name for f in topic.fields if f.name in topic.key)]
    found = map_parallel(store, lambda file: file_facts(store, file, columns), files)
    return {file.path: facts for file, facts in zip(files, found, strict=True)}


def file_facts(store: ObjectStore, segment: Segment, columns: Sequence[str]) -> FileFacts:
    """Read the footer of a segment's file. Columns are named as they are stored."""
    reader = SegmentReader(store, segment)
    bounds = {}
    for name in columns:
        found = _bounds(reader, name)
        if found is not None:
            bounds[name] = found
    return FileFacts(reader.schema, bounds)


def _bounds(reader: SegmentReader, name: str) -> ColumnBounds | None:
    index = reader.column_index(name)
    if index is None:
        return None
    least: list[Any] = []
    greatest: list[Any] = []
    nulls = 0
    for group in range(reader.metadata.num_row_groups):
        statistics = reader.statistics(group, index)
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.num_values == 0:
            continue
        if not statistics.has_min_max:
            return None
        try:
            least.append(statistics.min)
            greatest.append(statistics.max)
        except (OverflowError, ValueError):  # a date or a time that Python does not know
            return None
    return ColumnBounds(min(least, default=None), max(greatest, default=None), nulls)
