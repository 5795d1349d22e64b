"""A state of the log with its index: finds segments in root, then leaf, then entry, each by binary
search [LOOK-1].

Pure, except that leaves are loaded by a function that the log gives. A leaf is loaded only if the
answer may depend on it, and as late as possible [LOOK-2].
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import heapify, heappop, heappush

import numpy as np
import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.leaf import Leaf, entries_of, sort_entries, totals_of_entries
from pylogtable.format.model import LogStart, Segment, Totals
from pylogtable.format.partition_state import (
    LeafRun,
    PartitionState,
    Tile,
    dropped_inline,
    inline_of,
    tile_end,
    tile_start,
    totals_of,
)
from pylogtable.format.paths import commit_path, leaf_path, root_path
from pylogtable.format.segment_checks import check_paths
from pylogtable.format.snapshot import Snapshot
from pylogtable.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True)
class LogState:
    """A snapshot and its leaves, with the limits for plans. `load_leaf` loads a leaf by its id, and
    compares the checksum that the root has for it, if any. `Manifest.state` makes one."""

    snapshot: Snapshot
    load_leaf: Callable[[str, str | None], Leaf]
    limits: Limits = DEFAULT_LIMITS

    def leaf(self, partition: int, run: LeafRun) -> Leaf:
        """The leaf of a run, as the root knows it: not changed since it was written [SUM-2], with
        all of its entries, and with those of the run [LEAF-3]."""
        snapshot = self.snapshot
        leaf = self.load_leaf(run.leaf, snapshot.leaf_checksums.get(run.leaf))
        entries = snapshot.leaves.get(run.leaf)
        if entries != leaf.table.num_rows:
            detail = f"it has {leaf.table.num_rows} entries, but the root says {entries}"
            raise CorruptTopicError(leaf_path(run.leaf), "LEAF-3", detail)
        leaf.check_run(partition, run.start, run.end, run.max_timestamp_us)
        return leaf

    def live_rows(self, partition: int, run: LeafRun) -> tuple[Leaf, range]:
        """The leaf of a run, and the rows in it that are live segments of the run."""
        leaf = self.leaf(partition, run)
        log_start = self.snapshot.partitions[partition].log_start
        return leaf, leaf.rows(partition, max(run.start, log_start), run.end)

    def segments(self, partition: int, start: int = 0, end: int | None = None) -> Iterator[Segment]:
        """The live segments that overlap `[start, end)`, or all, in offset order, lazily."""
        log = self.snapshot.partitions[partition]
        start, end = max(start, log.log_start), log.end if end is None else end
        if start >= end:
            return
        for tile in tiles_from(log, start):
            if tile_start(tile) >= end:
                return
            if isinstance(tile, Segment):
                yield tile
            else:
                leaf = self.leaf(partition, tile)
                low, high = max(tile.start, start), min(tile.end, end)
                yield from leaf.segments(leaf.rows(partition, low, high))

    def segment_at(self, partition: int, offset: int) -> Segment | None:
        """The live segment that covers `offset`."""
        return next(self.segments(partition, offset, offset + 1), None)

    def segments_backwards(self, partition: int) -> Iterator[Segment]:
        """The live segments from the newest to the oldest, lazily."""
        for tile in reversed(self.snapshot.partitions[partition].tiles):
            if isinstance(tile, Segment):
                yield tile
            else:
                leaf, rows = self.live_rows(partition, tile)
                yield from reversed(leaf.segments(rows))

    def segments_reaching_time(self, partition: int, timestamp_us: int) -> Iterator[Segment]:
        """The live segments with a record at or after `timestamp_us`, in offset order, lazily."""
        for tile in self._live_tiles(partition):
            if tile.max_timestamp_us < timestamp_us:  # [READ-4]
                continue
            if isinstance(tile, Segment):
                yield tile
                continue
            leaf, rows = self.live_rows(partition, tile)
            reaching = np.flatnonzero(leaf.max_timestamps[rows.start : rows.stop] >= timestamp_us)
            for row in reaching:
                at = rows.start + int(row)
                yield from leaf.segments(range(at, at + 1))

    def segments_by_latest(self, partition: int) -> Iterator[Segment]:
        """The live segments in descending order of their latest timestamp, lazily: runs tell that
        of theirs [ROOT-3]."""
        waiting: list[tuple[int, int, Tile | tuple[Leaf, int]]] = [
            (-tile.max_timestamp_us, tile_start(tile), tile) for tile in self._live_tiles(partition)
        ]
        heapify(waiting)
        while waiting:
            _, _, first = heappop(waiting)
            if isinstance(first, Segment):
                yield first
            elif isinstance(first, LeafRun):
                leaf, rows = self.live_rows(partition, first)
                for row in rows:
                    latest, base = int(leaf.max_timestamps[row]), int(leaf.base_offsets[row])
                    heappush(waiting, (-latest, base, (leaf, row)))
            else:
                leaf, row = first
                yield from leaf.segments(range(row, row + 1))

    def log_start_at(
        self, partition: int, offset: int, appended: Sequence[Segment] = ()
    ) -> LogStart:
        """The move of a log start to `offset`, with the totals of the segments that end at or below
        it [LOG-6]. `appended` are segments that the same commit appends."""
        tiles = [*self._live_tiles(partition), *appended]
        loose = [tile for tile in tiles if isinstance(tile, Segment) and tile.end_offset <= offset]
        dropped, inline = totals_of(loose), inline_of(loose)
        for tile in tiles:
            if isinstance(tile, LeafRun) and tile.start < offset:
                leaf, rows = self.live_rows(partition, tile)
                ends = leaf.end_offsets[rows.start : rows.stop]
                gone = rows[: int(np.searchsorted(ends, offset, side="right"))]
                dropped = dropped.plus(leaf.totals(gone))
                inline = inline.plus(leaf.totals(gone, inline=True))
        return LogStart(
            partition=partition,
            offset=offset,
            dropped=dropped,
            dropped_inline=dropped_inline(self.snapshot.partitions[partition], inline),
        )

    def with_inline_totals(self) -> Snapshot:
        """The snapshot, with the inline totals of every partition. Leaves are loaded only where
        older writers have not told them [INL-7]."""
        if self.snapshot.inline is not None:
            return self.snapshot
        cached = replace(self, load_leaf=cache(self.load_leaf))
        logs = list(self.snapshot.partitions)
        for number, log in enumerate(logs):
            if log.inline is None:
                inline = inline_of(log.tiles)
                for tile in log.tiles:
                    if isinstance(tile, LeafRun):
                        leaf, rows = cached.live_rows(number, tile)
                        inline = inline.plus(leaf.totals(rows, inline=True))
                logs[number] = replace(log, inline=inline)
        return replace(self.snapshot, partitions=tuple(logs))

    def entries(self) -> pa.Table:
        """Every live segment as one table in (partition, offset) order."""
        parts: list[pa.Table] = []
        loose: list[Segment] = []
        # Load each leaf once: partitions share leaves, and the log may keep fewer in memory.
        cached = replace(self, load_leaf=cache(self.load_leaf))
        for number in range(len(self.snapshot.partitions)):
            for tile in self._live_tiles(number):
                if isinstance(tile, Segment):
                    loose.append(tile)
                else:
                    leaf, rows = cached.live_rows(number, tile)
                    entries = leaf.entries(rows)
                    check_paths(entries, source=leaf_path(tile.leaf))  # [LEAF-2]
                    parts.append(entries)
        return sort_entries([*parts, entries_of(loose)])

    def check_totals(self, entries: pa.Table) -> None:
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
        for number in range(len(self.snapshot.partitions)):
            self.check_partition_totals(number, found.get(number, Totals()))
        inline, told = totals_of_entries(entries, inline=True), self.snapshot.inline
        if told not in (None, inline):  # [INL-7]
            raise self._contradicted(f"{told} is inline, but such segments add up to {inline}")

    def check_partition_totals(self, partition: int, added: Totals) -> None:
        """Raise if `added`, the totals of all live segments of a partition, are not those that the
        root says [ROOT-5]."""
        live = self.snapshot.partitions[partition].live
        if added != live:
            raise self._contradicted(
                f"partition {partition} has {live}, but its segments add up to {added}"
            )

    def _contradicted(self, detail: str) -> CorruptTopicError:
        root = self.snapshot.root_version
        path = commit_path(self.snapshot.version) if root is None else root_path(root)
        return CorruptTopicError(path, "ROOT-5", detail)

    def _live_tiles(self, partition: int) -> Iterator[Tile]:
        log = self.snapshot.partitions[partition]
        return tiles_from(log, log.log_start)


def tiles_from(log: PartitionState, offset: int) -> Iterator[Tile]:
    """The tiles that end after `offset`, in offset order."""
    first = bisect_right(log.tiles, offset, key=tile_end)
    for index in range(first, len(log.tiles)):
        yield log.tiles[index]
