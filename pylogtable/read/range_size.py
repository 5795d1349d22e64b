"""Counts the records and bytes in a range of offsets, and finds the offset after N records.

Compaction leaves holes: offsets without a record. In a partition without holes the answer is
arithmetic. Otherwise it comes from the segments' entries, and the offset column is read only for
segments that the range cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from pylogtable.format.leaf import Leaf
from pylogtable.format.log_state import LogState, tiles_from
from pylogtable.format.model import Segment
from pylogtable.format.partition_state import LeafRun, PartitionState, Tile, tile_end, tile_start
from pylogtable.read.plan import Span
from pylogtable.segments.read_segment import count_from, end_of_records
from pylogtable.segments.read_task import task_for
from pylogtable.segments.segment_reader import Records, open_segment
from pylogtable.storage.base import ObjectStore


def end_of_bytes(
    store: ObjectStore, segment: Segment, start: int, end: int, size: int
) -> tuple[int, int]:
    """The greatest offset up to `end` such that the row groups from `start` on have at most `size`
    bytes, and what is left of `size`. It is `start` if the first row group has more. Reads the
    footer only."""
    reader = open_segment(store, segment)
    at = start
    for group, group_size in _sizes_from(reader, start):
        stop = _end_of_group(segment, group)
        if group_size > size:
            break
        size -= group_size
        at = min(end, stop)
        if stop >= end:
            break
    return at, size


def part_of_row_group(store: ObjectStore, segment: Segment, start: int, end: int, size: int) -> int:
    """The offset after about `size` bytes of the row group at `start`, and after one record at
    least. Its records are taken to be of the same size."""
    reader = open_segment(store, segment)
    group, group_size = next(_sizes_from(reader, start))
    records = max(1, _records_from(store, reader, group, start))
    wanted = max(1, -(-records * size // max(1, group_size)))
    stop = min(end, _end_of_group(segment, group))
    return min(stop, end_of_records(store, segment, start, min(records, wanted)))


def _sizes_from(reader: Records, start: int) -> Iterator[tuple[int, int]]:
    """Each row group that has offsets from `start` on, and the bytes of its records from there on.
    Together, the row groups of a file are as large as the file."""
    segment, stored = reader.segment, reader.group_bytes
    first = task_for(segment, start, segment.end_offset).row_groups.start
    for group in range(first, len(stored)):
        size = segment.size_bytes * stored[group] / max(1, sum(stored))
        begin, end = segment.base_offset + segment.row_groups[group], _end_of_group(segment, group)
        if begin < start:
            size = size * (end - start) / max(1, end - begin)
        yield group, round(size)


def _end_of_group(segment: Segment, group: int) -> int:
    """The offset after those that belong to a row group."""
    if group + 1 < len(segment.row_groups):
        return segment.base_offset + segment.row_groups[group + 1]
    return segment.end_offset


def _records_from(store: ObjectStore, reader: Records, group: int, start: int) -> int:
    """The records of a row group from `start` on."""
    after = sum(facts.rows for facts in reader.groups[group + 1 :])
    return count_from(store, reader.segment, start) - after


# A leaf may have many more entries than are needed, so they are decoded in steps.
_ENTRIES_AT_A_TIME = 256


class RangeSize(NamedTuple):
    """The size of a range of offsets, from `View.range_sizes`. `records` is exact, unless an
    estimate was asked for. `bytes` is estimated from the size of the segments."""

    records: int
    bytes: int


#: The records of a segment in the offsets from a start up to an end.
_Count = Callable[[Segment, int, int], int]


def range_size(store: ObjectStore, state: LogState, span: Span) -> RangeSize:
    """The records and bytes that can be read in the span."""
    return _range_size(state, span, partial(_count, store))


def estimate_range_size(state: LogState, span: Span) -> RangeSize:
    """The same, but no data file is read: the records of a segment with holes that the span cuts
    are taken to be spread evenly."""
    return _range_size(state, span, _estimate)


def _range_size(state: LogState, span: Span, count_of: _Count) -> RangeSize:
    log = state.snapshot.partitions[span.partition]
    has_no_holes = is_dense(state, span.partition)
    records, size = 0, 0.0
    for tile, start, end in _tiles(log, span):
        if isinstance(tile, Segment):
            count = count_of(tile, start, end)
            size += tile.size_bytes * count / max(1, tile.records)
        elif has_no_holes:
            count = end - start
            size += log.live.size_bytes * count / log.live.records
        else:
            leaf = state.leaf(span.partition, tile)
            rows = leaf.rows(span.partition, start, end)
            inner, cut = _split_rows(leaf, rows, start, end)
            totals = leaf.totals(inner)
            count = totals.records
            size += totals.size_bytes
            for segment in cut:
                part = count_of(segment, max(start, segment.base_offset), end)
                count += part
                size += segment.size_bytes * part / max(1, segment.records)
        records += count
    return RangeSize(records, round(size))


def offset_after_records(store: ObjectStore, state: LogState, span: Span, records: int) -> int:
    """The offset after the first `records` records of the span; the end of the span if it has
    fewer."""
    log = state.snapshot.partitions[span.partition]
    has_no_holes = is_dense(state, span.partition)
    left = records
    if left <= 0:
        return span.start
    for tile, start, end in _tiles(log, span):
        if isinstance(tile, LeafRun) and has_no_holes:
            if end - start >= left:
                return start + left
            left -= end - start
            continue
        for segment in _segments(state, span.partition, tile, start, end):
            low, high = max(start, segment.base_offset), min(end, segment.end_offset)
            here = _count(store, segment, low, high)
            if here >= left:
                return end_of_records(store, segment, low, left)
            left -= here
    return span.end


def offset_after_bytes(store: ObjectStore, state: LogState, span: Span, size: int) -> int:
    """The offset up to which the span has at most `size` bytes, in whole row groups. If its first
    row group alone has more, it is cut at about `size` bytes, and not before its first record."""
    log = state.snapshot.partitions[span.partition]
    at, left = span.start, size
    for tile, start, end in _tiles(log, span):
        if isinstance(tile, LeafRun):
            leaf = state.leaf(span.partition, tile)
            rows = leaf.rows(span.partition, start, end)
            inner, cut = _split_rows(leaf, rows, start, end)
            if not cut and (total := leaf.totals(inner).size_bytes) <= left:
                at, left = end, left - total
                continue
        for segment in _segments(state, span.partition, tile, start, end):
            low, high = max(start, segment.base_offset), min(end, segment.end_offset)
            is_whole = (low, high) == (segment.base_offset, segment.end_offset)
            if is_whole and segment.size_bytes <= left:
                at, left = high, left - segment.size_bytes
                continue
            if not segment.records:
                at = high
                continue
            reached, left = end_of_bytes(store, segment, low, high, left)
            if reached > low:
                at = reached
            elif at == span.start:
                at = part_of_row_group(store, segment, low, high, left)
            if reached < high:
                return at
    return at


def _tiles(log: PartitionState, span: Span) -> Iterator[tuple[Tile, int, int]]:
    """The tiles of the span, each with the offsets that are inside the span."""
    for tile in tiles_from(log, span.start):
        start, end = max(span.start, tile_start(tile)), min(span.end, tile_end(tile))
        if start >= end:
            return
        yield tile, start, end


def is_dense(state: LogState, partition: int) -> bool:
    """True if no segment has holes. The totals include all of the first segment, even its records
    below the log start. Only if that cuts a run, a leaf has to tell where the first one begins."""
    log = state.snapshot.partitions[partition]
    if not log.tiles:
        return False
    begin = tile_start(log.tiles[0])
    if isinstance(log.tiles[0], LeafRun) and begin < log.log_start:
        first = state.segment_at(partition, log.log_start)
        begin = begin if first is None else first.base_offset
    return log.live.records == log.end - begin


def _count(store: ObjectStore, segment: Segment, start: int, end: int) -> int:
    if segment.is_dense:
        return min(end, segment.end_offset) - start
    below = 0 if end >= segment.end_offset else count_from(store, segment, end)
    if start <= segment.base_offset:
        return segment.records - below
    return count_from(store, segment, start) - below


def _estimate(segment: Segment, start: int, end: int) -> int:
    offsets = min(end, segment.end_offset) - start
    return segment.records * offsets // (segment.end_offset - segment.base_offset)


def _split_rows(leaf: Leaf, rows: range, start: int, end: int) -> tuple[range, list[Segment]]:
    """The entries that are completely inside `[start, end)`, and those that are cut."""
    low, high = rows.start, rows.stop
    cut: list[Segment] = []
    if low < high and leaf.base_offsets[low] < start:
        cut += leaf.segments(range(low, low + 1))
        low += 1
    if low < high and leaf.end_offsets[high - 1] > end:
        cut += leaf.segments(range(high - 1, high))
        high -= 1
    return range(low, high), cut


def _segments(
    state: LogState, partition: int, tile: Tile, start: int, end: int
) -> Iterator[Segment]:
    if isinstance(tile, Segment):
        yield tile
        return
    leaf = state.leaf(partition, tile)
    rows = leaf.rows(partition, start, end)
    for first in range(rows.start, rows.stop, _ENTRIES_AT_A_TIME):
        yield from leaf.segments(range(first, min(rows.stop, first + _ENTRIES_AT_A_TIME)))
