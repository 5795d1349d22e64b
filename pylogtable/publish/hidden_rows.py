"""Which rows of its files a table hides: what a publication with `publish.view=latest` changes.

Offsets say what is hidden; each table format says it by file and row instead. So a merge changes
where a hidden row is, and not what is hidden [PUB-9].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pylogtable.format.model import Segment
from pylogtable.format.schema import OFFSET
from pylogtable.publish.roaring import Int64s, Numbers, numbers, sorted_array, within
from pylogtable.segments.segment_reader import open_segment
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class RowChange:
    """The rows of a file that are hidden from now on, and those that are shown again. Rows are
    counted from 0, in the order of the file."""

    file: Segment
    hidden: Numbers
    shown: Numbers


@dataclass(frozen=True)
class HiddenRows:
    """What a publication changes about hidden rows: by path, for files that the table shows after
    it. `total` counts all rows that it hides then."""

    changes: Mapping[str, RowChange] = field(default_factory=dict)
    total: int = 0


def rows_at(store: ObjectStore, file: Segment, offsets: Numbers) -> Numbers:
    """The rows of a file that have one of these offsets."""
    mine = sorted_array(within(offsets, file.base_offset, file.end_offset))
    if file.is_dense or not mine.size:
        return numbers(mine - file.base_offset)
    return numbers(np.flatnonzero(np.isin(offsets_in(store, file), mine, assume_unique=True)))


def rows_not_at(store: ObjectStore, file: Segment, offsets: Numbers) -> Numbers:
    """The rows of a file that have none of these offsets."""
    from pyroaring import BitMap64

    return BitMap64(range(file.records)) - rows_at(store, file, offsets)


def offsets_at(store: ObjectStore, file: Segment, rows: Numbers) -> Numbers:
    """The offsets of these rows of a file."""
    found = sorted_array(rows)
    if file.is_dense or not found.size:
        return numbers(found + file.base_offset)
    return numbers(offsets_in(store, file)[found])


def offsets_in(store: ObjectStore, file: Segment) -> Int64s:
    """The offsets of all records of a segment, in order."""
    if file.is_dense:
        return np.arange(file.base_offset, file.end_offset, dtype=np.int64)
    reader = open_segment(store, file)
    groups = range(len(file.row_groups))
    parts = [reader.true_offsets(batch).to_numpy() for batch in reader.batches(groups, [OFFSET])]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
