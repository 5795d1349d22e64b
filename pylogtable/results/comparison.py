"""What a comparison of two topics returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pylogtable.results.text import ABSENT, bytes_text, count_text, table_html, titled_html

PARTITIONS_SHOWN = 50


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
        rows: list[tuple[str, ...]] = [_cells(row) for row in self.partitions[:PARTITIONS_SHOWN]]
        if len(self.partitions) > len(rows):
            rows.append((f"… {len(self.partitions) - len(rows):,} more", *[""] * 5))
        head = ("partition", "offsets", "records", "other's offsets", "other's records", "content")
        told = [(difference,) for difference in self.differences[:PARTITIONS_SHOWN]]
        return titled_html(
            f"{self.topic} and {self.other}",
            table_html([(self._summary(),), *told]),
            table_html(rows, head),
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


def _cells(row: PartitionComparison) -> tuple[str, ...]:
    content = ABSENT
    if row.digest is not None:
        content = f"same {row.digest[:12]}" if row.same_so_far else "differs"
    return (
        str(row.partition),
        f"{row.start:,} to {row.end:,}",
        f"{row.records:,}",
        f"{row.other_start:,} to {row.other_end:,}",
        f"{row.other_records:,}",
        content,
    )
