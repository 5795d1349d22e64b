"""Roots: the state of a topic at one version, saved, and when a root is to be believed. Pure.

A root only saves work. It is used without the commits that it stands for, so it must not contradict
itself [ROOT-6]: a reader that believed a wrong one would lose or repeat records, and a writer would
give offsets that break the log for everyone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pylogtable.errors import CorruptTopicError
from pylogtable.format.json_codec import check_readable
from pylogtable.format.model import (
    INLINE_BATCHES,
    MIRROR,
    LeafRef,
    Root,
    RootPartition,
    RootRun,
    Segment,
    Totals,
)
from pylogtable.format.partition_state import (
    LeafRun,
    PartitionState,
    Tile,
    inline_of,
    tile_end,
    tile_start,
    totals_of,
)
from pylogtable.format.paths import root_path
from pylogtable.format.schema_evolution import feature_fault
from pylogtable.format.segment_checks import floor_fault
from pylogtable.format.snapshot import Snapshot


def from_root(root: Root) -> Snapshot:
    """The state that a root describes. Raises `CorruptTopicError` if it contradicts itself."""
    check_readable(root.protocol)
    missing = feature_fault(root.topic, root.protocol) if root.topic is not None else None
    if missing is not None:
        raise CorruptTopicError(root_path(root.version), missing.rule, missing.detail)
    fault = _header_fault(root) or _leaves_fault(root)
    if fault is not None:
        raise CorruptTopicError(root_path(root.version), "ROOT-6", fault)
    return Snapshot(
        version=root.version,
        commit_id=root.commit_id,
        topic_id=root.topic_id,
        committed_at_ms=root.committed_at_ms,
        protocol=root.protocol,
        topic=root.topic,
        partitions=_states(root),
        txns=root.txns,
        leaves={leaf.id: leaf.entries for leaf in root.leaves},
        leaf_checksums={
            leaf.id: checksum
            for leaf, checksum in zip(root.leaves, root.leaf_checksums, strict=False)
            if checksum is not None
        },
        root_version=root.version,
        mirror=root.mirror,
    )


def _states(root: Root) -> tuple[PartitionState, ...]:
    ids = [leaf.id for leaf in root.leaves]
    may_be_inline = root.protocol.announces(INLINE_BATCHES)
    states = []
    for number, saved in enumerate(root.partitions):
        # Roots of older writers may have runs that the log start has passed [ROOT-3].
        tiles: list[Tile] = [
            LeafRun(ids[run.leaf], run.start, run.end, run.max_timestamp_us)
            for run in saved.runs
            if run.end > saved.log_start
        ]
        tiles.extend(saved.tail)
        tiles.sort(key=tile_start)
        fault = _partition_fault(saved, tiles) or _inline_fault(saved, tiles)
        if fault is not None:
            detail = f"partition {number}: {fault}"
            raise CorruptTopicError(root_path(root.version), "ROOT-6", detail)
        inline = saved.inline
        if inline is None and not (may_be_inline and any(isinstance(t, LeafRun) for t in tiles)):
            inline = inline_of(tiles)  # otherwise nobody has counted the leaves [INL-7]
        states.append(
            PartitionState(
                saved.log_start, saved.end, saved.live, tuple(tiles), saved.clean_end, inline
            )
        )
    return tuple(states)


def _inline_fault(saved: RootPartition, tiles: Sequence[Tile]) -> str | None:
    """Why the inline totals of a partition contradict its other totals, or its tail [INL-7]."""
    if saved.inline is None:
        return None
    known, tail = inline_of(tiles), totals_of(t for t in tiles if isinstance(t, Segment))
    in_files = saved.live.minus(saved.inline)
    is_right = saved.inline.covers(known) and in_files.covers(tail.minus(known))
    if len(tiles) == tail.segments:
        is_right = saved.inline == known
    detail = f"{saved.inline} of {saved.live} is inline, and {known} in its tail"
    return None if is_right else detail


def _header_fault(root: Root) -> str | None:
    expected = 0 if root.topic is None else root.topic.partitions
    if len(root.partitions) != expected:
        return f"it has {len(root.partitions)} partitions, and the topic has {expected}"
    if root.topic is None and (root.txns or root.mirror is not None):
        return "the topic is deleted, and it has txns or a mirror"
    if root.mirror is not None and not root.protocol.announces(MIRROR):
        return f"it has a mirror, and the protocol does not name {MIRROR}"
    late = [app_id for app_id, mark in root.txns.items() if mark.commit_version > root.version]
    if late:
        return f"the last txn of {late[0]!r} is in a later version"
    paths = [segment.path for partition in root.partitions for segment in partition.tail]
    if len(set(paths)) != len(paths):
        return "two segments have the same file"
    return None


def _leaves_fault(root: Root) -> str | None:
    """The leaves are those that runs name, and have at least as many entries as live segments."""
    if len({leaf.id for leaf in root.leaves}) != len(root.leaves):
        return "it names a leaf twice"
    if root.leaf_checksums and len(root.leaf_checksums) != len(root.leaves):
        return f"it has {len(root.leaf_checksums)} checksums of {len(root.leaves)} leaves"
    runs = Counter(run.leaf for partition in root.partitions for run in partition.runs)
    for number, leaf in enumerate(root.leaves):
        if not 1 <= runs[number] <= leaf.entries:
            return f"leaf {leaf.id} has {leaf.entries} entries and {runs[number]} runs"
    live = sum(partition.live.segments for partition in root.partitions)
    tails = sum(len(partition.tail) for partition in root.partitions)
    entries = sum(leaf.entries for leaf in root.leaves)
    if live - tails > entries:
        return f"{live} segments are live, but tails and leaves have {tails + entries}"
    return None


def _partition_fault(saved: RootPartition, tiles: Sequence[Tile]) -> str | None:
    """Why a partition contradicts itself. There may be 10,000 of them, so this is one loop."""
    log_start, end, live = saved.log_start, saved.end, saved.live
    if log_start > end or saved.clean_end > end:
        return f"log start {log_start}, clean end {saved.clean_end}, end {end}"
    if not tiles:
        is_empty = log_start == end and live == Totals()
        return None if is_empty else f"[{log_start}, {end}) has no segments, and {live}"
    at, offsets, records, size_bytes = tile_start(tiles[0]), 0, 0, 0
    if not at <= log_start < tile_end(tiles[0]):
        return f"its first segments begin at {at}, and do not claim the log start {log_start}"
    for tile in tiles:
        if isinstance(tile, LeafRun):
            start, stop = tile.start, tile.end
            offsets += stop - start
        else:
            start, stop = tile.base_offset, tile.end_offset
            records += tile.records
            size_bytes += tile.size_bytes
            fault = floor_fault(tile, is_appended=False)
            if fault is not None:
                return fault
        if start != at or stop <= at:
            return f"[{start}, {stop}) follows {at}"
        at = stop
    if at != end:
        return f"its segments end at {at}, and its end is {end}"
    # What the runs have is known roughly: at least a segment each, no more records than offsets.
    rest, bytes_left = live.records - records, live.size_bytes - size_bytes
    if not offsets:
        is_right = live.segments == len(tiles) and rest == bytes_left == 0
    else:
        is_right = live.segments >= len(tiles) and 0 <= rest <= offsets and bytes_left >= 0
    return None if is_right else f"its totals are {live}, and its tail has {records} records"


def to_root(snapshot: Snapshot) -> Root:
    """The root for this state: `from_root(to_root(s))` equals `s`, except for `root_version`."""
    used = {
        tile.leaf
        for state in snapshot.partitions
        for tile in state.tiles
        if isinstance(tile, LeafRun)
    }
    ids = sorted(used)
    number = {leaf: index for index, leaf in enumerate(ids)}
    may_be_inline = snapshot.protocol.announces(INLINE_BATCHES)

    def partition(state: PartitionState) -> RootPartition:
        # Of lists: in Python 3.10 an empty tuple of a generator is not the default `()` itself, and
        # msgspec would write it.
        runs = [
            RootRun(number[tile.leaf], tile.start, tile.end, tile.max_timestamp_us)
            for tile in state.tiles
            if isinstance(tile, LeafRun)
        ]
        return RootPartition(
            log_start=state.log_start,
            end=state.end,
            clean_end=state.clean_end,
            live=state.live,
            inline=state.inline if runs and may_be_inline else None,
            runs=tuple(runs),
            tail=tuple([tile for tile in state.tiles if isinstance(tile, Segment)]),
        )

    return Root(
        version=snapshot.version,
        commit_id=snapshot.commit_id,
        topic_id=snapshot.topic_id,
        committed_at_ms=snapshot.committed_at_ms,
        protocol=snapshot.protocol,
        topic=snapshot.topic,
        partitions=tuple(partition(state) for state in snapshot.partitions),
        leaves=tuple(LeafRef(leaf, snapshot.leaves[leaf]) for leaf in ids),
        leaf_checksums=_checksums(snapshot, ids),
        txns=dict(snapshot.txns),
        mirror=snapshot.mirror,
    )


def _checksums(snapshot: Snapshot, leaves: Sequence[str]) -> tuple[str | None, ...]:
    """None for a leaf of an older writer; nothing at all if no checksum is known [SUM-2]."""
    checksums = tuple(snapshot.leaf_checksums.get(leaf) for leaf in leaves)
    return checksums if any(checksums) else ()
