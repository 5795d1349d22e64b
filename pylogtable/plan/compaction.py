"""What a compaction cleans, and how what survives is packed. Pure.

A partition has a clean part, which an earlier compaction left, and a dirty part. The newest record
of each key in the dirty part, up to the last segment that is old enough, decides over all older
records of that key, in both parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pylogtable.format.config import FOREVER
from pylogtable.format.lookup import LoadLeaf, segments_between
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.snapshot import Snapshot


@dataclass(frozen=True)
class CompactionUnit:
    """One partition to be compacted. Plain data: a worker needs nothing else but the store.

    `inputs` begin at the log start and end where cleaning ends; from `dirty_from` on they are
    dirty. Records before `expire_before_us` are dropped, tombstones where their time has come.
    """

    topic: TopicInfo
    partition: int
    log_start: int
    dirty_from: int
    inputs: tuple[Segment, ...]
    now_ms: int
    expire_before_us: int | None

    @property
    def end(self) -> int:
        return self.inputs[-1].end_offset

    @property
    def clean_end(self) -> int | None:
        """Up to where the partition is clean afterwards; None if that is no news, as where only
        tombstones go, or where a segment that is too young reaches into the clean part."""
        return self.end if self.end > self.dirty_from else None

    def tombstones_expired(self, segment: Segment) -> bool:
        """Whether the tombstones of this segment have been kept for long enough [CLEAN-4]."""
        horizon = segment.delete_horizon_ms
        return segment.tombstones > 0 and horizon is not None and horizon <= self.now_ms


@dataclass(frozen=True)
class PlannedSwap:
    """Neighbours that become one sequence of new segments, or one that only gets a new entry."""

    inputs: tuple[Segment, ...]
    delete_horizon_ms: int | None
    rewrites: bool


def plan_compaction(
    snapshot: Snapshot,
    leaves: LoadLeaf,
    partition: int,
    now_ms: int,
    *,
    force: bool,
    keep_from: int | None = None,
) -> CompactionUnit | None:
    """The work there is, if enough of the partition is dirty, or has been for too long, or holds
    tombstones whose time has come [CLEAN-1], [CLEAN-2]. No record is dropped for its age if that
    may be one at or after `keep_from`."""
    config = snapshot.config
    state = snapshot.partitions[partition]
    dirty_from = max(state.clean_end, state.log_start)
    segments = list(segments_between(snapshot, leaves, partition, state.log_start, state.end))
    young_us = (now_ms - config.min_compaction_lag_ms) * 1000
    inputs: list[Segment] = []
    for segment in segments:
        is_dirty = segment.end_offset > dirty_from
        if is_dirty and config.min_compaction_lag_ms and segment.max_timestamp_us > young_us:
            break
        inputs.append(segment)
    if not inputs:
        return None
    expire_before_us = None
    is_kept = keep_from is not None and inputs[-1].end_offset > keep_from
    if config.deletes and config.retention_ms is not None and not is_kept:
        expire_before_us = (now_ms - config.retention_ms) * 1000
    work = CompactionUnit(
        topic=snapshot.info,
        partition=partition,
        log_start=state.log_start,
        dirty_from=dirty_from,
        inputs=tuple(inputs),
        now_ms=now_ms,
        expire_before_us=expire_before_us,
    )
    return work if _is_worth_it(snapshot, work, force=force) else None


def _is_worth_it(snapshot: Snapshot, work: CompactionUnit, *, force: bool) -> bool:
    config = snapshot.config
    dirty = [segment for segment in work.inputs if segment.end_offset > work.dirty_from]
    if any(map(work.tombstones_expired, work.inputs)):
        return True
    if not dirty:
        return False
    if force:
        return True
    overdue_us = (work.now_ms - config.max_compaction_lag_ms) * 1000
    if any(segment.records and segment.min_timestamp_us < overdue_us for segment in dirty):
        return True
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    total_bytes = sum(segment.size_bytes for segment in work.inputs)
    return dirty_bytes > config.min_cleanable_dirty_ratio * total_bytes


def plan_swaps(
    work: CompactionUnit, survivors: Sequence[int], delete_retention_ms: int, segment_bytes: int
) -> Iterator[PlannedSwap]:
    """Which inputs are written anew, and together, given how many records survive in each.

    A segment in which nothing died stays as it is, but that its tombstones' time begins to run.
    Neighbours are joined up to `segment_bytes`, unless their tombstones have different times or
    their timestamps are of different types: what an entry says holds for all that is in its file.
    """
    marked = [
        (segment, alive, _horizon(work, segment, delete_retention_ms))
        for segment, alive in zip(work.inputs, survivors, strict=True)
    ]

    def kind(entry: tuple[Segment, int, int | None]) -> tuple[bool, bool]:
        segment, alive, _ = entry
        return alive < segment.records, segment.append_time

    for (rewrites, _), run in groupby(marked, kind):
        if not rewrites:
            for segment, _, horizon in run:
                if segment.delete_horizon_ms != horizon:
                    yield PlannedSwap((segment,), horizon, rewrites=False)
            continue
        gathered: list[Segment] = []
        size = 0
        common: int | None = None
        for segment, alive, horizon in run:
            left = segment.size_bytes * alive // max(1, segment.records)
            differs = horizon is not None and common is not None and horizon != common
            if gathered and (size + left > segment_bytes or differs):
                yield PlannedSwap(tuple(gathered), common, rewrites=True)
                gathered, size, common = [], 0, None
            gathered.append(segment)
            size += left
            common = horizon if common is None else common
        yield PlannedSwap(tuple(gathered), common, rewrites=True)


def _horizon(work: CompactionUnit, segment: Segment, delete_retention_ms: int) -> int | None:
    """Until when the tombstones that are left here are to be kept: set once [CLEAN-4]."""
    if not segment.tombstones or work.tombstones_expired(segment):
        return None
    if segment.delete_horizon_ms is not None:
        return segment.delete_horizon_ms
    return min(work.now_ms + delete_retention_ms, FOREVER)
