"""What operations on topics return: plain values and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice

import pyarrow as pa

from pylogtable.format.config import describe_config
from pylogtable.format.model import Commit
from pylogtable.format.schema import table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.results.mirror import MirrorStatus, mirror_status
from pylogtable.results.publication import PublishedStatus
from pylogtable.results.text import (
    bytes_text,
    count_text,
    spans_text,
    table_html,
    titled_html,
)

PARTITIONS_SHOWN = 50


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
        places = spans_text(self.offsets)
        if self.repeated:
            return f"nothing appended: version {self.version:,} has this txn already{places}"
        return (
            f"appended {count_text(self.records, 'record')} ({bytes_text(self.size_bytes)}) in "
            f"version {self.version:,}{places}; {self.seconds:.1f} s"
        )


@dataclass(frozen=True)
class PartitionDescription:
    """One partition in a `TopicDescription`: its offsets, and the totals of its live segments."""

    partition: int
    log_start: int
    end: int
    segments: int
    records: int
    size_bytes: int


@dataclass(frozen=True)
class TopicDescription:
    """A topic at one version, from `Topic.describe`. `config` has every setting with its value in
    force, defaults included. `published` has the tables of the formats in `publish.formats`.
    `inline_segments` are in commits and not in files; with their `inline_records` they are also
    among those of `partitions`. `mirror` says of what the topic is a copy; None if it is none."""

    name: str
    url: str
    topic_id: str
    version: int
    created_at_ms: int
    schema: pa.Schema
    key: tuple[str, ...]
    config: dict[str, str]
    partitions: tuple[PartitionDescription, ...]
    published: tuple[PublishedStatus, ...] = ()
    inline_segments: int = 0
    inline_records: int = 0
    mirror: MirrorStatus | None = None

    def to_table(self) -> pa.Table:
        """One row with the totals of all partitions. Use it to list many topics in one table."""
        row = {
            "name": self.name,
            "url": self.url,
            "topic_id": self.topic_id,
            "version": self.version,
            "created_at": self.created_at_ms,
            "key": self.key,
            "partitions": len(self.partitions),
            "segments": sum(part.segments for part in self.partitions),
            "records": sum(part.records for part in self.partitions),
            "size_bytes": sum(part.size_bytes for part in self.partitions),
            "config": list(self.config.items()),
        }
        return pa.Table.from_pylist([row], schema=DESCRIPTION_SCHEMA)

    @property
    def inline_text(self) -> str:
        """What is in commits, in words."""
        records = count_text(self.inline_records, "record")
        return f"{records} in {count_text(self.inline_segments, 'segment')}"

    def _repr_html_(self) -> str:
        records = sum(part.records for part in self.partitions)
        size = sum(part.size_bytes for part in self.partitions)
        facts = [
            ("location", self.url),
            ("version", f"{self.version:,}"),
            *([("mirror", str(self.mirror))] if self.mirror is not None else []),
            ("key", ", ".join(self.key) or "none"),
            ("columns", ", ".join(f"{field.name}: {field.type}" for field in self.schema)),
            ("records", f"{records:,} in {bytes_text(size)}"),
            *([("in commits", self.inline_text)] if self.inline_segments else []),
            ("cleanup.policy", self.config["cleanup.policy"]),
            *(("published", str(status)) for status in self.published),
        ]
        shown: list[tuple[str, ...]] = [
            (
                str(part.partition),
                f"{part.log_start:,}",
                f"{part.end:,}",
                f"{part.segments:,}",
                f"{part.records:,}",
                bytes_text(part.size_bytes),
            )
            for part in self.partitions[:PARTITIONS_SHOWN]
        ]
        if len(self.partitions) > len(shown):
            shown.append((f"… {len(self.partitions) - len(shown):,} more", *[""] * 5))
        head = ("partition", "log start", "end", "segments", "records", "size")
        return titled_html(f"topic {self.name}", table_html(facts), table_html(shown, head))


@dataclass(frozen=True)
class Problem:
    """One finding of `Topic.verify`: the broken rule of the specification, and the object."""

    rule: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path} breaks [{self.rule}]: {self.detail}"


@dataclass(frozen=True)
class Unchecked:
    """What `Topic.verify` could not look at, because the store failed: an object, or a folder with
    objects. Nothing is known about it."""

    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path} could not be checked: {self.detail}"


@dataclass
class VerifyReport:
    """What `Topic.verify` checked and found. It is true if it has looked at everything, and there
    are no problems. If the store failed, `unchecked` says where: verify again later."""

    problems: list[Problem] = field(default_factory=list)
    commits: int = 0
    leaves: int = 0
    segments: int = 0
    records: int = 0
    unchecked: list[Unchecked] = field(default_factory=list)

    @property
    def sound(self) -> bool | None:
        """True if nothing is wrong, False if there are problems. None if that is not known: there
        are no problems where `verify` has looked, but it could not look everywhere."""
        if self.problems:
            return False
        return None if self.unchecked else True

    def __bool__(self) -> bool:
        return self.sound is True

    def __str__(self) -> str:
        looked = (
            f"{count_text(self.commits, 'commit')}, {count_text(self.leaves, 'index file')}, "
            f"{count_text(self.segments, 'segment')}, {count_text(self.records, 'record')} read"
        )
        if self:
            return f"sound: {looked}"
        lines: list[object] = []
        if self.problems:
            lines += [f"{len(self.problems)} problem(s) in {looked}:", *self.problems]
        if self.unchecked:
            found = "" if self.problems else f" No problem in the rest: {looked}."
            places = count_text(len(self.unchecked), "place")
            lines += [
                f"could not look at {places}, because the store failed.{found} Verify again later:",
                *self.unchecked,
            ]
        return "\n".join(map(str, lines))

    def _repr_html_(self) -> str:
        verdicts = {True: "sound", False: "damaged", None: "not known: the store failed"}
        facts = [
            ("verdict", verdicts[self.sound]),
            ("commits", f"{self.commits:,}"),
            ("index files", f"{self.leaves:,}"),
            ("segments", f"{self.segments:,}"),
            ("records read", f"{self.records:,}"),
        ]
        tables = [table_html(facts)]
        if self.problems:
            broken = [(p.path, f"[{p.rule}]", p.detail) for p in self.problems]
            tables.append(table_html(broken, ("object", "broken rule", "what is wrong")))
        if self.unchecked:
            rows = [(place.path, place.detail) for place in self.unchecked]
            tables.append(table_html(rows, ("could not look at", "because")))
        return titled_html("verify", *tables)


def described_settings(snapshot: Snapshot) -> dict[str, str]:
    """Every setting with its value in force. The default of `inline.max.bytes` holds only in topics
    that were created with the feature [INL-5]."""
    in_force = {"inline.max.bytes": str(snapshot.inline_limit)}
    return describe_config(snapshot.info.config) | in_force


def describe(name: str, url: str, snapshot: Snapshot) -> TopicDescription:
    """The description of a topic's snapshot."""
    return TopicDescription(
        name=name,
        url=url,
        topic_id=snapshot.topic_id,
        version=snapshot.version,
        created_at_ms=snapshot.info.created_at_ms,
        schema=table_schema(snapshot.info.fields),
        key=snapshot.info.key,
        config=described_settings(snapshot),
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
        mirror=mirror_status(snapshot.mirror),
    )


