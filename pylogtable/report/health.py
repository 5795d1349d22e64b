"""The numbers that the report shows and that advice is based on. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pylogtable.format.config import TopicConfig
from pylogtable.groups.report import GroupLag
from pylogtable.read.description import PublishedStatus


class Bin(NamedTuple):
    """One bin of a histogram: the segments, or the commits, in `[start, end)`. The bounds are
    offsets, milliseconds or bytes."""

    start: int
    end: int
    segments: int
    records: int
    size_bytes: int


@dataclass(frozen=True)
class PartitionHealth:
    """One partition.

    - `small_segments` have at most half of `segment.bytes`.
    - `shifted_segments` have offsets that plain Parquet readers see wrongly.
    - `inline_*`: what is in commits, and in no file. It is neither small nor shifted.
    - `mergeable_*`: what a merge would rewrite.
    - `expired_*`: what retention would remove now.
    - `records_not_compacted` lie above the clean end; 0 if the topic is never compacted. At most so
      many records are not the newest of their key in this partition.
    - `dirty_ratio`: None if the topic is never compacted.
    - `cleanable`: true if a compaction would do something now.
    """

    partition: int
    log_start: int
    end: int
    clean_end: int
    segments: int
    records: int
    size_bytes: int
    small_segments: int = 0
    shifted_segments: int = 0
    inline_segments: int = 0
    inline_records: int = 0
    inline_bytes: int = 0
    mergeable_segments: int = 0
    mergeable_bytes: int = 0
    expired_segments: int = 0
    expired_records: int = 0
    expired_bytes: int = 0
    records_not_compacted: int = 0
    dirty_ratio: float | None = None
    cleanable: bool = False


@dataclass(frozen=True)
class GroupHealth:
    """A consumer group's lag, and the records it loses before reading them.

    - `lost_offsets` were removed before the group read them.
    - `expiring_records` would be removed unread if retention ran now.
    - `ms_until_loss`: time until retention may remove the next unread record. None if it never
      does.
    - `error`: why nothing is known. An empty `group` means all groups of the topic.
    """

    group: str
    lag: GroupLag | None = None
    lost_offsets: int = 0
    expiring_records: int = 0
    ms_until_loss: int | None = None
    error: str | None = None


class OperationTotals(NamedTuple):
    """What all commits of one operation did together."""

    operation: str
    commits: int
    segments_added: int
    records_added: int
    bytes_added: int
    segments_removed: int


@dataclass(frozen=True)
class Growth:
    """What the newest commits did: appends by time, and totals by operation. `is_complete` is false
    if there are older commits. Of the files that were replaced or dropped, a vacuum can remove
    `removable_files` now and `waiting_files` later."""

    commits: int = 0
    is_complete: bool = True
    appended: tuple[Bin, ...] = ()
    operations: tuple[OperationTotals, ...] = ()
    removable_files: int = 0
    waiting_files: int = 0


@dataclass(frozen=True)
class TopicHealth:
    """A topic at one version, with its segments in bins: by offset for each of the first
    partitions, by the time of their newest record, and by size. `published` has the tables that
    `publish.formats` asks for, as far as they are there."""

    name: str
    version: int
    committed_at_ms: int
    now_ms: int
    key: tuple[str, ...]
    config: TopicConfig
    settings: Mapping[str, str]
    partitions: tuple[PartitionHealth, ...]
    bins_by_offset: Mapping[int, tuple[Bin, ...]]
    bins_by_time: tuple[Bin, ...]
    bins_by_size: tuple[Bin, ...]
    growth: Growth
    groups: tuple[GroupHealth, ...]
    published: tuple[PublishedStatus, ...] = ()

    def total(self, field: str) -> int:
        """The sum of a field over all partitions."""
        return sum(getattr(part, field) for part in self.partitions)

    @property
    def dirty_ratio(self) -> float | None:
        """The ratio of the dirtiest partition. None if the topic is never compacted."""
        ratios = [part.dirty_ratio for part in self.partitions if part.dirty_ratio is not None]
        return max(ratios, default=None)


@dataclass(frozen=True)
class UnreadableTopic:
    """A topic that could not be read, and why."""

    name: str
    error: str
