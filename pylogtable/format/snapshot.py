"""The state of a topic at one version: the result of replaying its commits. Pure.

Replay in one paragraph: commit 0 creates the topic. Each later commit changes the state before it.
New segments are added at the end of their partition. A log start moves forward and drops the
segments below it. A replaced range swaps its segments for others that cover the same offsets. A new
`topic` object replaces the old one. `delete_topic` leaves an empty state, on which a later `create`
starts again from nothing, with another topic id. A commit of another topic is *void*: it takes its
version, and has no other effect.

A snapshot does not hold every segment. The log of a partition is a sequence of *tiles* in offset
order. A tile is a segment, or a *run*: a range of offsets whose segments are listed in a leaf of
the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral

from pylogtable.errors import CorruptTopicError, InvalidRequestError
from pylogtable.format.alteration import alteration_fault, feature_fault
from pylogtable.format.codec import check_readable
from pylogtable.format.config import TopicConfig, parse_config
from pylogtable.format.entries import floor_fault
from pylogtable.format.model import (
    Commit,
    LogStart,
    Protocol,
    Replaced,
    Segment,
    TopicInfo,
    Totals,
    Txn,
    TxnMark,
)
from pylogtable.format.paths import commit_path


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


@dataclass(frozen=True)
class Snapshot:
    """The state after commit `version`. `topic` is None if the topic is deleted.

    `commit_id` and `committed_at_ms` are those of the last commit that had effect. `voids` counts
    the void commits after it [COMMIT-11]. `confirmed_ms` is no part of the state: at this time of
    the store, the state was known to be the newest [COMMIT-9]. None means that it is not known.
    """

    version: int
    commit_id: str
    topic_id: str
    committed_at_ms: int
    protocol: Protocol
    topic: TopicInfo | None
    partitions: tuple[PartitionState, ...]
    txns: Mapping[str, TxnMark] = field(default_factory=dict)
    leaves: Mapping[str, int] = field(default_factory=dict)
    leaf_checksums: Mapping[str, str] = field(default_factory=dict)
    root_version: int | None = None
    voids: int = 0
    confirmed_ms: int | None = field(default=None, compare=False, repr=False)

    @property
    def effective_version(self) -> int:
        """The version of the last commit that had effect."""
        return self.version - self.voids

    @property
    def info(self) -> TopicInfo:
        """The topic's description. The topic must not be deleted."""
        assert self.topic is not None
        return self.topic

    @cached_property
    def config(self) -> TopicConfig:
        return parse_config(self.info.config)

    def check_partition(self, number: object) -> None:
        """Raise if the partition does not exist."""
        count = len(self.partitions)
        is_number = isinstance(number, Integral) and not isinstance(number, bool)
        if not is_number or not 0 <= int(number) < count:  # type: ignore[call-overload]
            raise InvalidRequestError(
                f"there is no partition {number!r}; the topic has {count}, 0 to {count - 1}"
            )

    @property
    def start_offsets(self) -> dict[int, int]:
        return {number: state.log_start for number, state in enumerate(self.partitions)}

    @property
    def end_offsets(self) -> dict[int, int]:
        return {number: state.end for number, state in enumerate(self.partitions)}

    @property
    def live(self) -> Totals:
        total = Totals()
        for state in self.partitions:
            total = total.plus(state.live)
        return total


def replay(base: Snapshot | None, commits: Iterable[Commit]) -> Snapshot | None:
    """The state after these commits, applied in order to `base`."""
    snapshot = base
    for commit in commits:
        snapshot = apply(snapshot, commit)
    return snapshot


