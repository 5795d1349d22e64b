"""A unit of work that reads segments of one partition and may replace them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pylogtable.format.model import Segment, TopicInfo


@dataclass(frozen=True)
class RewriteUnit:
    """Segments of one partition, and where its log starts. Plain data that pickles."""

    topic: TopicInfo
    log_start: int
    inputs: tuple[Segment, ...]

    @property
    def partition(self) -> int:
        return self.inputs[0].partition
