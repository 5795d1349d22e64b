"""Plans compactions: which segments to read, and which to rewrite. Pure.

A partition has a clean part, which an earlier compaction left, and a dirty part after it. The
newest record of each key in the dirty part replaces all older records of that key, in both parts.
Segments that are too young do not take part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pylogtable.format.config import FOREVER
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partition_state import PartitionState, tile_end, tile_start
from pylogtable.format.snapshot import Snapshot


@dataclass(frozen=True)
class CompactionUnit:
    """A unit of work: one partition to compact. Plain data that pickles.

    `inputs` begin at the log start and end where the compaction ends. They are dirty from
    `dirty_from` on. Records older than `expire_before_us` are dropped, and so are tombstones whose
    delete horizon has passed.
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
        """The end of the clean part after this compaction. None if the clean part does not grow:
        only tombstones are removed, or a segment that is too young reaches into the clean part."""
        return self.end if self.end > self.dirty_from else None

    def delete_horizon_ms(self, delete_retention_ms: int) -> int:
        """Until when tombstones are kept that this compaction is the first to see [CLEAN-4]."""
        return min(self.now_ms + delete_retention_ms, FOREVER)

    def tombstones_expired(self, segment: Segment) -> bool:
        """True if the tombstones of this segment have been kept for long enough [CLEAN-4]."""
        horizon = segment.delete_horizon_ms
        return segment.tombstones > 0 and horizon is not None and horizon <= self.now_ms


@dataclass(frozen=True)
class PlannedSwap:
    """Neighbouring segments to be rewritten together. If `rewrites` is false, this is one segment:
    its file stays, and its entry gets this delete horizon."""

    inputs: tuple[Segment, ...]
    delete_horizon_ms: int | None
    rewrites: bool


def plan_compaction(
    state: LogState,
    partition: int,
    now_ms: int,
    *,
    force: bool,
    keep_from: int | None = None,
) -> CompactionUnit | None:
    """The unit of work for a partition, or None if it need not be compacted yet.

    It is compacted if enough of it is dirty, or has been dirty for too long, or has tombstones
    whose delete horizon has passed [CLEAN-1], [CLEAN-2]. If the inputs have offsets at or above
    `keep_from`, no record is dropped for its age.
    """
    snapshot = state.snapshot
    config = snapshot.config
    log = snapshot.partitions[partition]
    dirty_from = max(log.clean_end, log.log_start)
    young_us = (now_ms - config.min_compaction_lag_ms) * 1000
    inputs: list[Segment] = []
    for segment in state.segments(partition):
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
    unit = CompactionUnit(
        topic=snapshot.info,
        partition=partition,
        log_start=log.log_start,
        dirty_from=dirty_from,
        inputs=tuple(inputs),
        now_ms=now_ms,
        expire_before_us=expire_before_us,
    )
    return unit if _is_due(snapshot, unit, force=force) else None


def records_not_compacted(snapshot: Snapshot) -> int:
    """How many records lie above the clean ends. At most so many records are not the newest of
    their key in their partition: up to the clean end, no key has two records [LOG-9].

    It costs nothing, because no leaf is loaded: in a run of a leaf, every offset counts as a
    record."""
    return sum(map(_records_not_compacted, snapshot.partitions))


def _records_not_compacted(state: PartitionState) -> int:
    dirty_from = max(state.clean_end, state.log_start)
    records = 0
    for tile in state.tiles:
        offsets = tile_end(tile) - max(tile_start(tile), dirty_from)
        if offsets > 0:
            records += min(tile.records, offsets) if isinstance(tile, Segment) else offsets
    return min(records, state.live.records)


def _is_due(snapshot: Snapshot, unit: CompactionUnit, *, force: bool) -> bool:
    config = snapshot.config
    dirty = [segment for segment in unit.inputs if segment.end_offset > unit.dirty_from]
    if any(map(unit.tombstones_expired, unit.inputs)):
        return True
    if not dirty:
        return False
    if force:
        return True
    overdue_us = (unit.now_ms - config.max_compaction_lag_ms) * 1000
    if any(segment.records and segment.min_timestamp_us < overdue_us for segment in dirty):
        return True
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    total_bytes = sum(segment.size_bytes for segment in unit.inputs)
    return dirty_bytes > config.min_cleanable_dirty_ratio * total_bytes


def plan_swaps(
    unit: CompactionUnit, kept: Sequence[int], delete_retention_ms: int, segment_bytes: int
) -> Iterator[PlannedSwap]:
    """Which inputs are rewritten, and which of them together. `kept` has the number of records to
    keep in each input.

    A segment that keeps all of its records is not rewritten, but its tombstones get their delete
    horizon. Neighbours are joined up to `segment_bytes`. They stay apart if their delete horizons
    or timestamp types differ, since an entry has one of each for the whole file.
    """
    planned = [
        (segment, count, _delete_horizon(unit, segment, delete_retention_ms))
        for segment, count in zip(unit.inputs, kept, strict=True)
    ]

    def kind(entry: tuple[Segment, int, int | None]) -> tuple[bool, bool]:
        segment, count, _ = entry
        return count < segment.records, segment.append_time

    for (rewrites, _), neighbours in groupby(planned, kind):
        if not rewrites:
            for segment, _, horizon in neighbours:
                if segment.delete_horizon_ms != horizon:
                    yield PlannedSwap((segment,), horizon, rewrites=False)
            continue
        gathered: list[Segment] = []
        size = 0
        common: int | None = None
        for segment, count, horizon in neighbours:
            bytes_left = segment.size_bytes * count // max(1, segment.records)
            differs = horizon is not None and common is not None and horizon != common
            if gathered and (size + bytes_left > segment_bytes or differs):
                yield PlannedSwap(tuple(gathered), common, rewrites=True)
                gathered, size, common = [], 0, None
            gathered.append(segment)
            size += bytes_left
            common = horizon if common is None else common
        yield PlannedSwap(tuple(gathered), common, rewrites=True)


def _delete_horizon(unit: CompactionUnit, segment: Segment, delete_retention_ms: int) -> int | None:
    """The time until which the remaining tombstones are kept. It is set only once [CLEAN-4]."""
    if not segment.tombstones or unit.tombstones_expired(segment):
        return None
    if segment.delete_horizon_ms is not None:
        return segment.delete_horizon_ms
    return unit.delete_horizon_ms(delete_retention_ms)
