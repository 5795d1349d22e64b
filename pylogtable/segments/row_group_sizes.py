"""How many bytes the row groups of a segment have, by its footer, and where a limit cuts them.

Records differ in size, so the mean of a segment says little about a part of it. A row group has at
most 16 MiB before compression [SEG-8], and the footer has its size.
"""

from __future__ import annotations

from collections.abc import Iterator

from pylogtable.format.model import Segment
from pylogtable.segments.read_task import task_for
from pylogtable.segments.scan import count_from, end_of_records
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
