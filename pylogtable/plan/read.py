"""From offset ranges to the row groups that can hold them. Pure but for loading leaves."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.lookup import LoadLeaf, segments_between
from pylogtable.format.model import Segment
from pylogtable.format.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Span:
    """`[start, end)` of one partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The records of `segment` with offsets in `[start, end)`; `row_groups` alone can hold them."""

    segment: Segment
    start: int
    end: int
    row_groups: range


def choose_partitions(snapshot: Snapshot, asked: int | Sequence[int] | None) -> list[int]:
    """The partitions of a request, or an error for one that there is not."""
    if asked is None:
        return list(range(len(snapshot.partitions)))
    if isinstance(asked, str):
        raise InvalidRequestError(f"{asked!r} is not a partition: give a number or several")
    chosen = list(asked) if isinstance(asked, Iterable) else [asked]
    for number in chosen:
        snapshot.check_partition(number)
    return chosen


def plan_spans(
    snapshot: Snapshot,
    partitions: Sequence[int],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> list[Span]:
    """What to read of each partition; a bound not given is the log's own [READ-1], [READ-2]."""
    spans = []
    for number in partitions:
        state = snapshot.partitions[number]
        start = starts.get(number, state.log_start)
        end = ends.get(number, state.end)
        for offset in (start, end):
            if not state.log_start <= offset <= state.end:
                raise OffsetOutOfRangeError(number, offset, state.log_start, state.end)
        if start > end:
            raise InvalidRequestError(
                f"partition {number}: start {start} is greater than end {end}"
            )
        spans.append(Span(number, start, end))
    return spans


def plan_tasks(snapshot: Snapshot, leaves: LoadLeaf, spans: Sequence[Span]) -> Iterator[ReadTask]:
    """The tasks of a read, in partition and offset order, lazily: a leaf is loaded at its turn."""
    for span in spans:
        for segment in segments_between(snapshot, leaves, span.partition, span.start, span.end):
            yield task_for(segment, span.start, span.end)


def task_for(segment: Segment, start: int, end: int) -> ReadTask:
    """The part of a read that falls into one segment [READ-3]."""
    low = max(start, segment.base_offset)
    high = min(end, segment.end_offset)
    firsts = segment.row_groups
    first = max(0, bisect_right(firsts, low - segment.base_offset) - 1)
    stop = bisect_left(firsts, high - segment.base_offset)
    return ReadTask(segment, low, high, range(first, max(first, stop)))
