"""What a topic is at one version: columns, settings, partitions, copies and tables of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow as pa

from pylogtable.format.config import describe_config
from pylogtable.format.model import Mirror
from pylogtable.format.schema import table_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.presentation import bytes_text, count_text, table_html, titled_html


@dataclass(frozen=True)
class PublishedStatus:
    """How far a published table is behind the topic, in a `TopicDescription`. `lag_records` counts
    the offsets after those it shows. `lag_ms` is the time between the commit of the version that it
    shows and the newest commit."""

    format: str
    version: int
    table_version: int
    lag_records: int
    lag_ms: int

    def __str__(self) -> str:
        if not self.lag_records and self.lag_ms < 1000:
            return f"{self.format}: version {self.version:,}, up to date"
        return (
            f"{self.format}: version {self.version:,}, {self.lag_records:,} records and "
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


PARTITIONS_SHOWN = 50


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