DESCRIPTION_SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("url", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("created_at", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("key", pa.list_(pa.string()), nullable=False),
        pa.field("partitions", pa.int32(), nullable=False),
        pa.field("segments", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("config", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)
PARTITIONS_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("log_start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("segments", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
    ]
)


def partitions_table(description: TopicDescription) -> pa.Table:
    """A row for each partition."""
    rows = [asdict(partition) for partition in description.partitions]
    return pa.Table.from_pylist(rows, schema=PARTITIONS_SCHEMA)


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
        pa.field("summary", pa.map_(pa.string(), pa.int64()), nullable=False),
    ]
)


def offsets_of(commit: Commit) -> dict[int, tuple[int, int]]:
    """The offsets that an append got, by partition. A hole before its first record is left out."""
    starts: dict[int, int] = {}
    for segment in commit.add:
        first = segment.row_groups[0] if segment.row_groups else 0
        starts.setdefault(segment.partition, segment.base_offset + first)
    return {number: (start, commit.ends[number]) for number, start in sorted(starts.items())}


def history_table(commits: Iterable[Commit], limit: int | None) -> pa.Table:
    """A row for each commit, in the given order, at most `limit`."""
    rows = []
    for commit in islice(commits, None if limit is None else min(limit, sys.maxsize)):
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
                "summary": sorted(commit.summary.items()),
            }
        )
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)
