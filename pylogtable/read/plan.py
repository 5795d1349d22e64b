"""Plans to read: from offset ranges to segments and row groups. Pure, except for loading leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pylogtable.arguments import check_mapping
from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment, Totals
from pylogtable.format.partition_state import totals_of
from pylogtable.format.snapshot import Snapshot
from pylogtable.segments.read_task import ReadTask, task_for

#: Offsets `(start, end)` by partition.
Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Span:
    """`[start, end)` of one partition."""

    partition: int
    start: int
    end: int


def choose_partitions(snapshot: Snapshot, asked: int | Sequence[int] | None) -> list[int]:
    """The partitions of a request; None means all. Raises if one does not exist."""
    if asked is None:
        return list(range(len(snapshot.partitions)))
    if isinstance(asked, str):
        raise InvalidRequestError(
            f"{asked!r} is not a partition: give a number or a list of numbers"
        )
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
    """The span to read of each partition. A missing bound means log start or end [READ-1],
    [READ-2]."""
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


def spans_of(snapshot: Snapshot, ranges: Ranges | None) -> list[Span]:
    """The spans of these ranges, checked; None means all partitions."""
    if ranges is None:
        return plan_spans(snapshot, choose_partitions(snapshot, None), {}, {})
    check_mapping("ranges", ranges, "{0: (0, 100)}, offsets by partition")
    for number, pair in ranges.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidRequestError(
                f"{pair!r} is not a range of partition {number}: give (start, end), as in (0, 100)"
            )
    starts = {number: start for number, (start, _) in ranges.items()}
    ends = {number: end for number, (_, end) in ranges.items()}
    return plan_spans(snapshot, choose_partitions(snapshot, list(ranges)), starts, ends)


def plan_tasks(
    state: LogState,
    spans: Sequence[Span],
    is_wanted: Callable[[Segment], bool] | None = None,
) -> Iterator[ReadTask]:
    """The tasks of a read, in partition and offset order: all, or those of segments that are
    wanted. Leaves are loaded when needed. Whoever reads all of a partition sees whether its
    segments add up [ROOT-5]."""
    for span in spans:
        log = state.snapshot.partitions[span.partition]
        found = Totals()
        for segment in state.segments(span.partition, span.start, span.end):
            found = found.plus(totals_of([segment]))
            if is_wanted is None or is_wanted(segment):
                yield task_for(segment, span.start, span.end)
        if (span.start, span.end) == (log.log_start, log.end):
            state.check_partition_totals(span.partition, found)
