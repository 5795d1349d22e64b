"""How far a consumer group is behind, told by the index alone.

`Group.lag` reads a record of each partition to say when it was written. A scrape must not: this
takes the time from the entry of the segment that has the group's position, in proportion. In a
segment with holes, the number of unread records is taken in proportion as well. Whatever lies after
that segment is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from pylogtable.format.group_model import GroupState
from pylogtable.format.log_state import LogState, tiles_from
from pylogtable.format.model import Segment
from pylogtable.format.partition_state import LeafRun, tile_end, tile_start
from pylogtable.read.range_size import is_dense

#: How many records the runs of an index have, by partition, leaf, start and end. They never change.
RunRecords = dict[tuple[int, str, int, int], int]

#: More runs than this are forgotten, and counted again.
MOST_RUNS = 16_384


class Behind(NamedTuple):
    """What a group has not read of a partition, and the time of the first such record."""

    records: int
    first_us: int


class GroupLags:
    """The lag of groups in one state of a topic."""

    def __init__(self, state: LogState, known_runs: RunRecords) -> None:
        self._state = state
        self._known_runs = known_runs
        self._dense: dict[int, bool] = {}

    @cached_property
    def _ends(self) -> Mapping[int, int]:
        return self._state.snapshot.end_offsets

    def of(self, group: GroupState) -> dict[int, Behind]:
        """The partitions in which the group has unread records."""
        positions = group.positions
        found = {}
        for partition, end in self._ends.items():
            entry = positions.get(partition)
            if entry is not None and entry.offset >= end:
                continue
            behind = self._behind(partition, 0 if entry is None else entry.offset)
            if behind is not None:
                found[partition] = behind
        return found

    def _behind(self, partition: int, position: int) -> Behind | None:
        log = self._state.snapshot.partitions[partition]
        at = max(position, log.log_start)
        while at < log.end:
            segment = self._state.segment_at(partition, at)
            if segment is None:
                return None
            if segment.records:
                break
            at = segment.end_offset
        else:
            return None
        if self._is_dense(partition):
            records = log.end - at
        else:
            share = (segment.end_offset - at) / (segment.end_offset - segment.base_offset)
            records = max(1, round(segment.records * share))
            records += self._records_from(partition, segment.end_offset)
        return Behind(records, _time_at(segment, at))

    def _is_dense(self, partition: int) -> bool:
        if partition not in self._dense:
            self._dense[partition] = is_dense(self._state, partition)
        return self._dense[partition]

    def _records_from(self, partition: int, offset: int) -> int:
        """The records from the end of a segment on."""
        total = 0
        for tile in tiles_from(self._state.snapshot.partitions[partition], offset):
            if isinstance(tile, Segment):
                total += tile.records
            else:
                start = max(tile_start(tile), offset)
                total += self._records_of(partition, tile, start)
        return total

    def _records_of(self, partition: int, run: LeafRun, start: int) -> int:
        """The records of a run from an offset on, which are counted once."""
        key = partition, run.leaf, start, tile_end(run)
        known = self._known_runs
        if key not in known:
            if len(known) >= MOST_RUNS:
                known.clear()
            leaf = self._state.leaf(partition, run)
            known[key] = leaf.totals(leaf.rows(partition, start, tile_end(run))).records
        return known[key]


def _time_at(segment: Segment, offset: int) -> int:
    """About when the record at this offset was written."""
    first, last = segment.min_timestamp_us, segment.max_timestamp_us
    length = segment.end_offset - segment.base_offset - 1
    share = (offset - segment.base_offset) / length if length else 0.0
    return first + round((last - first) * share)
