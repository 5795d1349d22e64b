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
    compaction has left at most one record per key [LOG-9]. `inline` are the totals of the inline
    segments among `live`. Some older roots and commits do not tell them: then it is None, and the
    leaves have to be counted [INL-7]."""

    log_start: int = 0
    end: int = 0
    live: Totals = _NOTHING
    tiles: tuple[Tile, ...] = ()
    clean_end: int = 0
    inline: Totals | None = _NOTHING


def totals_of(segments: Iterable[Segment]) -> Totals:
    count = records = size = 0
    for segment in segments:
        count += 1
        records += segment.records
        size += segment.size_bytes
    return Totals(segments=count, records=records, size_bytes=size)


def inline_of(tiles: Iterable[Tile]) -> Totals:
    """The totals of the inline segments that are known here."""
    return totals_of(tile for tile in tiles if isinstance(tile, Segment) and tile.is_inline)


def dropped_inline(state: PartitionState, dropped: Totals) -> Totals | None:
    """What a commit says of the inline segments that it drops. It need not say that there are none
    where the partition has none [INL-7]."""
    return None if dropped == state.inline == _NOTHING else dropped


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
    return _with(state, segments, (*state.tiles, *segments), end)


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
    state = _without(commit, "LOG-7", state, swap, gone, tiles)
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
    return _with(state, left, tuple(sorted(tiles, key=tile_start)), state.end)


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
    state = _without(commit, "LOG-6", state, move, [*gone, *cut], tiles)
    return replace(state, log_start=move.offset, tiles=tiles)


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


def _with(
    state: PartitionState, segments: Sequence[Segment], tiles: tuple[Tile, ...], end: int
) -> PartitionState:
    """The partition with these tiles and this end, and the totals of these new segments added."""
    inline = None if state.inline is None else state.inline.plus(inline_of(segments))
    live = state.live.plus(totals_of(segments))
    return replace(state, live=live, inline=inline, tiles=tiles, end=end)


def _without(
    commit: Commit,
    rule: str,
    state: PartitionState,
    change: LogStart | Replaced,
    gone: Sequence[Tile],
    left: Sequence[Tile],
) -> PartitionState:
    """The partition with the totals of what is left. What the commit says that it drops must be the
    totals of the tiles that go, as far as they are known here: the entries of a run are in a leaf.
    """
    live, had, dropped, told = state.live, state.inline, change.dropped, change.dropped_inline
    segments = [tile for tile in gone if isinstance(tile, Segment)]
    known, known_inline = totals_of(segments), inline_of(segments)
    knows_all = len(segments) == len(gone)

    def is_right(dropped: Totals, known: Totals, live: Totals | None) -> bool:
        if not (dropped == known if knows_all else dropped.covers(known)):
            return False
        return live is None or (live.covers(dropped) and (bool(left) or live == dropped))

    if not is_right(dropped, known, live):
        raise broken(commit, rule, f"it says that it drops {dropped} of {live}")
    if told is None and (knows_all or had == _NOTHING):
        told = known_inline
    if told is not None:
        files = None if had is None else live.minus(had)
        in_files = is_right(dropped.minus(told), known.minus(known_inline), files)
        if not in_files or not is_right(told, known_inline, had):
            detail = f"it says that {told} of what it drops is inline, of {had} in {live}"
            raise broken(commit, "INL-7", detail)
    inline = None if told is None or had is None else had.minus(told)
    if inline is None and not any(isinstance(tile, LeafRun) for tile in left):
        inline = inline_of(left)
    return replace(state, live=live.minus(dropped), inline=inline)


def _check_floors(commit: Commit, segments: Sequence[Segment], *, is_appended: bool) -> None:
    for segment in segments:
        fault = floor_fault(segment, is_appended=is_appended)
        if fault is not None:
            raise broken(commit, "SEG-10", fault)
