"""The next root: which entries leave it for leaves, and which leaves become larger ones. Pure.

A root has to stay small whatever the topic's size, and making the next one must not cost more as
the topic grows. So entries are folded into small leaves, a few leaves of like size are merged into
one of the next size, and leaves whose runs are short (many partitions, few entries each) are
merged and cut anew by partition when the root has too many runs [ROOT-4]. An entry is rewritten
about log(n) times in its life.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from pylogtable.format.leaf import Leaf, entries_of, sort_entries
from pylogtable.format.lookup import LoadLeaf
from pylogtable.format.model import Segment
from pylogtable.format.snapshot import LeafRun, PartitionState, Snapshot, Tile, tile_start

ROOT_INTERVAL = 64
# A writer that dies after commit 64k leaves the root to the others: they wait this much longer.
ROOT_GRACE = 8
TAIL_MAX = 256
LEAF_MAX = 16_384
MERGE_WIDTH = 8
RUNS_MAX = 4_096


def root_is_due(snapshot: Snapshot) -> bool:
    """Whether the writer of this version should write a root [ROOT-2]."""
    since = snapshot.version - (snapshot.root_version or 0)
    on_time = snapshot.version % ROOT_INTERVAL == 0 and since >= ROOT_INTERVAL
    return on_time or root_is_overdue(snapshot)


def root_is_overdue(snapshot: Snapshot) -> bool:
    """Whether there should have been a newer root than the one this state rests on."""
    return snapshot.version - (snapshot.root_version or 0) >= ROOT_INTERVAL + ROOT_GRACE


def leaves_to_merge(snapshot: Snapshot) -> frozenset[str]:
    """The leaves that the next root should do without."""
    runs = Counter(
        tile.leaf
        for state in snapshot.partitions
        for tile in state.tiles
        if isinstance(tile, LeafRun)
    )
    chosen: set[str] = set()
    classes: dict[int, list[str]] = {}
    for leaf in runs:
        entries = snapshot.leaves[leaf]
        if entries <= LEAF_MAX // 2:
            size_class = entries.bit_length() // (MERGE_WIDTH - 1).bit_length()
            classes.setdefault(size_class, []).append(leaf)
    for alike in classes.values():
        if len(alike) >= MERGE_WIDTH:
            # Into one leaf, so that one time's entries of all partitions stay together.
            sizes = accumulate(snapshot.leaves[leaf] for leaf in alike)
            chosen.update(leaf for leaf, size in zip(alike, sizes, strict=True) if size <= LEAF_MAX)
    excess = sum(runs.values()) - RUNS_MAX - 2 * len(snapshot.partitions)
    if excess > 0:
        shortest_first = sorted(runs, key=lambda leaf: snapshot.leaves[leaf] / runs[leaf])
        covered = 0
        for leaf in shortest_first:
            if covered >= sum(runs.values()) / 2:
                break
            chosen.add(leaf)
            covered += runs[leaf]
    return frozenset(chosen) if len(chosen) > 1 else frozenset()


def sparse_leaves(snapshot: Snapshot, leaves: LoadLeaf) -> frozenset[str]:
    """The leaves most of whose entries are no longer live."""
    live: Counter[str] = Counter()
    for number, state in enumerate(snapshot.partitions):
        for tile in state.tiles:
            if isinstance(tile, LeafRun):
                low = max(tile.start, state.log_start)
                live[tile.leaf] += len(leaves(tile.leaf).rows(number, low, tile.end))
    return frozenset(leaf for leaf, count in live.items() if 2 * count < snapshot.leaves[leaf])


def entries_to_fold(snapshot: Snapshot, leaves: LoadLeaf, merged: frozenset[str]) -> pa.Table:
    """The live entries that go into new leaves: those of merged leaves, and the tails if long."""
    tails: list[Segment] = []
    parts: list[pa.Table] = []
    for number, state in enumerate(snapshot.partitions):
        for tile in state.tiles:
            if isinstance(tile, Segment):
                tails.append(tile)
            elif tile.leaf in merged:
                leaf = leaves(tile.leaf)
                low = max(tile.start, state.log_start)
                parts.append(leaf.entries(leaf.rows(number, low, tile.end)))
    if len(tails) > TAIL_MAX or merged:
        parts.append(entries_of(tails))
    return sort_entries(parts)


def cut_leaves(entries: pa.Table, ids: Iterator[str]) -> list[Leaf]:
    """Cut sorted entries into leaves of about equal size, none over the limit."""
    if not entries.num_rows:
        return []
    count = -(-entries.num_rows // LEAF_MAX)
    size = -(-entries.num_rows // count)
    return [Leaf(next(ids), entries.slice(at, size)) for at in range(0, entries.num_rows, size)]


def with_leaves(snapshot: Snapshot, merged: frozenset[str], new: Sequence[Leaf]) -> Snapshot:
    """The same state with the entries of `new` found in `new`, and `merged` no longer used."""
    if not new:
        return snapshot
    runs: dict[int, list[LeafRun]] = {}
    for leaf in new:
        for number, run in _runs_of(leaf):
            runs.setdefault(number, []).append(run)
    states = tuple(
        _refer(state, merged, runs.get(number, [])) if number in runs else state
        for number, state in enumerate(snapshot.partitions)
    )
    leaves = {leaf: size for leaf, size in snapshot.leaves.items() if leaf not in merged}
    leaves.update({leaf.id: leaf.table.num_rows for leaf in new})
    return replace(snapshot, partitions=states, leaves=leaves)


def _refer(
    state: PartitionState, merged: frozenset[str], runs: Sequence[LeafRun]
) -> PartitionState:
    kept: list[Tile] = [
        tile for tile in state.tiles if isinstance(tile, LeafRun) and tile.leaf not in merged
    ]
    return replace(state, tiles=tuple(sorted([*kept, *runs], key=tile_start)))


def _runs_of(leaf: Leaf) -> Iterator[tuple[int, LeafRun]]:
    """The maximal stretches of a leaf in which one partition's entries follow on another."""
    partitions = leaf.table["partition"].to_numpy()
    breaks = np.flatnonzero(
        (partitions[1:] != partitions[:-1]) | (leaf.base_offsets[1:] != leaf.end_offsets[:-1])
    )
    starts = np.concatenate([[0], breaks + 1])
    ends = np.concatenate([breaks, [len(partitions) - 1]])
    highest = np.maximum.reduceat(leaf.max_timestamps, starts)
    for first, last, top in zip(starts, ends, highest, strict=True):
        start, end = int(leaf.base_offsets[first]), int(leaf.end_offsets[last])
        yield int(partitions[first]), LeafRun(leaf.id, start, end, int(top))
