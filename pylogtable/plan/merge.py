"""Which neighbouring segments are joined into larger ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pylogtable.lookup import LoadLeaf, segments_between
from pylogtable.model import Segment
from pylogtable.snapshot import Snapshot


@dataclass(frozen=True)
class MergeWork:
    """Neighbours in one partition to be written anew as sealed segments. Plain data."""

    inputs: tuple[Segment, ...]

    @property
    def partition(self) -> int:
        return self.inputs[0].partition


def plan_merge(snapshot: Snapshot, leaves: LoadLeaf, partition: int) -> Iterator[MergeWork]:
    """Small segments are joined up to `segment.bytes`, shifted ones sealed; what is large and
    sealed is left alone, and so is a small one with no small neighbour."""
    limit = snapshot.config.segment_bytes
    state = snapshot.partitions[partition]
    segments = segments_between(snapshot, leaves, partition, state.log_start, state.end)

    def kind(segment: Segment) -> tuple[bool, bool, int | None, int | None]:
        wanted = segment.shift > 0 or segment.size_bytes <= limit // 2
        return wanted, segment.append_time, _tombstone_time(segment), segment.hashed_over

    for (wanted, *_), run in groupby(segments, kind):
        if wanted:
            yield from _pack(list(run), limit)


def _pack(run: Sequence[Segment], limit: int) -> Iterator[MergeWork]:
    gathered: list[Segment] = []
    size = 0
    for segment in run:
        if gathered and size + segment.size_bytes > limit:
            yield from _worth_it(gathered)
            gathered, size = [], 0
        gathered.append(segment)
        size += segment.size_bytes
    yield from _worth_it(gathered)


def _worth_it(inputs: Sequence[Segment]) -> Iterator[MergeWork]:
    if len(inputs) > 1 or any(segment.shift for segment in inputs):
        yield MergeWork(tuple(inputs))


def _tombstone_time(segment: Segment) -> int | None:
    """Tombstones with different times to go are kept apart: an entry has one for all of its own;
    None if there are none, -1 if their time has not begun."""
    if not segment.tombstones:
        return None
    return -1 if segment.delete_horizon_ms is None else segment.delete_horizon_ms
