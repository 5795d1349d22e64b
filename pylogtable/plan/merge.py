"""Which neighbouring segments are joined into larger ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pylogtable.format.lookup import LoadLeaf, segments_between
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.snapshot import Snapshot


@dataclass(frozen=True)
class MergeUnit:
    """Neighbours in one partition to be written anew as sealed segments, without what lies below
    the log start. Plain data."""

    topic: TopicInfo
    log_start: int
    inputs: tuple[Segment, ...]

    @property
    def partition(self) -> int:
        return self.inputs[0].partition


def plan_merge(snapshot: Snapshot, leaves: LoadLeaf, partition: int) -> Iterator[MergeUnit]:
    """Small segments are joined up to `segment.bytes`, shifted ones sealed, and of one that the log
    start cuts only what is above it stays; what is large and sealed is left alone, and so is a
    small one with no small neighbour. Only like is joined with like [MERGE-1]; clean with dirty
    would make the clean dirty again."""
    limit = snapshot.config.segment_bytes
    state = snapshot.partitions[partition]
    segments = segments_between(snapshot, leaves, partition, state.log_start, state.end)

    def kind(segment: Segment) -> tuple[bool, bool, bool, int | None]:
        wanted = _must_go(segment, state.log_start) or segment.size_bytes <= limit // 2
        is_clean = segment.end_offset <= state.clean_end
        return wanted, is_clean, segment.append_time, segment.hashed_over

    for (wanted, *_), run in groupby(segments, kind):
        if wanted:
            for inputs in _pack(list(run), limit, state.log_start):
                if len(inputs) > 1 or _must_go(inputs[0], state.log_start):
                    yield MergeUnit(snapshot.info, state.log_start, inputs)


def _must_go(segment: Segment, log_start: int) -> bool:
    """Whether who reads the bare file is told what is not so: other offsets, or records that are
    no longer there."""
    return segment.shift > 0 or segment.has_below(log_start)


def _pack(run: Sequence[Segment], limit: int, log_start: int) -> Iterator[tuple[Segment, ...]]:
    gathered: list[Segment] = []
    size = 0
    time: int | None = None
    for segment in run:
        mine = _tombstone_time(segment)
        left = _bytes_left(segment, log_start)
        differs = mine is not None and time is not None and mine != time
        if gathered and (size + left > limit or differs):
            yield tuple(gathered)
            gathered, size, time = [], 0, None
        gathered.append(segment)
        size += left
        time = mine if time is None else time
    yield tuple(gathered)


def _bytes_left(segment: Segment, log_start: int) -> int:
    if not segment.has_below(log_start):
        return segment.size_bytes
    claimed = segment.end_offset - segment.base_offset
    return segment.size_bytes * (segment.end_offset - log_start) // claimed


def _tombstone_time(segment: Segment) -> int | None:
    """Tombstones with different times to go are kept apart: an entry has one for all of its own;
    None if there are none, -1 if their time has not begun."""
    if not segment.tombstones:
        return None
    return -1 if segment.delete_horizon_ms is None else segment.delete_horizon_ms
