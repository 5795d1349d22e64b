"""What a topic is like: the numbers that a report shows and that advice is given on. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pylogtable.format.config import TopicConfig
from pylogtable.results.groups import GroupLag


class Cell(NamedTuple):
    """Segments, or commits, side by side in `[start, end)` of offsets, milliseconds or bytes."""

    start: int
    end: int
    segments: int
    records: int
    size_bytes: int


@dataclass(frozen=True)
class PartitionHealth:
    """One partition. `small` segments are at most half of `segment.bytes`; `joinable` ones a merge
    would write anew; `expired` is what retention would let go of now. `dirty_ratio` is None where
    nothing is ever compacted, `cleanable` says that compaction would do something."""

    partition: int
    log_start: int
    end: int
    clean_end: int
    segments: int
    records: int
    size_bytes: int
    small: int = 0
    shifted: int = 0
    joinable: int = 0
    joinable_bytes: int = 0
    expired_segments: int = 0
    expired_records: int = 0
    expired_bytes: int = 0
    dirty_ratio: float | None = None
    cleanable: bool = False


@dataclass(frozen=True)
class GroupHealth:
    """A group's lag, and what becomes of what it has not read: `lost` offsets were removed unread,
    `expiring` records retention would remove unread now, and in `left_ms` the next would follow.
    `error` says why nothing is known, of all groups if this one has no name."""

    group: str
    lag: GroupLag | None = None
    lost: int = 0
    expiring: int = 0
    left_ms: int | None = None
    error: str | None = None


class Operation(NamedTuple):
    """What the commits of one kind did."""

    name: str
    commits: int
    segments_added: int
    records_added: int
    bytes_added: int
    segments_removed: int


@dataclass(frozen=True)
class Growth:
    """The newest commits: what appends brought, by time, and what every operation did. Of the files
    that were replaced or let go, `removable` may go at a vacuum now and `waiting` later."""

    commits: int = 0
    complete: bool = True
    appended: tuple[Cell, ...] = ()
    operations: tuple[Operation, ...] = ()
    removable: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class TopicHealth:
    """A topic at one version. `strips` has the segments of the first partitions over their offsets,
    `times` those of all by the time of their newest record, `sizes` by their size."""

    name: str
    version: int
    committed_at_ms: int
    now_ms: int
    key: tuple[str, ...]
    config: TopicConfig
    settings: Mapping[str, str]
    partitions: tuple[PartitionHealth, ...]
    strips: Mapping[int, tuple[Cell, ...]]
    times: tuple[Cell, ...]
    sizes: tuple[Cell, ...]
    growth: Growth
    groups: tuple[GroupHealth, ...]

    def total(self, field: str) -> int:
        """The sum of a field over all partitions."""
        return sum(getattr(part, field) for part in self.partitions)

    @property
    def dirty_ratio(self) -> float | None:
        """That of the dirtiest partition."""
        ratios = [part.dirty_ratio for part in self.partitions if part.dirty_ratio is not None]
        return max(ratios, default=None)


@dataclass(frozen=True)
class FailedTopic:
    """A topic that could not be read."""

    name: str
    error: str
