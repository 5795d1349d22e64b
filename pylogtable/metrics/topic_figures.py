"""What is measured of a topic. Pure, except that leaves are loaded by the state that is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pylogtable.format.model import Segment, Totals
from pylogtable.format.partition_state import LeafRun
from pylogtable.format.snapshot import Snapshot
from pylogtable.metrics.group_lag import Behind
from pylogtable.report.measure import measure_partitions


@dataclass(frozen=True)
class StateFigures:
    """What a state tells without its leaves. `inline` is None if an old root does not say it."""

    snapshot: Snapshot
    live: Totals
    inline: Totals | None
    newest_record_us: int | None


@dataclass(frozen=True)
class SegmentFigures:
    """What only the entries of all segments tell."""

    measured_ms: int
    version: int
    small: int
    shifted: int
    mergeable: int
    dirty_ratio: float | None


@dataclass(frozen=True)
class TableFigures:
    """How far a published table was behind when it was looked at."""

    format: str
    is_up: bool
    lag_records: int = 0
    lag_seconds: float = 0.0


@dataclass(frozen=True)
class GroupFigures:
    """A consumer group, and where it was behind at the time of the look. Its state is damaged if it
    is not `is_up`."""

    group: str
    is_up: bool
    members: int = 0
    behind: Mapping[int, Behind] = field(default_factory=dict)
    looked_ms: int = 0

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest unread record at that time."""
        now_us = self.looked_ms * 1000
        first_us = min((one.first_us for one in self.behind.values()), default=now_us)
        return max(0, now_us - first_us) / 1_000_000


def figures_of(snapshot: Snapshot) -> StateFigures:
    """The figures of a state. It looks at the tiles of its partitions, which are a few thousand at
    most."""
    live = snapshot.live
    times = [
        tile.max_timestamp_us
        for state in snapshot.partitions
        for tile in state.tiles
        if isinstance(tile, LeafRun) or tile.records
    ]
    newest_us = max(times) if times and live.records else None
    return StateFigures(snapshot, live, snapshot.inline, newest_us)


def needs_leaves(snapshot: Snapshot) -> bool:
    """True if the entries of some segments are in leaves, which have to be loaded."""
    return any(
        not isinstance(tile, Segment) for state in snapshot.partitions for tile in state.tiles
    )


def segment_figures(snapshot: Snapshot, segments: pa.Table, now_ms: int) -> SegmentFigures:
    """The figures of all live segments."""
    partitions = measure_partitions(snapshot, segments, now_ms)
    ratios = [part.dirty_ratio for part in partitions if part.dirty_ratio is not None]
    return SegmentFigures(
        measured_ms=now_ms,
        version=snapshot.version,
        small=sum(part.small_segments for part in partitions),
        shifted=sum(part.shifted_segments for part in partitions),
        mergeable=sum(part.mergeable_segments for part in partitions),
        dirty_ratio=max(ratios, default=None),
    )
