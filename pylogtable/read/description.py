"""What a topic is at one version: columns, settings, partitions, copies and tables of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa

from pylogtable.format.config import RECORDS, compacts, describe_config
from pylogtable.format.guard_rules import source_name
from pylogtable.format.model import CopyOf, Mirror, Totals
from pylogtable.format.schema import table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.presentation import (
    PARTITIONS_SHOWN,
    Column,
    Partition,
    arrow_table,
    bytes_text,
    computed_table,
    count_text,
    rows_html,
    schema_of,
    table_html,
    titled_html,
)


@dataclass(frozen=True)
class PublishedStatus:
    """How far a published table is behind the topic, in a `TopicDescription`. `lag_records` counts
    the offsets after those it shows. `lag_ms` is the time between the commit of the version that it
    shows and the newest commit. `view` is the setting `publish.view` that it was published with."""

    format: str
    version: int
    table_version: int
    lag_records: int
    lag_ms: int
    view: str = RECORDS

    def __str__(self) -> str:
        name = self.format if self.view == RECORDS else f"{self.format} ({self.view})"
        if not self.lag_records and self.lag_ms < 1000:
            return f"{name}: version {self.version:,}, up to date"
        return (
            f"{name}: version {self.version:,}, {self.lag_records:,} records and "
            f"{self.lag_ms / 1000:,.0f} s behind"
        )


@dataclass(frozen=True)
class MirrorStatus:
    """That a topic is, or was, a copy, in a `TopicDescription`. It has all records of
    `source_version` of its source, None before the first mirror was through. With `own_retention`
    it keeps and removes records by its own settings. It `is_partial` while it has a part of a newer
    version, in the middle of a mirror that takes several commits. `ended` is the version in which
    it became a topic like any other, by an append or a promotion; None while it can be mirrored."""

    source: str
    source_id: str
    source_version: int | None
    own_retention: bool
    ended: int | None
    is_partial: bool = False

    def __str__(self) -> str:
        version = self.source_version
        shown = "not complete yet" if version is None else f"at version {version:,} of it"
        shown += ", and a part of a newer one" if self.is_partial and version is not None else ""
        keeps = "its own retention" if self.own_retention else "retention of the source"
        source = self.source or self.source_id
        if self.ended is not None:
            return f"topic of its own since version {self.ended:,}; it was a copy of {source}"
        return f"copy of {source}, {shown}, {keeps}"


def mirror_status(mirror: Mirror | None) -> MirrorStatus | None:
    """What a copy knows about its source; None for other topics."""
    if mirror is None:
        return None
    return MirrorStatus(
        source=mirror.source,
        source_id=mirror.source_id,
        source_version=mirror.version,
        own_retention=mirror.own_retention,
        ended=mirror.ended,
        is_partial=mirror.partial,
    )


@dataclass(frozen=True)
class CopyStatus:
    """That a topic is, or was, a copy of a log of another system, such as a topic of Kafka, in a
    `TopicDescription`. Only its import appends to it. `ended` is the version in which it was
    promoted, and became a topic like any other; None while it can be imported."""

    kind: str
    name: str
    cluster: str
    address: str
    ended: int | None

    @property
    def source(self) -> str:
        """What it is, or was, a copy of, for people."""
        return source_name(self.kind, self.name, self.address)

    def __str__(self) -> str:
        if self.ended is not None:
            return f"topic of its own since version {self.ended:,}; it was a copy of {self.source}"
        return f"copy of {self.source}; only its import appends"


def copy_status(source: CopyOf | None) -> CopyStatus | None:
    """Of what log of another system a topic is a copy; None for other topics."""
    if source is None:
        return None
    return CopyStatus(source.kind, source.name, source.cluster, source.address, source.ended)


@dataclass(frozen=True)
class PartitionDescription:
    """One partition in a `TopicDescription`: its offsets, and the totals of its live segments. A
    field is a column of all tables of partitions."""

    partition: Partition
    log_start: int
    end: Annotated[int, Column("end offset")]
    segments: int
    records: int
    size_bytes: Annotated[int, Column("size", bytes_text)]


PARTITIONS_SCHEMA = schema_of(PartitionDescription)


@dataclass(frozen=True)
class TopicDescription:
    """A topic at one version, from `Topic.describe`. `config` has every setting with its value in
    force, defaults included. `published` has the tables of the formats in `publish.formats`.
    `inline_segments` are in commits and not in files; with their `inline_records` they are also
    among those of `partitions`. `mirror` says of which topic of another store the topic is a copy,
    and `copy_of` of which topic of Kafka; None if it is none."""

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
    copy_of: CopyStatus | None = None

    @property
    def is_compacted(self) -> bool:
        """True if a compaction keeps the newest record of each key."""
        return compacts(self.config)

    @property
    def segments(self) -> int:
        """The live segments of all partitions."""
        return sum(part.segments for part in self.partitions)

    @property
    def records(self) -> int:
        """The records of all partitions."""
        return sum(part.records for part in self.partitions)

    @property
    def size_bytes(self) -> int:
        """The size of all live segments."""
        return sum(part.size_bytes for part in self.partitions)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What there is to say in words about the topic as a whole."""
        records, segments = self.inline_records, self.inline_segments
        in_commits = f"{count_text(records, 'record')} in {count_text(segments, 'segment')}"
        return [
            ("location", self.url),
            ("key", ", ".join(self.key) or "none"),
            ("columns", ", ".join(f"{field.name}: {field.type}" for field in self.schema)),
            ("records", f"{self.records:,} in {bytes_text(self.size_bytes)}"),
            *([("in commits", in_commits)] if segments else []),
            *([("import", str(self.copy_of))] if self.copy_of is not None else []),
            *([("mirror", str(self.mirror))] if self.mirror is not None else []),
            *(("published", str(status)) for status in self.published),
        ]

    def to_table(self) -> pa.Table:
        """One row with the totals of all partitions. Use it to list many topics in one table."""
        return computed_table(_SUMMARY, [self])

    def partitions_table(self) -> pa.Table:
        """A row for each partition, with `PARTITIONS_SCHEMA`."""
        return arrow_table(PartitionDescription, self.partitions)

    def _repr_html_(self) -> str:
        policy = self.config["cleanup.policy"]
        facts = [("version", f"{self.version:,}"), *self.facts, ("cleanup.policy", policy)]
        shown = rows_html(PartitionDescription, self.partitions, PARTITIONS_SHOWN)
        return titled_html(f"topic {self.name}", table_html(facts), shown)


