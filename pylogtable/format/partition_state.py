"""One partition at one version, and how a commit changes it. Pure.

The log of a partition is a sequence of *tiles* in offset order. A tile is a segment, or a *run*: a
range of offsets whose segments are listed in a leaf of the index. So a state does not hold every
segment, and a commit is checked as far as the entries are known here [LOG-7].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pylogtable.errors import CorruptTopicError
from pylogtable.format.model import Commit, LogStart, Replaced, Segment, Totals
from pylogtable.format.paths import commit_path, object_of
from pylogtable.format.segment_checks import floor_fault


@dataclass(frozen=True, slots=True)
class LeafRun:
    """The segments of `[start, end)` are the leaf's entries for this partition [ROOT-3]."""

    leaf: str
    start: int
    end: int
    max_timestamp_us: int


#: What a partition is made of, in offset order and without gaps.
Tile = Segment | LeafRun


def tile_start(tile: Tile) -> int:
    return tile.start if isinstance(tile, LeafRun) else tile.base_offset


def tile_end(tile: Tile) -> int:
    return tile.end if isinstance(tile, LeafRun) else tile.end_offset


_NOTHING = Totals()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. Its `tiles` cover a range that starts at or below `log_start` and ends at
    `end` [LOG-4]. `end` is stored because there may be no tiles at all [LOG-5]. Below `clean_end`
    compaction has left at most one record per key [LOG-9]."""

    log_start: int = 0
    end: int = 0
    live: Totals = _NOTHING
    tiles: tuple[Tile, ...] = ()
    clean_end: int = 0


def totals_of(segments: Iterable[Segment]) -> Totals:
    count = records = size = 0
    for segment in segments:
        count += 1
        records += segment.records
        size += segment.size_bytes
    return Totals(segments=count, records=records, size_bytes=size)


def tiling_fault(segments: Sequence[Segment], start: int, end: int) -> str | None:
    """Why these segments do not exactly cover `[start, end)`; None if they do [LOG-4]."""
    at = start
    for segment in segments:
        if segment.base_offset != at:
            return f"a segment begins at {segment.base_offset}, but {at} is next"
        at = segment.end_offset
    return None if at == end else f"the segments end at {at}, but the range ends at {end}"


def append_segments(
    commit: Commit,
    state: PartitionState,
    segments: list[Segment],
    end: int | None,
    *,
    may_have_holes: bool,
) -> PartitionState:
    """The partition with these segments at its end, which moves to `end` [LOG-2]. They may have
    holes if the topic takes records with given offsets [LOG-11]."""
    if not segments:
        return state
    if end is None:
        raise broken(commit, "LOG-2", f"it has no end for partition {segments[0].partition}")
    fault = tiling_fault(segments, state.end, end)
    if fault is None and not may_have_holes and not all(s.is_dense for s in segments):
        fault = "an appended segment has holes"
    if fault is not None:
        raise broken(commit, "LOG-2", f"partition {segments[0].partition}: {fault}")
    here = commit_path(commit.version)
    for segment in segments:
        if segment.is_inline and object_of(segment.path) != here:
            raise broken(commit, "INL-3", f"it appends {segment.path}, which another commit has")
    _check_floors(commit, segments, is_appended=not may_have_holes)
    live = state.live.plus(totals_of(segments))
    return replace(state, end=end, live=live, tiles=(*state.tiles, *segments))


def replace_range(
    commit: Commit, state: PartitionState, swap: Replaced, outputs: list[Segment]
) -> PartitionState:
    """The partition with `outputs` instead of the segments that tile the range [LOG-7]."""
    fault = tiling_fault(outputs, swap.start, swap.end)
    if fault is None and (not state.tiles or swap.start < tile_start(state.tiles[0])):
        fault = f"no live segment begins at {swap.start}"
    if fault is None and not state.log_start < swap.end <= state.end:
        fault = f"[{swap.start}, {swap.end}) is not inside [{state.log_start}, {state.end})"
    if fault is not None:
        raise broken(commit, "LOG-7", f"partition {swap.partition}: {fault}")
    _check_floors(commit, outputs, is_appended=False)
    tiles: list[Tile] = []
    gone: list[Tile] = []
    for tile in state.tiles:
        if tile_end(tile) <= swap.start or tile_start(tile) >= swap.end:
            tiles.append(tile)
            continue
        gone.append(tile)
        if isinstance(tile, LeafRun):
            if tile.start < swap.start and state.log_start < swap.start:
                tiles.append(replace(tile, end=swap.start))
            if swap.end < tile.end:
                tiles.append(replace(tile, start=swap.end))
        elif tile.base_offset < swap.start or swap.end < tile.end_offset:
            raise broken(commit, "LOG-7", f"{tile.path} is only partly replaced")
    live = _without(commit, "LOG-7", state.live, swap.dropped, gone, has_rest=bool(tiles))
    known = {tile.path for tile in gone if isinstance(tile, Segment)}
    knows_all = all(isinstance(tile, Segment) for tile in gone)
    for output in outputs:
        if output.is_inline and knows_all and output.path not in known:
            raise broken(commit, "INL-3", f"{output.path} is not among the segments replaced")
    added = totals_of(outputs)
    if added.records > swap.dropped.records:
        detail = f"{swap.dropped.records} records are replaced by {added.records}"
        raise broken(commit, "LOG-7", f"partition {swap.partition}: {detail}")
    # The log start may have passed an output while it was written.
    left = [output for output in outputs if output.end_offset > state.log_start]
    tiles.extend(left)
    live = live.plus(totals_of(left))
    return replace(state, live=live, tiles=tuple(sorted(tiles, key=tile_start)))


def move_log_start(commit: Commit, state: PartitionState, move: LogStart) -> PartitionState:
    """The partition from a later log start on [LOG-6]."""
    if not state.log_start < move.offset <= state.end:
        raise broken(
            commit,
            "LOG-6",
            f"the log start of partition {move.partition} moves from {state.log_start} to "
            f"{move.offset}; the end is {state.end}",
        )
    gone = [tile for tile in state.tiles if tile_end(tile) <= move.offset]
    tiles = state.tiles[len(gone) :]
    # Entries of a run that the log start cuts may go too, and only its leaf knows them.
    cut = [tile for tile in tiles[:1] if isinstance(tile, LeafRun) and tile.start < move.offset]
    known = [*gone, *cut]
    live = _without(commit, "LOG-6", state.live, move.dropped, known, has_rest=bool(tiles))
    return replace(state, log_start=move.offset, live=live, tiles=tiles)


def move_clean_end(
    commit: Commit, state: PartitionState, number: int, offset: int
) -> PartitionState:
    if not state.clean_end <= offset <= state.end:
        detail = f"clean end of partition {number}: {offset} after {state.clean_end}"
        raise broken(commit, "LOG-9", detail)
    return replace(state, clean_end=offset)


def broken(commit: Commit, rule: str, detail: str) -> CorruptTopicError:
    """The error for a commit that cannot be applied."""
    return CorruptTopicError(commit_path(commit.version), rule, detail)


def _without(
    commit: Commit,
    rule: str,
    live: Totals,
    dropped: Totals,
    gone: Sequence[Tile],
    *,
    has_rest: bool,
) -> Totals:
    """The totals of what is left. `dropped` must be the totals of the tiles that go, as far as they
    are known here: the entries of a run are in a leaf."""
    known = totals_of(tile for tile in gone if isinstance(tile, Segment))
    if all(isinstance(tile, Segment) for tile in gone):
        is_right = dropped == known
    else:
        is_right = dropped.covers(known)
    if not is_right or not live.covers(dropped) or not (has_rest or live == dropped):
        detail = f"it says that it drops {dropped} of {live}"
        raise broken(commit, rule, detail)
    return live.minus(dropped)


def _check_floors(commit: Commit, segments: Sequence[Segment], *, is_appended: bool) -> None:
    for segment in segments:
        fault = floor_fault(segment, is_appended=is_appended)
        if fault is not None:
            raise broken(commit, "SEG-10", fault)
