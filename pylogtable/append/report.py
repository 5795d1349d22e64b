"""What an append returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pylogtable.format.model import Commit, MirroredTxn, Txn
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


@dataclass(frozen=True)
class LastTxn:
    """The last txn of an app id, from `Topic.txn`: its number, the note that came with it, and
    where its records are. `version` is that of the topic that has it first."""

    number: int
    note: Any
    version: int
    offsets: dict[int, tuple[int, int]]
    records: int


def placed_by(commit: Commit, txn: Txn) -> tuple[dict[int, tuple[int, int]], int]:
    """The offsets that the append of a txn got, by partition, and how many records it had. The
    commit of a mirror has records of other appends as well [MIR-3], and so has a combined one
    [OFFER-4]."""
    for one in commit.appends:
        if one.txn == txn:
            return dict(one.offsets), one.records
    if isinstance(txn, MirroredTxn):
        return dict(txn.offsets), txn.records
    return offsets_of(commit), sum(segment.records for segment in commit.add)


def offsets_of(commit: Commit) -> dict[int, tuple[int, int]]:
    """The offsets that an append got, by partition. A hole before its first record is left out."""
    starts: dict[int, int] = {}
    for segment in commit.add:
        first = segment.row_groups[0] if segment.row_groups else 0
        starts.setdefault(segment.partition, segment.base_offset + first)
    return {number: (start, commit.ends[number]) for number, start in sorted(starts.items())}
