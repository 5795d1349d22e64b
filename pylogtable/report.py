"""What operations tell about themselves: plain values, and tables where there are many of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from pylogtable.config import describe_config
from pylogtable.model import Commit
from pylogtable.schema import table_schema
from pylogtable.snapshot import Snapshot


@dataclass(frozen=True)
class AppendResult:
    """What an append did; `offsets` has `(start, end)` by partition. `repeated` says that its txn
    was in the log already, and that these are the offsets of then."""

    version: int
    offsets: dict[int, tuple[int, int]]
    records: int
    size_bytes: int
    segments: int
    seconds: float
    repeated: bool = False


@dataclass(frozen=True)
class PartitionDescription:
    partition: int
    log_start: int
    end: int
    segments: int
    records: int
    size_bytes: int


@dataclass(frozen=True)
class TopicDescription:
    """A topic at one version; `config` has every key with the value in force."""

    name: str
    url: str
    topic_id: str
    version: int
    created_at_ms: int
    schema: pa.Schema
    key: tuple[str, ...]
    config: dict[str, str]
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True)
class Problem:
    """One broken rule of the specification, and where."""

    rule: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path} breaks [{self.rule}]: {self.detail}"


@dataclass
class VerifyReport:
    """What `verify` looked at and what it found wrong; true if that is nothing."""

    problems: list[Problem] = field(default_factory=list)
    commits: int = 0
    leaves: int = 0
    segments: int = 0
    records: int = 0

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        looked = (
            f"{self.commits} commit(s), {self.leaves} leaf/leaves, {self.segments} segment(s), "
            f"{self.records} record(s)"
        )
        if self:
            return f"sound: {looked}"
        return "\n".join(
            [f"{len(self.problems)} problem(s) in {looked}:", *map(str, self.problems)]
        )


def describe(name: str, url: str, snapshot: Snapshot) -> TopicDescription:
    """The topic as `snapshot` has it."""
    return TopicDescription(
        name=name,
        url=url,
        topic_id=snapshot.topic_id,
        version=snapshot.version,
        created_at_ms=snapshot.info.created_at_ms,
        schema=table_schema(snapshot.info.fields),
        key=snapshot.info.key,
        config=describe_config(snapshot.info.config),
        partitions=tuple(
            PartitionDescription(
                partition=number,
                log_start=state.log_start,
                end=state.end,
                segments=state.live.segments,
                records=state.live.records,
                size_bytes=state.live.size_bytes,
            )
            for number, state in enumerate(snapshot.partitions)
        ),
    )


HISTORY_SCHEMA = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("committed_at", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("commit_id", pa.string(), nullable=False),
        pa.field("txn_app_id", pa.string()),
        pa.field("txn_version", pa.int64()),
        pa.field("segments_added", pa.int64(), nullable=False),
        pa.field("records_added", pa.int64(), nullable=False),
        pa.field("bytes_added", pa.int64(), nullable=False),
        pa.field("segments_removed", pa.int64(), nullable=False),
        pa.field("records_removed", pa.int64(), nullable=False),
        pa.field("end_offsets", pa.map_(pa.int32(), pa.int64()), nullable=False),
    ]
)


def offsets_of(commit: Commit) -> dict[int, tuple[int, int]]:
    """The offsets an append was given, by partition."""
    starts: dict[int, int] = {}
    for segment in commit.add:
        starts.setdefault(segment.partition, segment.base_offset)
    return {number: (start, commit.ends[number]) for number, start in sorted(starts.items())}


def history_table(commits: Iterable[Commit], limit: int | None) -> pa.Table:
    """Commits as rows, in the order given."""
    rows = []
    for commit in islice(commits, limit):
        dropped = [
            *(move.dropped for move in commit.log_starts),
            *(swap.dropped for swap in commit.replaced),
        ]
        rows.append(
            {
                "version": commit.version,
                "committed_at": commit.committed_at_ms,
                "operation": commit.operation,
                "commit_id": commit.commit_id,
                "txn_app_id": commit.txn.app_id if commit.txn else None,
                "txn_version": commit.txn.version if commit.txn else None,
                "segments_added": len(commit.add),
                "records_added": sum(segment.records for segment in commit.add),
                "bytes_added": sum(segment.size_bytes for segment in commit.add),
                "segments_removed": sum(total.segments for total in dropped),
                "records_removed": sum(total.records for total in dropped),
                "end_offsets": sorted(commit.ends.items()),
            }
        )
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)