def apply(base: Snapshot | None, commit: Commit) -> Snapshot:
    """The state after `commit`. Raises `CorruptTopicError` if the commit cannot follow `base`."""
    if commit.protocol is not None:
        check_readable(commit.protocol)
    if base is not None and commit.version != base.version + 1:
        raise _broken(commit, "COMMIT-3", f"it does not follow version {base.version}")
    if base is not None and is_void(base, commit):
        return replace(base, version=commit.version, voids=base.voids + 1)
    if base is None or base.topic is None:
        return _create(base, commit)
    _check_follows(base, commit)
    if commit.operation == "delete_topic":
        gone = replace(_advanced(base, commit), topic=None, partitions=(), txns={})
        return replace(gone, leaves={}, leaf_checksums={})
    if commit.operation == "create":
        raise _broken(commit, "META-2", "it creates a topic that already exists")
    info = commit.topic or base.info
    states = list(base.partitions)
    if info.partitions < len(states):
        raise _broken(commit, "META-3", f"{len(states)} partitions become {info.partitions}")
    _check_partitions(commit, info.partitions)
    _check_altered(commit, base, info)
    states.extend(PartitionState() for _ in range(info.partitions - len(states)))
    added: dict[int, list[Segment]] = {}
    for segment in commit.add:
        added.setdefault(segment.partition, []).append(segment)
    for swap in commit.replaced:
        number = swap.partition
        outputs: list[Segment] = []
        others: list[Segment] = []
        for segment in added.get(number, ()):
            inside = swap.start <= segment.base_offset < swap.end
            (outputs if inside else others).append(segment)
        states[number] = _replace(commit, states[number], swap, outputs)
        added[number] = others
    for number, segments in added.items():
        states[number] = _append(commit, states[number], segments, commit.ends.get(number))
    for number in commit.ends:
        if not added.get(number):
            detail = f"it has an end for partition {number}, and appends nothing to it"
            raise _broken(commit, "LOG-2", detail)
    for move in commit.log_starts:
        states[move.partition] = _move_log_start(commit, states[move.partition], move)
    for number, offset in commit.cleaned.items():
        states[number] = _clean(commit, states[number], number, offset)
    txns = base.txns
    if commit.txn is not None:
        _check_txn(commit, commit.txn, txns.get(commit.txn.app_id))
        txns = {**txns, commit.txn.app_id: TxnMark(commit.txn.version, commit.version)}
    return replace(_advanced(base, commit), topic=info, partitions=tuple(states), txns=txns)


def is_void(base: Snapshot, commit: Commit) -> bool:
    """True if the commit belongs to another topic than `base`: it only takes its version
    [COMMIT-11]. After a `delete_topic`, a `create` that was planned on it makes a new topic."""
    if commit.topic_id == base.topic_id:
        return False
    is_planned_here = commit.parent is None or commit.parent == base.commit_id
    return base.topic is not None or commit.operation != "create" or not is_planned_here


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


def _create(base: Snapshot | None, commit: Commit) -> Snapshot:
    if base is None and commit.version != 0:
        raise _broken(commit, "COMMIT-3", "commits before it are missing")
    if base is not None:
        _check_follows(base, commit)
    if commit.operation != "create" or commit.topic is None or commit.protocol is None:
        raise _broken(commit, "META-2", "there is no topic yet, and it does not create one")
    if base is not None and commit.topic_id == base.topic_id:
        raise _broken(commit, "META-5", f"it reuses the id of a deleted topic, {base.topic_id}")
    fault = feature_fault(commit.topic, commit.protocol)
    if fault is not None:
        raise _broken(commit, fault.rule, fault.detail)
    return Snapshot(
        version=commit.version,
        commit_id=commit.commit_id,
        topic_id=commit.topic_id,
        committed_at_ms=commit.committed_at_ms,
        protocol=commit.protocol,
        topic=commit.topic,
        partitions=tuple(PartitionState() for _ in range(commit.topic.partitions)),
        root_version=base.root_version if base else None,
    )


def _advanced(base: Snapshot, commit: Commit) -> Snapshot:
    return replace(
        base,
        version=commit.version,
        commit_id=commit.commit_id,
        committed_at_ms=commit.committed_at_ms,
        protocol=commit.protocol or base.protocol,
        voids=0,
    )


def _check_follows(base: Snapshot, commit: Commit) -> None:
    if commit.committed_at_ms <= base.committed_at_ms:
        raise _broken(commit, "COMMIT-6", "it is not later than the commit before it")
    if commit.parent is not None and commit.parent != base.commit_id:
        detail = f"its parent is {commit.parent!r}, but commit {base.commit_id!r} is before it"
        raise _broken(commit, "COMMIT-10", detail)


