"""Finding segments in a snapshot: root, then leaf, then entry, each by binary search [LOOK-1].

Pure, except that `leaves`, a function given by the caller, loads a leaf by its id. A leaf is loaded
only if the answer may depend on it, and as late as possible [LOOK-2].
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.leaf import Leaf, entries_of, sort_entries
from pylogtable.format.model import Segment, Totals
from pylogtable.format.partition_state import (
    LeafRun,
    PartitionState,
    Tile,
    tile_end,
    tile_start,
    totals_of,
)
from pylogtable.format.paths import commit_path, leaf_path, root_path
from pylogtable.format.segment_checks import check_paths
from pylogtable.format.snapshot import Snapshot

LoadLeaf = Callable[[str], Leaf]


def leaf_of(snapshot: Snapshot, leaves: LoadLeaf, partition: int, run: LeafRun) -> Leaf:
    """The leaf of a run, as the root knows it: not changed since it was written [SUM-2], with all
    of its entries, and with those of the run [LEAF-3]."""
    leaf = leaves(run.leaf)
    expected, entries = snapshot.leaf_checksums.get(run.leaf), snapshot.leaves.get(run.leaf)
    if expected is not None and leaf.checksum not in {None, expected}:
        detail = f"its checksum is {leaf.checksum}, but the root says {expected}"
        raise CorruptTopicError(leaf_path(run.leaf), "SUM-2", detail)
    if entries != leaf.table.num_rows:
        detail = f"it has {leaf.table.num_rows} entries, but the root says {entries}"
        raise CorruptTopicError(leaf_path(run.leaf), "LEAF-3", detail)
    leaf.check_run(partition, run.start, run.end, run.max_timestamp_us)
    return leaf


def segments_between(
    snapshot: Snapshot, leaves: LoadLeaf, partition: int, start: int, end: int
) -> Iterator[Segment]:
    """The live segments that overlap `[start, end)`, in offset order, lazily."""
    state = snapshot.partitions[partition]
    start = max(start, state.log_start)
    if start >= end:
        return
    for tile in tiles_from(state, start):
        if tile_start(tile) >= end:
            return
        if isinstance(tile, Segment):
            yield tile
        else:
            leaf = leaf_of(snapshot, leaves, partition, tile)
            low, high = max(tile.start, start), min(tile.end, end)
            yield from leaf.segments(leaf.rows(partition, low, high))


def segment_at(snapshot: Snapshot, leaves: LoadLeaf, partition: int, offset: int) -> Segment | None:
    """The live segment that covers `offset`."""
    return next(segments_between(snapshot, leaves, partition, offset, offset + 1), None)


def segments_backwards(snapshot: Snapshot, leaves: LoadLeaf, partition: int) -> Iterator[Segment]:
    """The live segments from the newest to the oldest, lazily."""
    state = snapshot.partitions[partition]
    for tile in reversed(state.tiles):
        if isinstance(tile, Segment):
            yield tile
        else:
            leaf = leaf_of(snapshot, leaves, partition, tile)
            low = max(tile.start, state.log_start)
            yield from reversed(leaf.segments(leaf.rows(partition, low, tile.end)))


def segments_reaching_time(
    snapshot: Snapshot, leaves: LoadLeaf, partition: int, timestamp_us: int
) -> Iterator[Segment]:
    """The live segments with a record at or after `timestamp_us`, in offset order, lazily."""
    state = snapshot.partitions[partition]
    for tile in tiles_from(state, state.log_start):
        if tile.max_timestamp_us < timestamp_us:  # [READ-4]
            continue
        if isinstance(tile, Segment):
            yield tile
            continue
        leaf = leaf_of(snapshot, leaves, partition, tile)
        rows = leaf.rows(partition, max(tile.start, state.log_start), tile.end)
        reaching = np.flatnonzero(leaf.max_timestamps[rows.start : rows.stop] >= timestamp_us)
        for row in reaching:
            at = rows.start + int(row)
            yield from leaf.segments(range(at, at + 1))


def totals_below(snapshot: Snapshot, leaves: LoadLeaf, partition: int, offset: int) -> Totals:
    """The totals of the live segments that end at or below `offset`."""
    state = snapshot.partitions[partition]
    total = Totals()
    for tile in tiles_from(state, state.log_start):
        if tile_start(tile) >= offset:
            break
        if isinstance(tile, Segment):
            if tile.end_offset <= offset:
                total = total.plus(totals_of([tile]))
            continue
        leaf = leaf_of(snapshot, leaves, partition, tile)
        low = max(tile.start, state.log_start)
        rows = leaf.rows(partition, low, min(tile.end, offset))
        if rows and leaf.end_offsets[rows[-1]] > offset:
            rows = rows[:-1]
        total = total.plus(leaf.totals(rows))
    return total


def all_entries(snapshot: Snapshot, leaves: LoadLeaf) -> pa.Table:
    """Every live segment as one table in (partition, offset) order."""
    parts: list[pa.Table] = []
    loose: list[Segment] = []
    # Load each leaf once: partitions share leaves, and the cache inside `leaves` may be too small.
    load = cache(leaves)
    for number, state in enumerate(snapshot.partitions):
        for tile in tiles_from(state, state.log_start):
            if isinstance(tile, Segment):
                loose.append(tile)
            else:
                leaf = leaf_of(snapshot, load, number, tile)
                low = max(tile.start, state.log_start)
                entries = leaf.entries(leaf.rows(number, low, tile.end))
                check_paths(entries, source=leaf_path(tile.leaf))  # [LEAF-2]
                parts.append(entries)
    return sort_entries([*parts, entries_of(loose)])


def check_totals(snapshot: Snapshot, entries: pa.Table) -> None:
    """Raise if all live segments do not add up to the totals that the root says [ROOT-5]."""
    sums = [("path", "count"), ("records", "sum"), ("size_bytes", "sum")]
    rows = entries.group_by("partition", use_threads=False).aggregate(sums).to_pylist()
    found = {
        row["partition"]: Totals(
            segments=row["path_count"],
            records=row["records_sum"],
            size_bytes=row["size_bytes_sum"],
        )
        for row in rows
    }
    for number in range(len(snapshot.partitions)):
        check_partition_totals(snapshot, number, found.get(number, Totals()))


def check_partition_totals(snapshot: Snapshot, partition: int, added: Totals) -> None:
    """Raise if `added`, the totals of all live segments of a partition, are not those that the root
    says [ROOT-5]."""
    live = snapshot.partitions[partition].live
    if added != live:
        path = commit_path(snapshot.version)
        if snapshot.root_version is not None:
            path = root_path(snapshot.root_version)
        detail = f"partition {partition} has {live}, but its segments add up to {added}"
        raise CorruptTopicError(path, "ROOT-5", detail)


def tiles_from(state: PartitionState, offset: int) -> Iterator[Tile]:
    """The tiles that end after `offset`, in offset order."""
    first = bisect_right(state.tiles, offset, key=tile_end)
    for index in range(first, len(state.tiles)):
        yield state.tiles[index]
