"""Plans merges: which neighbouring segments are joined into larger ones. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.replace_plan import RewriteUnit
from pylogtable.read.plan import Span


@dataclass(frozen=True)
class MergeUnit(RewriteUnit):
    """Neighbours to be rewritten as sealed segments, without the records below the log start."""

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time until which tombstones are kept. Planning made it the same for all inputs."""
        return next((s.delete_horizon_ms for s in self.inputs if s.tombstones), None)


def plan_merge(
    state: LogState, partition: int, *, takes_inline: bool = True
) -> Iterator[MergeUnit]:
    """Units that join small segments up to `segment.bytes`, seal shifted segments, write files for
    records that are in commits, and drop records below the log start.

    Large sealed segments stay, and so does a small one without a small neighbour. Only segments of
    the same kind are joined [MERGE-1]. A clean and a dirty segment are not joined, because the
    result would be dirty.
    """
    snapshot = state.snapshot
    limit = snapshot.config.segment_bytes
    log = snapshot.partitions[partition]

    def kind(segment: Segment) -> tuple[bool, tuple[object, ...]]:
        is_wanted = misleads(segment, log.log_start) or segment.size_bytes <= limit // 2
        is_wanted = is_wanted and (takes_inline or not segment.is_inline)
        return is_wanted, _kind(segment, log.clean_end)

    for (is_wanted, _), neighbours in groupby(state.segments(partition), kind):
        if is_wanted:
            for inputs in _pack(list(neighbours), limit, log.log_start):
                if len(inputs) > 1 or misleads(inputs[0], log.log_start):
                    yield MergeUnit(snapshot.info, log.log_start, inputs)


def plan_regular_merge(state: LogState) -> list[MergeUnit]:
    """The units of all partitions, for a merge that runs again and again: records in commits wait
    until they are worth a file."""
    numbers = range(len(state.snapshot.partitions))
    plans = [list(plan_merge(state, number)) for number in numbers]
    waiting = [[s for unit in plan for s in unit.inputs if s.is_inline] for plan in plans]
    if sum(map(len, waiting)) < state.limits.worth_segments:
        for number, few in enumerate(waiting):
            if few and sum(segment.size_bytes for segment in few) < state.limits.worth_bytes:
                plans[number] = list(plan_merge(state, number, takes_inline=False))
    return [unit for plan in plans for unit in plan]


def plan_continuous_merge(state: LogState, copied: Iterable[Span] = ()) -> list[MergeUnit]:
    """The units of all partitions, for a merge that comes back every few seconds.

    Small segments wait until there are enough neighbours of about the same number of records. So a
    record is written again a few times for each power of ten, however often this is called, and the
    number of small segments stays bounded. Only the newest segments are looked at. Records in
    commits wait until they are worth a file; those of a published topic get one by the publication.

    What tables show by copies of their own, in the offsets `copied`, does not wait: the publication
    has lost a race there, and does not come back to it [PUB-2].
    """
    snapshot, limits = state.snapshot, state.limits
    numbers = range(len(snapshot.partitions))
    newest = [_newest(state, number) for number in numbers]
    units = list(_plan_copied(state, copied))
    taken = {segment.path for unit in units for segment in unit.inputs}
    for number in numbers:
        units += _plan_joins(state, number, newest[number], taken)
    if not snapshot.config.publish_formats:

        def waits(segment: Segment) -> bool:
            return segment.is_inline and segment.path not in taken

        inline = [[*filter(waits, few)] for few in newest]
        is_many = sum(map(len, inline)) >= limits.worth_segments
        for number, few in enumerate(inline):
            if few and (is_many or sum(s.size_bytes for s in few) >= limits.worth_bytes):
                for are_waiting, some in groupby(newest[number], waits):
                    units += plan_files(snapshot, list(some)) if are_waiting else ()
    return units


def _plan_copied(state: LogState, copied: Iterable[Span]) -> Iterator[MergeUnit]:
    """Units that replace what still misleads a plain reader in these offsets. They may be anywhere
    in the log."""
    found: dict[tuple[int, int], Segment] = {}
    for span in copied:
        if span.partition < len(state.snapshot.partitions):
            log_start = state.snapshot.partitions[span.partition].log_start
            for segment in state.segments(span.partition, span.start, span.end):
                if misleads(segment, log_start):
                    found[span.partition, segment.base_offset] = segment
    run: list[Segment] = []
    for _, segment in sorted(found.items()):
        is_next = run and run[-1].partition == segment.partition
        if not is_next or run[-1].end_offset != segment.base_offset:
            yield from plan_files(state.snapshot, run)
            run = []
        run.append(segment)
    yield from plan_files(state.snapshot, run)


