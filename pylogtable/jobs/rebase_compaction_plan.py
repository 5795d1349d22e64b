"""Plans how a finished compaction is committed over segments that were merged meanwhile. Pure.

A merge keeps all records and their offsets, so the survivors that a compaction has found stay
right. Only the borders differ: a merged segment may reach beyond what the compaction has rewritten.
It can only be replaced as a whole [LOG-7], so its other pieces are copied. Without this, frequent
merges would make a long compaction drop its work every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from pylogtable.errors import CommitConflictError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.jobs.replace_plan import Swap


@dataclass(frozen=True)
class Compacted:
    """What a compaction has covered: everything below `end`. Tombstones that it keeps get
    `delete_horizon_ms`, unless they have a horizon [CLEAN-4]."""

    topic: TopicInfo
    end: int
    delete_horizon_ms: int


@dataclass(frozen=True)
class Piece:
    """The records of a live segment in `[start, end)`, to be copied to a segment of their own."""

    segment: Segment
    start: int
    end: int
    delete_horizon_ms: int | None


@dataclass(frozen=True)
class CarriedOver:
    """Live segments, and what replaces them: new segments, and pieces that are still to be copied.
    `records` is how many records of `inputs` must be outside of the pieces: as many as the
    compaction has read there."""

    inputs: tuple[Segment, ...]
    parts: tuple[Segment | Piece, ...]
    records: int


def plan_carry_over(
    state: LogState, swaps: Sequence[Swap], compacted: Compacted
) -> list[CarriedOver]:
    """The swaps of one partition as they have to be in this state. Raises `CommitConflictError`
    if a segment was changed by anything but a merge."""
    ordered = sorted(swaps, key=lambda swap: swap.inputs[0].base_offset)
    gathered: list[tuple[list[Segment], list[Swap]]] = []
    for swap in ordered:
        live = _live(state, swap)
        if gathered and gathered[-1][0][-1] == live[0]:
            gathered[-1][0].extend(live[1:])
            gathered[-1][1].append(swap)
        else:
            gathered.append((live, [swap]))
    return [plan for live, mine in gathered for plan in _carry_over(live, mine, compacted)]


def _live(state: LogState, swap: Swap) -> list[Segment]:
    """The live segments in the swap's place. Their tombstones must not have got a delete horizon,
    and their records are compared later."""
    partition = swap.inputs[0].partition
    start, end = swap.inputs[0].base_offset, swap.inputs[-1].end_offset
    live = list(state.segments(partition, start, end))
    is_covered = bool(live) and live[0].base_offset <= start and live[-1].end_offset >= end
    if not is_covered or any(
        old.tombstones and _overlap(old, new) and old.delete_horizon_ms != new.delete_horizon_ms
        for old in swap.inputs
        for new in live
    ):
        raise CommitConflictError(
            f"partition {partition}, offsets [{start}, {end}): another job or a new log start has "
            "changed these segments"
        )
    return live


def _carry_over(
    live: list[Segment], swaps: list[Swap], compacted: Compacted
) -> Iterator[CarriedOver]:
    if len(swaps) == 1 and tuple(live) == swaps[0].inputs:
        yield CarriedOver(swaps[0].inputs, swaps[0].outputs, _records(swaps[0].inputs))
        return
    rewritten = [swap for swap in swaps if not swap.keeps_file]
    if rewritten:
        records = sum(_records(swap.inputs) for swap in rewritten)
        yield CarriedOver(tuple(live), tuple(_parts(live, rewritten, compacted)), records)
        return
    for segment in live:
        if not segment.tombstones:
            continue
        if segment.end_offset > compacted.end:
            pieces = _pieces(segment, segment.base_offset, segment.end_offset, compacted)
            yield CarriedOver((segment,), tuple(pieces), 0)
        else:
            horizon_ms = compacted.delete_horizon_ms
            marked = msgspec.structs.replace(segment, delete_horizon_ms=horizon_ms)
            yield CarriedOver((segment,), (marked,), segment.records)


def _parts(
    live: Sequence[Segment], rewritten: Sequence[Swap], compacted: Compacted
) -> Iterator[Segment | Piece]:
    """The new segments in offset order, and what of the live ones lies between them."""
    at = live[0].base_offset
    for swap in rewritten:
        yield from _between(live, at, swap.inputs[0].base_offset, compacted)
        yield from swap.outputs
        at = swap.inputs[-1].end_offset
    yield from _between(live, at, live[-1].end_offset, compacted)


def _between(
    live: Sequence[Segment], start: int, end: int, compacted: Compacted
) -> Iterator[Piece]:
    for segment in live:
        low, high = max(start, segment.base_offset), min(end, segment.end_offset)
        if low < high:
            yield from _pieces(segment, low, high, compacted)


def _pieces(segment: Segment, start: int, end: int, compacted: Compacted) -> Iterator[Piece]:
    """One piece, or two if the compaction ends inside: only its own tombstones get a horizon."""
    border = min(max(start, compacted.end), end)
    own_ms = segment.delete_horizon_ms
    if start < border:
        horizon_ms = compacted.delete_horizon_ms if own_ms is None else own_ms
        yield Piece(segment, start, border, horizon_ms)
    if border < end:
        yield Piece(segment, border, end, own_ms)


def _overlap(one: Segment, other: Segment) -> bool:
    return one.base_offset < other.end_offset and other.base_offset < one.end_offset


def _records(segments: Sequence[Segment]) -> int:
    return sum(segment.records for segment in segments)
