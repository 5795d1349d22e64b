"""Keeps account of what a mirror has done, and tells it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from pylogtable.log.topic_log import TopicLog
from pylogtable.mirror.copying import Copied
from pylogtable.mirror.report import MirrorProgress, MirrorReport


@dataclass
class Account:
    """What was done so far: everything that reports say. `now` is a clock in seconds."""

    topic: str
    source: str
    copy: str
    source_log: TopicLog
    copy_log: TopicLog
    now: Callable[[], float]
    began: float
    records: int = 0
    records_removed: int = 0
    size_bytes: int = 0
    files_copied: int = 0
    files_written: int = 0
    commits: int = 0
    source_version: int | None = None
    gaps: dict[int, tuple[int, int]] = field(default_factory=dict)
    groups: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, copied: Iterable[Copied]) -> None:
        """Count what was copied, though no commit may name it yet."""
        for one in copied:
            self.size_bytes += sum(segment.size_bytes for segment in one.segments)
            if one.is_file:
                self.files_copied += 1
            else:
                self.files_written += len(one.segments)

    @property
    def lag(self) -> dict[int, int]:
        """By partition, how many offsets the copy is behind."""
        mine, theirs = self.copy_log.known.end_offsets, self.source_log.known.end_offsets
        return {number: end - mine.get(number, 0) for number, end in theirs.items()}

    @property
    def seconds(self) -> float:
        return self.now() - self.began

    @property
    def version(self) -> int:
        return self.copy_log.known.version

    def progress(self) -> MirrorProgress:
        return MirrorProgress(self.records, self.size_bytes, self.commits, self.seconds, self.lag)

    def report(self) -> MirrorReport:
        return MirrorReport(**{one.name: getattr(self, one.name) for one in fields(MirrorReport)})
