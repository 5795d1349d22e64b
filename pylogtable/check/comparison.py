"""Compares two topics by what they hold, partition by partition. Changes nothing.

How the records are stored does not matter: in how many commits and segments, in which order of
columns. Both sides are read at the same time, batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from pylogtable.check.content_hash import (
    ContentHash,
    RangeContent,
    RangeHash,
    first_different_block,
)
from pylogtable.format.schema import PARTITION
from pylogtable.operation import Threads
from pylogtable.presentation import (
    PARTITIONS_SHOWN,
    Partition,
    bytes_text,
    count_text,
    rows_html,
    table_html,
    titled_html,
)
from pylogtable.read.view import View

#: A hash is shown with this many characters, as Git shows commits.
_HASH_SHOWN = 12


class ShownComparison(NamedTuple):
    """A `PartitionComparison` as people see it."""

    partition: Partition
    offsets: str
    records: int
    other_offsets: str
    other_records: int
    hash: str | None
    other_hash: str | None


@dataclass(frozen=True)
class PartitionComparison:
    """One partition in a `ComparisonReport`. Names with `other_` belong to the other topic.

    `common` are the offsets `[start, end)` that both topics have. `common_records` counts the
    records there, `digest` is the hash of their content; it is None if no data was read. If the
    content differs, `first_difference` is the first offset where it does, and `columns` names what
    differs there: nothing, if only one of the topics has a record at that offset."""

    partition: int
    start: int
    end: int
    records: int
    other_start: int
    other_end: int
    other_records: int
    common: tuple[int, int]
    common_records: int
    other_common_records: int
    digest: str | None = None
    other_digest: str | None = None
    first_difference: int | None = None
    columns: tuple[str, ...] = ()

    @property
    def lag(self) -> int:
        """How many offsets the other topic is behind. Negative if it is ahead."""
        return self.end - self.other_end

    @property
    def same_so_far(self) -> bool:
        """True if the offsets that both topics have hold the same records."""
        return (self.common_records, self.digest) == (self.other_common_records, self.other_digest)

    @property
    def shown(self) -> ShownComparison:
        """The comparison as people see it."""
        return ShownComparison(
            self.partition,
            f"[{self.start},{self.end})",
            self.records,
            f"[{self.other_start},{self.other_end})",
            self.other_records,
            *(digest and digest[:_HASH_SHOWN] for digest in (self.digest, self.other_digest)),
        )

    def differences(self, topic: str, other: str) -> Iterator[str]:
        """Each difference as a sentence. `topic` and `other` are what the topics are called."""
        where = f"partition {self.partition}:"
        if self.start != self.other_start:
            yield f"{where} {topic} starts at offset {self.start}, {other} at {self.other_start}"
        if self.end != self.other_end:
            behind = other if self.lag > 0 else topic
            yield (
                f"{where} {topic} ends at offset {self.end}, {other} at {self.other_end}: "
                f"{behind} lags by {count_text(abs(self.lag), 'offset')}"
            )
        start, end = self.common
        both = f"from offset {start} to {end}"
        if self.common_records != self.other_common_records:
            yield (
                f"{where} {both}, {topic} has {count_text(self.common_records, 'record')}, "
                f"{other} has {self.other_common_records:,}"
            )
        if self.digest != self.other_digest:
            yield f"{where} the records {both} differ; {self._first_text()}"

    def _first_text(self) -> str:
        if not self.columns:
            return f"only one of the topics has a record at offset {self.first_difference}"
        names = ", ".join(repr(name) for name in self.columns)
        word = "columns" if len(self.columns) > 1 else "column"
        return f"the first that differs is at offset {self.first_difference}, in {word} {names}"


@dataclass(frozen=True)
class ComparisonReport:
    """What `Topic.compare` found. It is true if both topics hold the same.

    `topic` and `other` are the addresses. `partitions` has the partitions that both topics have.
    `columns` says how the columns differ; if they do, no data was read. `records_hashed` and
    `bytes_hashed` count what was hashed on both sides together."""

    topic: str
    other: str
    data: bool
    partition_counts: tuple[int, int]
    columns: tuple[str, ...]
    partitions: tuple[PartitionComparison, ...]
    records_hashed: int
    bytes_hashed: int
    seconds: float

    @property
    def equal(self) -> bool:
        """True if nothing differs. With `data=False` only offsets and counts were compared."""
        return not self.differences

    @property
    def same_so_far(self) -> bool:
        """True if nothing differs in what both topics have. So it is for a copy that lags, or that
        starts at another offset."""
        return not self.columns and all(row.same_so_far for row in self.partitions)

    @property
    def lag(self) -> int:
        """How many offsets the other topic is behind, in all partitions that both have."""
        return sum(max(0, row.lag) for row in self.partitions)

    @property
    def differences(self) -> list[str]:
        """Each difference as a sentence."""
        found = list(self.columns)
        one, two = self.partition_counts
        if one != two:
            found.append(f"{self.topic} has {count_text(one, 'partition')}, {self.other} has {two}")
        for row in self.partitions:
            found += row.differences(self.topic, self.other)
        return found

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        return "\n".join([self._summary(), *self.differences])

    def _repr_html_(self) -> str:
        rows = [row.shown for row in self.partitions]
        told = [(difference,) for difference in self.differences[:PARTITIONS_SHOWN]]
        return titled_html(
            f"{self.topic} and {self.other}",
            table_html([(self._summary(),), *told]),
            rows_html(ShownComparison, rows, PARTITIONS_SHOWN),
        )

    def _summary(self) -> str:
        if self.equal:
            verdict = "equal" if self.data else "equal in offsets and counts"
        else:
            verdict = "different, but the same so far" if self.same_so_far else "different"
        looked = "no data was read"
        if self.records_hashed:
            records = count_text(self.records_hashed, "record")
            looked = f"{records} ({bytes_text(self.bytes_hashed)}) hashed, both sides together"
        count = count_text(len(self.partitions), "partition")
        return f"{verdict}: {count} compared, {looked}; {self.seconds:.1f} s"


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
        self._block_offsets = view._store.limits.compared_offsets
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
        first = block * self._block_offsets
        start, end = max(start, first), min(end, first + self._block_offsets)
        at = self._first_difference(row.partition, start, end)
        return replace(row, first_difference=at, columns=self._columns_at(row.partition, at))

    def _read(self, partition: int, start: int, end: int) -> tuple[RangeContent, RangeContent]:
        def hashed(view: View) -> RangeContent:
            content = RangeHash(self._block_offsets)
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
