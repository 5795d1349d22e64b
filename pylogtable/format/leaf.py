"""A leaf of the index: many segment entries as one Arrow table, in (partition, offset) order. Pure.

A lookup needs only a few of a leaf's many entries, so entries stay in columns until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.model import Segment, Totals
from pylogtable.format.paths import leaf_path
from pylogtable.format.segment_checks import are_inline, check_entries, check_entry, floor_fault
from pylogtable.lazy_arrow import pc

LEAF_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("end_offset", pa.int64(), nullable=False),
        pa.field("shift", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("min_timestamp_us", pa.int64(), nullable=False),
        pa.field("max_timestamp_us", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("row_groups", pa.list_(pa.field("element", pa.int64())), nullable=False),
        pa.field("tombstones", pa.int64(), nullable=False),
        pa.field("delete_horizon_ms", pa.int64()),
        pa.field("hashed_over", pa.int32()),
        pa.field("append_time", pa.bool_(), nullable=False),
        pa.field("footer_checksum", pa.string()),
    ]
)

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Leaf:
    """The entries of one leaf, sorted by partition and base offset [LEAF-1]. `checksum` is that of
    its file; None if the leaf was not read from one."""

    id: str
    table: pa.Table
    checksum: str | None = None
    _sound_runs: set[tuple[int, ...]] = field(default_factory=set, compare=False, repr=False)

    @cached_property
    def _partitions(self) -> Int64s:
        return self._column("partition")

    @cached_property
    def base_offsets(self) -> Int64s:
        return self._column("base_offset")

    @cached_property
    def end_offsets(self) -> Int64s:
        return self._column("end_offset")

    @cached_property
    def max_timestamps(self) -> Int64s:
        return self._column("max_timestamp_us")

    def check_run(self, partition: int, start: int, end: int, max_timestamp_us: int) -> None:
        """Raise if the entries of `partition` do not tile `[start, end)`, or one of them has a
        record after `max_timestamp_us` [LEAF-3]. A run that was sound once stays so."""
        run = (partition, start, end, max_timestamp_us)
        if run in self._sound_runs:
            return
        rows = self.rows(partition, start, end)
        bases = self.base_offsets[rows.start : rows.stop]
        ends = self.end_offsets[rows.start : rows.stop]
        is_tiled = len(rows) > 0 and bases[0] == start and ends[-1] == end
        if not is_tiled or np.any(bases[1:] != ends[:-1]):
            detail = f"its entries do not tile [{start}, {end}) of partition {partition}"
            raise CorruptTopicError(leaf_path(self.id), "LEAF-3", detail)
        times = self.max_timestamps[rows.start : rows.stop]
        has_records = self._column("records")[rows.start : rows.stop] > 0
        if np.any(has_records & (times > max_timestamp_us)):
            detail = (
                f"a root says that no record in [{start}, {end}) of partition {partition} is later "
                f"than {max_timestamp_us}, but its entries go to {times[has_records].max()}"
            )
            raise CorruptTopicError(leaf_path(self.id), "LEAF-3", detail)
        self._sound_runs.add(run)

    def rows(self, partition: int, start: int, end: int) -> range:
        """The rows whose entries are of `partition` and overlap `[start, end)`."""
        first = int(np.searchsorted(self._partitions, partition, side="left"))
        last = int(np.searchsorted(self._partitions, partition, side="right"))
        low = first + int(np.searchsorted(self.end_offsets[first:last], start, side="right"))
        high = first + int(np.searchsorted(self.base_offsets[first:last], end, side="left"))
        return range(low, max(low, high))

    def entries(self, rows: range) -> pa.Table:
        """These rows as a table."""
        return self.table.slice(rows.start, len(rows))

    def segments(self, rows: range) -> list[Segment]:
        """These rows as segments. Paths are checked, because a leaf may have been tampered with."""
        segments = segments_of(self.entries(rows))
        source = leaf_path(self.id)
        for segment in segments:  # [LEAF-2]
            check_entry(segment, segment.partition, source=source)
            fault = floor_fault(segment, is_appended=False)
            if fault is not None:
                raise CorruptTopicError(source, "SEG-10", fault)
        return segments

    def totals(self, rows: range, *, inline: bool = False) -> Totals:
        """The totals of the segments in these rows, or of those that are inline [INL-7]."""
        return totals_of_entries(self.entries(rows), inline=inline)

    def _column(self, name: str) -> Int64s:
        values: Int64s = self.table[name].to_numpy()
        return values


def leaf_table(stored: pa.Table) -> pa.Table:
    """The columns of a leaf's file. Older leaves have no `footer_checksum` [LEAF-1]."""
    last = LEAF_SCHEMA.field(-1)
    if last.name not in stored.column_names:
        stored = stored.append_column(last, pa.nulls(stored.num_rows, last.type))
    return stored.select(LEAF_SCHEMA.names).cast(LEAF_SCHEMA)


def check_leaf(leaf: Leaf) -> None:
    """Raise if the table is not a valid leaf [LEAF-1]."""
    path = leaf_path(leaf.id)
    if not leaf.table.schema.equals(LEAF_SCHEMA):
        raise CorruptTopicError(path, "LEAF-1", "its columns are not those of a leaf")
    partitions = leaf.table["partition"].to_numpy()
    later = partitions[1:] > partitions[:-1]
    follows = (partitions[1:] == partitions[:-1]) & (leaf.base_offsets[1:] >= leaf.end_offsets[:-1])
    if not np.all(later | follows):
        raise CorruptTopicError(path, "LEAF-1", "its entries are not in order, or they overlap")
    check_entries(leaf.table, source=path)


def segments_of(entries: pa.Table) -> list[Segment]:
    """Segment entries in columns, as objects."""
    return msgspec.convert(entries.to_pylist(), list[Segment])


def totals_of_entries(entries: pa.Table, *, inline: bool = False) -> Totals:
    """The totals of all entries of a table, or of those that are inline."""
    if inline:
        entries = entries.filter(pa.array(are_inline(entries)))
    return Totals(
        segments=entries.num_rows,
        records=pc.sum(entries["records"]).as_py() or 0,
        size_bytes=pc.sum(entries["size_bytes"]).as_py() or 0,
    )


def entries_of(segments: Iterable[Segment]) -> pa.Table:
    """Segments in the columns of a leaf."""
    rows = [msgspec.structs.asdict(segment) for segment in segments]
    return pa.Table.from_pylist(rows, schema=LEAF_SCHEMA)


def sort_entries(parts: Sequence[pa.Table]) -> pa.Table:
    """All entries of these tables, in the order of a leaf."""
    table = pa.concat_tables(parts) if parts else LEAF_SCHEMA.empty_table()
    keys = [("partition", "ascending"), ("base_offset", "ascending")]
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()
