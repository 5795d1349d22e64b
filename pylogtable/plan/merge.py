"""Plans merges: which neighbouring segments are joined into larger ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pylogtable.format.lookup import LoadLeaf, segments_between
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.snapshot import Snapshot


@dataclass(frozen=True)
class MergeUnit:
    """A unit of work: neighbours in one partition to be rewritten as sealed segments, without the
    records below the log start. Plain data that pickles."""

    topic: TopicInfo
    log_start: int
    inputs: tuple[Segment, ...]

    @property
    def partition(self) -> int:
        return self.inputs[0].partition

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time until which tombstones are kept. Planning made it the same for all inputs."""
        return next((s.delete_horizon_ms for s in self.inputs if s.tombstones), None)


def plan_merge(snapshot: Snapshot, leaves: LoadLeaf, partition: int) -> Iterator[MergeUnit]:
    """Units that join small segments up to `segment.bytes`, seal shifted segments, and drop records
    below the log start.

    Large sealed segments stay, and so does a small one without a small neighbour. Only segments of
    the same kind are joined [MERGE-1]. A clean and a dirty segment are not joined, because the
    result would be dirty.
    """
    limit = snapshot.config.segment_bytes
    state = snapshot.partitions[partition]
    segments = segments_between(snapshot, leaves, partition, state.log_start, state.end)

    def kind(segment: Segment) -> tuple[bool, bool, bool, int | None]:
        is_wanted = misleads(segment, state.log_start) or segment.size_bytes <= limit // 2
        is_clean = segment.end_offset <= state.clean_end
        return is_wanted, is_clean, segment.append_time, segment.hashed_over

    for (is_wanted, *_), neighbours in groupby(segments, kind):
        if is_wanted:
            for inputs in _pack(list(neighbours), limit, state.log_start):
                if len(inputs) > 1 or misleads(inputs[0], state.log_start):
                    yield MergeUnit(snapshot.info, state.log_start, inputs)


def misleads(segment: Segment, log_start: int) -> bool:
    """True if a plain Parquet reader would see wrong offsets, or records below the log start."""
    return segment.shift > 0 or segment.has_below(log_start)


def _pack(
    neighbours: Sequence[Segment], limit: int, log_start: int
) -> Iterator[tuple[Segment, ...]]:
    """Runs of at most `limit` bytes. An entry has one delete horizon for all of its tombstones, so
    tombstones with different horizons are kept apart."""
    gathered: list[Segment] = []
    size = 0
    horizons: set[int | None] = set()
    for segment in neighbours:
        bytes_left = _bytes_left(segment, log_start)
        mine = {segment.delete_horizon_ms} if segment.tombstones else set()
        if gathered and (size + bytes_left > limit or len(horizons | mine) > 1):
            yield tuple(gathered)
            gathered, size, horizons = [], 0, set()
        gathered.append(segment)
        size += bytes_left
        horizons |= mine
    yield tuple(gathered)


def _bytes_left(segment: Segment, log_start: int) -> int:
    """About how many bytes the records at or above the log start take."""
    if not segment.has_below(log_start):
        return segment.size_bytes
    claimed = segment.end_offset - segment.base_offset
    return segment.size_bytes * (segment.end_offset - log_start) // claimed