def _check_altered(commit: Commit, base: Snapshot, info: TopicInfo) -> None:
    """Raise if the commit changes columns as no writer may, or without the feature they need."""
    if commit.topic is None and commit.protocol is None:
        return
    fault = None
    if commit.topic is not None:
        has_records = any(state.end for state in base.partitions)
        fault = alteration_fault(base.info, info, has_records=has_records)
    fault = fault or feature_fault(info, commit.protocol or base.protocol)
    if fault is not None:
        raise _broken(commit, fault.rule, fault.detail)


def _check_partitions(commit: Commit, count: int) -> None:
    """Raise if the commit names a partition that does not exist [META-3]."""
    named = [
        *(segment.partition for segment in commit.add),
        *(swap.partition for swap in commit.replaced),
        *(move.partition for move in commit.log_starts),
    ]
    highest = max((*named, *commit.ends, *commit.cleaned), default=0)
    if highest >= count:
        raise _broken(commit, "META-3", f"there is no partition {highest}")


def _check_txn(commit: Commit, txn: Txn, last: TxnMark | None) -> None:
    """Raise if a txn is not newer than the last one of its app id [TXN-5], or names another commit
    as the one before it [TXN-1]: whoever follows `previous` must come to an end."""
    if last is not None and txn.version <= last.txn_version:
        detail = f"txn {txn.version} comes after {last.txn_version} of its app id"
        raise _broken(commit, "TXN-5", detail)
    if txn.previous is not None and (last is None or txn.previous != last.commit_version):
        detail = f"the last txn of its app id is not in commit {txn.previous}"
        raise _broken(commit, "TXN-1", detail)


def _append(
    commit: Commit, state: PartitionState, segments: list[Segment], end: int | None
) -> PartitionState:
    if not segments:
        return state
    if end is None:
        raise _broken(commit, "LOG-2", f"it has no end for partition {segments[0].partition}")
    fault = tiling_fault(segments, state.end, end)
    if fault is None and not all(segment.is_dense for segment in segments):
        fault = "an appended segment has holes"
    if fault is not None:
        raise _broken(commit, "LOG-2", f"partition {segments[0].partition}: {fault}")
    _check_floors(commit, segments, is_appended=True)
    live = state.live.plus(totals_of(segments))
    return replace(state, end=end, live=live, tiles=(*state.tiles, *segments))


def _replace(
    commit: Commit, state: PartitionState, swap: Replaced, outputs: list[Segment]
) -> PartitionState:
    fault = tiling_fault(outputs, swap.start, swap.end)
    if fault is None and (not state.tiles or swap.start < tile_start(state.tiles[0])):
        fault = f"no live segment begins at {swap.start}"
    if fault is None and not state.log_start < swap.end <= state.end:
        fault = f"[{swap.start}, {swap.end}) is not inside [{state.log_start}, {state.end})"
    if fault is not None:
        raise _broken(commit, "LOG-7", f"partition {swap.partition}: {fault}")
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
            raise _broken(commit, "LOG-7", f"{tile.path} is only partly replaced")
    live = _without(commit, "LOG-7", state.live, swap.dropped, gone, has_rest=bool(tiles))
    added = totals_of(outputs)
    if added.records > swap.dropped.records:
        detail = f"{swap.dropped.records} records are replaced by {added.records}"
        raise _broken(commit, "LOG-7", f"partition {swap.partition}: {detail}")
    tiles.extend(outputs)
    live = live.plus(added)
    return replace(state, live=live, tiles=tuple(sorted(tiles, key=tile_start)))


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
        raise _broken(commit, rule, detail)
    return live.minus(dropped)


def _check_floors(commit: Commit, segments: Sequence[Segment], *, is_appended: bool) -> None:
    for segment in segments:
        fault = floor_fault(segment, is_appended=is_appended)
        if fault is not None:
            raise _broken(commit, "SEG-10", fault)


def _move_log_start(commit: Commit, state: PartitionState, move: LogStart) -> PartitionState:
    if not state.log_start < move.offset <= state.end:
        raise _broken(
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


def _clean(commit: Commit, state: PartitionState, number: int, offset: int) -> PartitionState:
    if not state.clean_end <= offset <= state.end:
        detail = f"clean end of partition {number}: {offset} after {state.clean_end}"
        raise _broken(commit, "LOG-9", detail)
    return replace(state, clean_end=offset)


def _broken(commit: Commit, rule: str, detail: str) -> CorruptTopicError:
    return CorruptTopicError(commit_path(commit.version), rule, detail)
