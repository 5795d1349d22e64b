"""Plans which records a copy has to lose because its source has lost them. Pure.

Compaction, erase and others only ever remove records. A copy that follows its source has all
records that the source has, and perhaps more. So wherever both have the same number of records in
the same range of offsets, they have the same records [MIR-6]. Files need not be compared, and a
merge on either side changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from pylogtable.errors import InvalidRequestError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit, Mirror, Replaced, Segment
from pylogtable.format.partition_state import totals_of
from pylogtable.jobs.rebase_compaction_plan import Piece
from pylogtable.jobs.replace_plan import Swap, plan_swap_commit, still_fits
from pylogtable.limits import Limits
from pylogtable.mirror.plan import CopyUnit, OvertakenError

#: How many records of a segment have an offset of at least this one. It may read a file.
CountFrom = Callable[[Segment, int], int]


@dataclass(frozen=True)
class Stretch:
    """Segments of a copy that have records which the source no longer has, and what replaces
    them."""

    inputs: tuple[Segment, ...]
    units: tuple[CopyUnit, ...]

    @property
    def partition(self) -> int:
        return self.inputs[0].partition


@dataclass(frozen=True)
class Side:
    """One of the two topics: its state, and how its records are counted."""

    state: LogState
    count_from: CountFrom

    def count(self, segments: Iterable[Segment], start: int, end: int) -> int:
        """The records of these segments in `[start, end)`."""
        return sum(self._count_one(segment, start, end) for segment in segments)

    def _count_one(self, segment: Segment, start: int, end: int) -> int:
        cuts_start, cuts_end = segment.has_below(start), end < segment.end_offset
        if segment.is_dense:
            return min(end, segment.end_offset) - max(start, segment.base_offset)
        records = self.count_from(segment, start) if cuts_start else segment.records
        return records - (self.count_from(segment, end) if cuts_end else 0)


def shrunken_partitions(commits: Iterable[Commit], topic_id: str) -> set[int]:
    """The partitions in which one of these commits may have removed records by replacing
    segments."""
    found = set()
    for commit in commits:
        if commit.topic_id != topic_id:
            continue
        for swap in commit.replaced:
            if sum(segment.records for segment in _outputs(commit, swap)) < swap.dropped.records:
                found.add(swap.partition)
    return found


def new_files(commits: Iterable[Commit], topic_id: str, seen: int) -> frozenset[str]:
    """The files that commits after the version `seen` have added to the source, and that it did not
    have before. A copy that has seen no later version cannot have had them [MIR-7]."""
    added: set[str] = set()
    for commit in commits:
        if commit.topic_id == topic_id and commit.version > seen:
            added.update(segment.path for segment in commit.add)
            added.difference_update(_kept_files(commit))
    return frozenset(added)


def _kept_files(commit: Commit) -> Iterator[str]:
    """Files that may stay while their entry is replaced [CLEAN-4]: one for one, of one size."""
    for swap in commit.replaced:
        outputs = _outputs(commit, swap)
        if totals_of(outputs) == swap.dropped:
            yield from (segment.path for segment in outputs)


def _outputs(commit: Commit, swap: Replaced) -> list[Segment]:
    """The segments of the commit that replace this range [LOG-7]."""
    return [
        segment
        for segment in commit.add
        if segment.partition == swap.partition and swap.start <= segment.base_offset < swap.end
    ]


def plan_removals(copy: Side, source: Side, partition: int) -> Iterator[Stretch]:
    """The stretches of a partition in which the copy has more records than the source. Above the
    end of the copy nothing is looked at."""
    mine, theirs = (side.state.snapshot.partitions[partition] for side in (copy, source))
    low, high = max(mine.log_start, theirs.log_start), mine.end
    if low >= high:
        return
    ours = [*copy.state.segments(partition, low, high)]
    others = [*source.state.segments(partition, low, high)]
    bounds = sorted(_bounds(ours, low, high) & _bounds(others, low, high))
    for start, end in pairwise(bounds):
        here = _overlapping(ours, start, end)
        there = _overlapping(others, start, end)
        if [segment.path for segment in here] == [segment.path for segment in there]:
            continue
        had, has = copy.count(here, start, end), source.count(there, start, end)
        if had < has:
            raise InvalidRequestError(
                f"the copy has {had} records in offsets [{start}, {end}) of partition {partition}, "
                f"and its source has {has}: somebody has removed records from the copy. Nothing "
                "was written. Mirror to another store, or under another name"
            )
        if had > has:
            yield Stretch(tuple(here), tuple(_units(partition, here, there, start, end)))


def in_commits(stretches: Iterable[Stretch], limits: Limits) -> Iterator[list[Stretch]]:
    """Stretches that one commit replaces. A mirror that is killed has lost no more than that."""
    gathered: list[Stretch] = []
    units = size = 0
    for stretch in stretches:
        gathered.append(stretch)
        units += len(stretch.units)
        size += sum(unit.size_bytes for unit in stretch.units)
        if units >= limits.mirror_removal_units or size >= limits.mirror_removal_bytes:
            yield gathered
            gathered, units, size = [], 0, 0
    if gathered:
        yield gathered


def plan_removal_commit(
    copy: LogState, mirror: Mirror, results: Sequence[tuple[Stretch, Sequence[Segment]]]
) -> Change:
    """Replace stretches by what the source has. Those whose segments have changed meanwhile are
    left for the next time; `OvertakenError` if none is left."""
    swaps = [Swap(stretch.inputs, tuple(outputs)) for stretch, outputs in results]
    fitting = [swap for swap in swaps if still_fits(copy, swap)]
    if not fitting:
        raise OvertakenError("another job has changed these segments of the copy")
    removed = sum(
        sum(s.records for s in swap.inputs) - sum(s.records for s in swap.outputs)
        for swap in fitting
    )
    change = plan_swap_commit(copy, "mirror", fitting, summary={"records_removed": removed})
    return msgspec.structs.replace(change, mirror=mirror)


def _bounds(segments: Sequence[Segment], low: int, high: int) -> set[int]:
    """Where one of the segments begins, and both ends of the range."""
    return {low, high, *(s.base_offset for s in segments if low < s.base_offset < high)}


def _overlapping(segments: Sequence[Segment], start: int, end: int) -> Sequence[Segment]:
    first = bisect_right(segments, start, key=lambda segment: segment.end_offset)
    last = bisect_left(segments, end, key=lambda segment: segment.base_offset)
    return segments[first:last]


def _units(
    partition: int, here: Sequence[Segment], there: Sequence[Segment], start: int, end: int
) -> Iterator[CopyUnit]:
    """What the source has in `[start, end)`, as units that cover all offsets of `here`."""
    at, last = here[0].base_offset, here[-1].end_offset
    for number, segment in enumerate(there):
        first, stop = max(segment.base_offset, start), min(segment.end_offset, end)
        until = last if number == len(there) - 1 else stop
        piece = Piece(segment, first, stop, segment.delete_horizon_ms)
        yield CopyUnit(partition, at, until, (piece,))
        at = until
