"""What an append returns."""

from __future__ import annotations

from dataclasses import dataclass

from pylogtable.format.model import Commit
from pylogtable.presentation import bytes_text, count_text, spans_text


@dataclass(frozen=True)
class AppendResult:
    """What an append did, from `Topic.append`. `offsets` has `(start, end)` by partition, from the
    first record to one past the last. If
    `repeated` is true, the log had this txn already: nothing was appended, and offsets and origin
    are those of the first time."""

    version: int
    offsets: dict[int, tuple[int, int]]
    records: int
    size_bytes: int
    segments: int
    seconds: float
    repeated: bool = False
    origin: str | None = None

    def __str__(self) -> str:
        places = spans_text(self.offsets.items(), ", ")
        if self.repeated:
            return f"nothing appended: version {self.version:,} has this txn already{places}"
        return (
            f"appended {count_text(self.records, 'record')} ({bytes_text(self.size_bytes)}) in "
            f"version {self.version:,}{places}; {self.seconds:.1f} s"
        )


def offsets_of(commit: Commit) -> dict[int, tuple[int, int]]:
    """The offsets that an append got, by partition. A hole before its first record is left out."""
    starts: dict[int, int] = {}
    for segment in commit.add:
        first = segment.row_groups[0] if segment.row_groups else 0
        starts.setdefault(segment.partition, segment.base_offset + first)
    return {number: (start, commit.ends[number]) for number, start in sorted(starts.items())}
