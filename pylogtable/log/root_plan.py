"""Plans the next root: which entries move into leaves, and which leaves are merged. Pure.

A root must stay small for a topic of any size, and writing one must not cost more as the topic
grows. So entries are moved into small leaves, and several leaves of about the same size are merged
into a larger one. When a root has too many runs, the leaves with the shortest runs (many
partitions, few entries each) are merged and cut again by partition [ROOT-4]. An entry is rewritten
about log(n) times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from pylogtable.format.leaf import Leaf, entries_of, sort_entries
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Commit, Segment
from pylogtable.format.partition_state import LeafRun, PartitionState, Tile, tile_start
from pylogtable.format.snapshot import Snapshot
from pylogtable.limits import Limits


def root_is_due(
    snapshot: Snapshot, commit: Commit, limits: Limits, *, may_wait: bool = False
) -> bool:
    """True if the writer of `commit`, which led to this state, should write a root [ROOT-2]. One is
    also due if the commit ends the life of segments, and commits after the last root have rows:
    vacuum can remove these commits only below a root [INL-6]. That `may_wait` if the records stay:
    whatever removes them writes a root."""
    if snapshot.tail_bytes and not may_wait and (commit.replaced or commit.log_starts):
        return True
    since = snapshot.version - (snapshot.root_version or 0)
    on_time = snapshot.version % limits.root_interval == 0 and since >= limits.root_interval
    is_long = snapshot.tail_bytes >= limits.root_tail_bytes
    return on_time or is_long or root_is_overdue(snapshot, limits)


def root_is_overdue(snapshot: Snapshot, limits: Limits) -> bool:
    """True if there should be a newer root than the one that this state was loaded from."""
    is_late = (
        snapshot.version - (snapshot.root_version or 0) >= limits.root_interval + limits.root_grace
    )
    return is_late or snapshot.tail_bytes >= limits.root_tail_bytes + limits.root_tail_bytes // 8


def leaves_to_merge(snapshot: Snapshot, limits: Limits) -> frozenset[str]:
    """The leaves whose entries the next root should move into new leaves."""
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
        if entries <= limits.leaf_max // 2:
            size_class = entries.bit_length() // (limits.merge_width - 1).bit_length()
            classes.setdefault(size_class, []).append(leaf)
    for alike in classes.values():
        if len(alike) >= limits.merge_width:
            # Into one leaf, so that entries of the same time stay together across partitions.
            sizes = accumulate(snapshot.leaves[leaf] for leaf in alike)
            chosen.update(
                leaf for leaf, size in zip(alike, sizes, strict=True) if size <= limits.leaf_max
            )
    excess = sum(runs.values()) - limits.runs_max - 2 * len(snapshot.partitions)
    if excess > 0:
        shortest_first = sorted(runs, key=lambda leaf: snapshot.leaves[leaf] / runs[leaf])
        covered = 0
        for leaf in shortest_first:
            if covered >= sum(runs.values()) / 2:
                break
            chosen.add(leaf)
            covered += runs[leaf]
    return frozenset(chosen) if len(chosen) > 1 else frozenset()


def sparse_leaves(state: LogState) -> frozenset[str]:
    """The leaves in which most entries are no longer live."""
    live: Counter[str] = Counter()
    for number, log in enumerate(state.snapshot.partitions):
        for tile in log.tiles:
            if isinstance(tile, LeafRun):
                _, rows = state.live_rows(number, tile)
                live[tile.leaf] += len(rows)
    entries = state.snapshot.leaves
    return frozenset(leaf for leaf, count in live.items() if 2 * count < entries[leaf])


def entries_to_fold(state: LogState, merged: frozenset[str]) -> pa.Table:
    """The live entries for new leaves: those of merged leaves, and the tails if they are long."""
    tails: list[Segment] = []
    parts: list[pa.Table] = []
    for number, log in enumerate(state.snapshot.partitions):
        for tile in log.tiles:
            if isinstance(tile, Segment):
                tails.append(tile)
            elif tile.leaf in merged:
                leaf, rows = state.live_rows(number, tile)
                parts.append(leaf.entries(rows))
    if len(tails) > state.limits.tail_max or merged:
        parts.append(entries_of(tails))
    return sort_entries(parts)


def cut_leaves(entries: pa.Table, ids: Iterator[str], limits: Limits) -> list[Leaf]:
    """Cut sorted entries into leaves of about equal size, none above the limit."""
    if not entries.num_rows:
        return []
    count = -(-entries.num_rows // limits.leaf_max)
    size = -(-entries.num_rows // count)
    return [Leaf(next(ids), entries.slice(at, size)) for at in range(0, entries.num_rows, size)]


def with_leaves(snapshot: Snapshot, merged: frozenset[str], new: Sequence[Leaf]) -> Snapshot:
    """The same state, in which `new` leaves hold their entries and `merged` ones are not used."""
    if not new:
        return snapshot
    runs: dict[int, list[LeafRun]] = {}
    for leaf in new:
        for number, run in _runs_of(leaf):
            runs.setdefault(number, []).append(run)
    states = tuple(
        _with_runs(state, merged, runs.get(number, [])) if number in runs else state
        for number, state in enumerate(snapshot.partitions)
    )
    leaves = {leaf: size for leaf, size in snapshot.leaves.items() if leaf not in merged}
    leaves.update({leaf.id: leaf.table.num_rows for leaf in new})
    return replace(snapshot, partitions=states, leaves=leaves)


def _with_runs(
    state: PartitionState, merged: frozenset[str], runs: Sequence[LeafRun]
) -> PartitionState:
    kept: list[Tile] = [
        tile for tile in state.tiles if isinstance(tile, LeafRun) and tile.leaf not in merged
    ]
    return replace(state, tiles=tuple(sorted([*kept, *runs], key=tile_start)))


def _runs_of(leaf: Leaf) -> Iterator[tuple[int, LeafRun]]:
    """The longest runs of a leaf: entries of one partition without a gap between them."""
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