def _newest(state: LogState, partition: int) -> list[Segment]:
    """The newest segments of a partition, in offset order."""
    backwards = state.segments_backwards(partition)
    return list(islice(backwards, state.limits.merge_looks_back))[::-1]


def _plan_joins(
    state: LogState, partition: int, newest: Sequence[Segment], taken: Container[str]
) -> Iterator[MergeUnit]:
    snapshot = state.snapshot
    limit = snapshot.config.segment_bytes
    log = snapshot.partitions[partition]

    def kind(segment: Segment) -> tuple[bool, tuple[object, ...]]:
        is_small = segment.size_bytes <= limit // 2 and not segment.is_inline
        return is_small and segment.path not in taken, _kind(segment, log.clean_end)

    for (is_small, _), neighbours in groupby(newest, kind):
        for run in _worth_joining(list(neighbours), state.limits.merge_least) if is_small else ():
            for inputs in _pack(run, limit, log.log_start):
                if len(inputs) > 1:
                    yield MergeUnit(snapshot.info, log.log_start, inputs)


def _worth_joining(neighbours: Sequence[Segment], least: int) -> list[list[Segment]]:
    """Runs of at least so many neighbours, those with few records first. None of them has more
    records than the others together: it would be written again for little."""
    sizes = [len(str(segment.records)) for segment in neighbours]
    for size in sorted({*sizes}):
        found = []
        fitting = [one <= size for one in sizes]
        for fits, numbers in groupby(range(len(sizes)), fitting.__getitem__):
            run = [neighbours[at] for at in numbers]
            records = [segment.records for segment in run]
            if fits and len(run) >= least and 2 * max(records) <= sum(records):
                found.append(run)
        if found:
            return found
    return []


def plan_files(snapshot: Snapshot, neighbours: Sequence[Segment]) -> Iterator[MergeUnit]:
    """Units that write files for these neighbours, which mislead a plain reader, and leave all
    other segments alone."""
    if not neighbours:
        return
    state = snapshot.partitions[neighbours[0].partition]
    for _, alike in groupby(neighbours, lambda segment: _kind(segment, state.clean_end)):
        for inputs in _pack(list(alike), snapshot.config.segment_bytes, state.log_start):
            yield MergeUnit(snapshot.info, state.log_start, inputs)


def misleads(segment: Segment, log_start: int) -> bool:
    """True if a plain Parquet reader would see wrong offsets, or records below the log start, or
    no file at all."""
    return segment.shift > 0 or segment.is_inline or segment.has_below(log_start)


def _kind(segment: Segment, clean_end: int) -> tuple[object, ...]:
    """What has to be equal for segments to be joined [MERGE-1]."""
    return segment.end_offset <= clean_end, segment.append_time, segment.hashed_over


def _pack(
    neighbours: Sequence[Segment], limit: int, log_start: int
) -> Iterator[tuple[Segment, ...]]:
    """Runs of at most `limit` bytes. An entry has one delete horizon for all of its tombstones, so
    tombstones with different horizons are kept apart."""
    gathered: list[Segment] = []
    size = 0
    horizons: set[int | None] = set()
    for segment in neighbours:
        bytes_left = _bytes_left(segment, log_start)
        mine = {segment.delete_horizon_ms} if segment.tombstones else set()
        if gathered and (size + bytes_left > limit or len(horizons | mine) > 1):
            yield tuple(gathered)
            gathered, size, horizons = [], 0, set()
        gathered.append(segment)
        size += bytes_left
        horizons |= mine
    yield tuple(gathered)


def _bytes_left(segment: Segment, log_start: int) -> int:
    """About how many bytes the records at or above the log start take."""
    if not segment.has_below(log_start):
        return segment.size_bytes
    claimed = segment.end_offset - segment.base_offset
    return segment.size_bytes * (segment.end_offset - log_start) // claimed