#: The columns of `TopicDescription.to_table`, and their values.
_SUMMARY: dict[pa.Field, Callable[[TopicDescription], Any]] = {
    pa.field("name", pa.string(), False): lambda topic: topic.name,
    pa.field("url", pa.string(), False): lambda topic: topic.url,
    pa.field("topic_id", pa.string(), False): lambda topic: topic.topic_id,
    pa.field("version", pa.int64(), False): lambda topic: topic.version,
    pa.field("created_at", pa.timestamp("ms", tz="UTC"), False): lambda topic: topic.created_at_ms,
    pa.field("key", pa.list_(pa.string()), False): lambda topic: topic.key,
    pa.field("partitions", pa.int32(), False): lambda topic: len(topic.partitions),
    pa.field("segments", pa.int64(), False): lambda topic: topic.segments,
    pa.field("records", pa.int64(), False): lambda topic: topic.records,
    pa.field("size_bytes", pa.int64(), False): lambda topic: topic.size_bytes,
    pa.field("config", pa.map_(pa.string(), pa.string()), False): lambda topic: list(
        topic.config.items()
    ),
}


def described_settings(snapshot: Snapshot) -> dict[str, str]:
    """Every setting with its value in force. The default of `inline.max.bytes` holds only in topics
    that were created with the feature [INL-5]."""
    in_force = {"inline.max.bytes": str(snapshot.inline_limit)}
    return describe_config(snapshot.info.config) | in_force


def describe(name: str, url: str, snapshot: Snapshot) -> TopicDescription:
    """The description of a topic's snapshot."""
    inline = snapshot.inline or Totals()
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
        inline_segments=inline.segments,
        inline_records=inline.records,
        mirror=mirror_status(snapshot.mirror),
        copy_of=copy_status(snapshot.info.copy_of),
    )
