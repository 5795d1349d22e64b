"""Compares two topics by what they hold, partition by partition. Changes nothing.

How the records are stored does not matter: in how many commits and segments, in which order of
columns. Both sides are read at the same time, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from pylogtable.format.content_hash import (
    BLOCK_OFFSETS,
    ContentHash,
    RangeContent,
    RangeHash,
    first_different_block,
)
from pylogtable.format.schema import PARTITION
from pylogtable.operation import Threads
from pylogtable.read.view import View
from pylogtable.results.comparison import ComparisonReport, PartitionComparison


def compare(
    view: View, other: View, monotonic: Callable[[], float], *, data: bool
) -> ComparisonReport:
    """Compare both topics at these versions. Without `data`, only offsets and numbers of records
    are compared."""
    began = monotonic()
    columns = _column_differences(view, other)
    rows = _compare_ranges(view, other)
    records_hashed = bytes_hashed = 0
    if data and not columns:
        pair = _Pair(view, other)
        rows = [pair.compare_content(row) for row in rows]
        records_hashed, bytes_hashed = pair.records_hashed, pair.bytes_hashed
    return ComparisonReport(
        topic=view.url,
        other=other.url,
        data=data,
        partition_counts=(view.partition_count, other.partition_count),
        columns=tuple(columns),
        partitions=tuple(rows),
        records_hashed=records_hashed,
        bytes_hashed=bytes_hashed,
        seconds=monotonic() - began,
    )


def _column_differences(view: View, other: View) -> list[str]:
    """How the columns differ, in names and types. Their order does not matter."""
    mine, others = ({column.name: column.type for column in v.schema} for v in (view, other))
    found = []
    for name in sorted(mine.keys() | others.keys()):
        if name not in others:
            found.append(f"column {name!r} is only in {view.url}")
        elif name not in mine:
            found.append(f"column {name!r} is only in {other.url}")
        elif mine[name] != others[name]:
            found.append(
                f"column {name!r} is {mine[name]} in {view.url}, and {others[name]} in {other.url}"
            )
    return found


def _compare_ranges(view: View, other: View) -> list[PartitionComparison]:
    numbers = range(min(view.partition_count, other.partition_count))
    wholes = [view.ranges(numbers), other.ranges(numbers)]
    common = {}
    for number in numbers:
        (start, end), (other_start, other_end) = wholes[0][number], wholes[1][number]
        first = max(start, other_start)
        common[number] = first, max(first, min(end, other_end))
    totals, other_totals = _counts(view, wholes[0]), _counts(other, wholes[1])
    shared, other_shared = _counts(view, common), _counts(other, common)
    return [
        PartitionComparison(
            partition=number,
            start=wholes[0][number][0],
            end=wholes[0][number][1],
            records=totals[number],
            other_start=wholes[1][number][0],
            other_end=wholes[1][number][1],
            other_records=other_totals[number],
            common=common[number],
            common_records=shared[number],
            other_common_records=other_shared[number],
        )
        for number in numbers
    ]


def _counts(view: View, ranges: dict[int, tuple[int, int]]) -> dict[int, int]:
    """The number of records in each range. A range may be empty and outside of the log."""
    sizes = view.range_sizes({n: (start, end) for n, (start, end) in ranges.items() if start < end})
    return {number: sizes[number].records if number in sizes else 0 for number in ranges}


class _Pair:
    """Two topics with the same columns, while their records are read."""

    def __init__(self, view: View, other: View) -> None:
        self._views = (view, other)
        self._columns = sorted(name for name in view.schema.names if name != PARTITION)
        self.records_hashed = 0
        self.bytes_hashed = 0

    def compare_content(self, row: PartitionComparison) -> PartitionComparison:
        """The row with what the records say."""
        start, end = row.common
        if start == end:
            return row
        one, other = self._read(row.partition, start, end)
        self.records_hashed += one.records + other.records
        self.bytes_hashed += one.size_bytes + other.size_bytes
        row = replace(row, digest=one.digest, other_digest=other.digest)
        block = first_different_block(one, other)
        if block is None:
            return row
        start, end = max(start, block * BLOCK_OFFSETS), min(end, (block + 1) * BLOCK_OFFSETS)
        at = self._first_difference(row.partition, start, end)
        return replace(row, first_difference=at, columns=self._columns_at(row.partition, at))

    def _read(self, partition: int, start: int, end: int) -> tuple[RangeContent, RangeContent]:
        def hashed(view: View) -> RangeContent:
            content = RangeHash()
            for batch in view.read(partition, start, end, self._columns):
                content.add(batch)
            return content.finish()

        with Threads(2) as pool:
            one, other = pool.map(hashed, self._views)
            return one, other

    def _first_difference(self, partition: int, start: int, end: int) -> int:
        """The first offset that differs, in a range that does: half of it is read, then a quarter,
        and so on."""
        while end - start > 1:
            middle = (start + end) // 2
            one, other = self._read(partition, start, middle)
            if one.blocks == other.blocks:
                start = middle
            else:
                end = middle
        return start

    def _columns_at(self, partition: int, offset: int) -> tuple[str, ...]:
        """The columns in which the records at this offset differ; none if one has no record."""
        one, other = (
            view.read(partition, offset, offset + 1, self._columns).read_all()
            for view in self._views
        )
        if one.num_rows != other.num_rows:
            return ()
        names = self._columns
        return tuple(name for name in names if _digest(one, name) != _digest(other, name))


def _digest(table: pa.Table, name: str) -> bytes:
    content = ContentHash()
    for batch in table.select([name]).to_batches():
        content.add(batch)
    return content.digest()
