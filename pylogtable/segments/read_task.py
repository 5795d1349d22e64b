"""What a read takes from one segment: offsets, and the row groups that have them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from pylogtable.format.model import Segment


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The records of `segment` with offsets in `[start, end)`. They are all in `row_groups`."""

    segment: Segment
    start: int
    end: int
    row_groups: range


def task_for(segment: Segment, start: int, end: int) -> ReadTask:
    """The part of a read of `[start, end)` that falls into one segment [READ-3]."""
    low = max(start, segment.base_offset)
    high = min(end, segment.end_offset)
    firsts = segment.row_groups
    first = max(0, bisect_right(firsts, low - segment.base_offset) - 1)
    stop = bisect_left(firsts, high - segment.base_offset)
    return ReadTask(segment, low, high, range(first, max(first, stop)))


def one_group_each(task: ReadTask) -> Iterator[ReadTask]:
    """The task in tasks of one row group each, in order."""
    segment = task.segment
    firsts = [segment.base_offset + first for first in segment.row_groups]
    ends = [*firsts[1:], segment.end_offset]
    for group in task.row_groups:
        start, end = max(task.start, firsts[group]), min(task.end, ends[group])
        yield ReadTask(segment, start, end, range(group, group + 1))
