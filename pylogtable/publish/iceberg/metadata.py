"""The metadata file of a topic's Iceberg table, `metadata/v<N>.metadata.json`. Pure.

Each file has the whole table: schemas, snapshots, properties. Its current snapshot shows one
version of the topic. The summary of that snapshot says under `pylogtable.state` all that the next
publication has to know [PUB-5]. Older snapshots only say their version.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec
import pyarrow as pa

from pylogtable.format.model import TopicInfo
from pylogtable.format.published_state import PublishedState
from pylogtable.publish.columns import guid
from pylogtable.publish.iceberg.schema import (
    PARTITION_FIELD_ID,
    PARTITION_SPEC,
    Json,
    check_promotion,
    last_column_id,
    name_mapping,
    schema_of,
)
from pylogtable.publish.table import damaged, state_in

STATE = "pylogtable.state"
VERSION = "pylogtable.version"
PUBLISH_ID = "pylogtable.publish-id"
PROMPT = "pylogtable.prompt"
#: What stays of the summary of a snapshot that is not the current one.
_KEPT_SUMMARY = frozenset(
    {
        *("operation", VERSION, PROMPT, "manifests-replaced", "total-records"),
        *("added-data-files", "deleted-data-files", "added-records", "deleted-records"),
    }
)
_HOUR_MS = 3_600_000
TOPIC_ID = "pylogtable.topic-id"
NAME_MAPPING = "schema.name-mapping.default"
#: The most metadata files that the metadata log names.
MAX_METADATA_LOG = 100
#: What a table has gone through. The rest of its metadata follows from the topic.
_HISTORY = (
    *("last-sequence-number", "last-updated-ms", "last-column-id", "current-schema-id", "schemas"),
    *("current-snapshot-id", "snapshots", "snapshot-log", "metadata-log", "refs"),
)


class IcebergSnapshot(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True
):
    """A snapshot of the table, as the metadata has it."""

    snapshot_id: int
    parent_snapshot_id: int | None = None
    sequence_number: int
    timestamp_ms: int
    manifest_list: str
    summary: dict[str, str]
    schema_id: int

    def count(self, key: str) -> int:
        """A number of the summary; 0 if it is not there."""
        text = self.summary.get(key, "0")
        return int(text) if text.isdecimal() else 0


class _Field(msgspec.Struct, frozen=True):
    id: int
    name: str
    type: str | Json


class _Schema(msgspec.Struct, frozen=True, rename="kebab"):
    schema_id: int
    fields: list[_Field]


class _Shape(msgspec.Struct, frozen=True, rename="kebab"):
    """What we use of a metadata file. The rest is kept as it is."""

    location: str
    last_updated_ms: int
    last_sequence_number: int
    last_column_id: int
    current_schema_id: int
    schemas: list[_Schema]
    properties: dict[str, str]
    snapshots: tuple[IcebergSnapshot, ...] = ()
    snapshot_log: list[dict[str, int]] = []
    metadata_log: list[dict[str, str | int]] = []
    current_snapshot_id: int | None = None


@dataclass(frozen=True)
class Metadata:
    """A metadata file, decoded. `body` is the whole of it."""

    body: Json
    snapshots: tuple[IcebergSnapshot, ...]

    @property
    def location(self) -> str:
        return str(self.body["location"])

    @property
    def current(self) -> IcebergSnapshot | None:
        wanted = self.body.get("current-snapshot-id")
        return next((s for s in self.snapshots if s.snapshot_id == wanted), None)

    @property
    def schema(self) -> Json:
        """The current schema."""
        wanted = self.body["current-schema-id"]
        found: Json = next(s for s in self.body["schemas"] if s["schema-id"] == wanted)
        return found

    def state(self, path: str) -> PublishedState | None:
        """What the current snapshot says about itself; None if somebody else wrote it."""
        current = self.current
        text = None if current is None else current.summary.get(STATE)
        if text is None:
            return None
        try:
            return state_in(msgspec.json.decode(text), path)
        except msgspec.DecodeError as error:
            raise damaged(path, str(error), "PUB-5") from error


def decode(data: bytes, path: str) -> Metadata | None:
    """Decode a metadata file. None if the table was never ours. Raises if it is damaged."""
    try:
        body = msgspec.json.decode(data, type=dict[str, Any])
        properties = body.get("properties")
        if isinstance(properties, dict) and TOPIC_ID not in properties:
            return None
        shape = msgspec.convert(body, _Shape)
        if shape.current_schema_id not in [schema.schema_id for schema in shape.schemas]:
            raise msgspec.ValidationError("the current schema is missing")
    except msgspec.DecodeError as error:
        raise damaged(path, f"it cannot be decoded: {error}") from error
    return Metadata(body, shape.snapshots)


def encode(metadata: Metadata) -> bytes:
    return msgspec.json.encode(metadata.body)


def snapshot_id_of(publish_id: str, step: int) -> int:
    """The id of a snapshot. Each publication has other ones."""
    digest = sha256(f"{publish_id}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1


def table_uuid(topic_id: str) -> str:
    """The id of the table. A topic that was created anew has another one."""
    is_uuid = len(topic_id) == 32 and set(topic_id) <= set("0123456789abcdef")
    return guid(topic_id if is_uuid else sha256(topic_id.encode()).hexdigest()[:32])


def new_table(location: str, topic_id: str, topic: TopicInfo) -> Metadata:
    """The metadata of a table without snapshots."""
    body = {
        "format-version": 2,
        "table-uuid": table_uuid(topic_id),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": last_column_id(topic),
        "current-schema-id": 0,
        "schemas": [schema_of(topic, 0)],
        "default-spec-id": 0,
        "partition-specs": [PARTITION_SPEC],
        "last-partition-id": PARTITION_FIELD_ID,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": _own_properties(topic_id),
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }
    return Metadata(body, ())


def taken_back(metadata: Metadata, topic_id: str, topic: TopicInfo) -> Metadata:
    """The same table without what another engine may have changed beside the snapshots: columns,
    layout, format version, our own properties. Other properties stay."""
    kept = {key: metadata.body[key] for key in _HISTORY if key in metadata.body}
    body = new_table(metadata.location, topic_id, topic).body | kept
    current = metadata.current
    if current is not None and any(s["schema-id"] == current.schema_id for s in body["schemas"]):
        body["current-schema-id"] = current.schema_id
    body["properties"] = metadata.body["properties"] | _own_properties(topic_id)
    return Metadata(body, metadata.snapshots)


def _own_properties(topic_id: str) -> dict[str, str]:
    # Without gc.enabled, engines that expire snapshots or drop the table remove the topic's files.
    return {TOPIC_ID: topic_id, "gc.enabled": "false"}


def with_columns(metadata: Metadata, topic: TopicInfo, files: Iterable[pa.Schema]) -> Metadata:
    """The same table with the topic's columns, and with new files that have the columns `files`.
    Raises if Iceberg cannot read the files that the table shows with these columns."""
    body = dict(metadata.body)
    new_id = max(schema["schema-id"] for schema in body["schemas"]) + 1
    schema = schema_of(topic, new_id)
    check_promotion(metadata.schema, schema)
    if schema["fields"] != metadata.schema["fields"]:
        body["schemas"] = [*body["schemas"], schema]
        body["current-schema-id"] = new_id
    body["last-column-id"] = max(body["last-column-id"], last_column_id(topic))
    mapping = name_mapping(topic, body["properties"].get(NAME_MAPPING), files)
    body["properties"] = body["properties"] | {NAME_MAPPING: mapping}
    return Metadata(body, metadata.snapshots)


def with_snapshots(
    metadata: Metadata,
    new: Sequence[IcebergSnapshot],
    before: str | None,
    keep_since_ms: int,
    keep_newest: int,
) -> Metadata:
    """The table after new snapshots; the last one is current. `before` is the place of the metadata
    file before this one. Snapshots that were replaced before `keep_since_ms` are dropped, and of
    all but the newest most others [PUB-7]."""
    body = dict(metadata.body)
    last = new[-1]
    all_snapshots = [*metadata.snapshots, *new]
    kept = _thinned(_kept(all_snapshots, keep_since_ms), last, keep_newest)
    snapshots = (*map(_slim, kept), last)
    known = {one.snapshot_id for one in snapshots}
    if before is not None:
        entry = {"metadata-file": before, "timestamp-ms": body["last-updated-ms"]}
        log = [*body.get("metadata-log", ()), entry]
        log = [one for one in log if one["timestamp-ms"] >= keep_since_ms]
        body["metadata-log"] = log[-MAX_METADATA_LOG:]
    logged = {"snapshot-id": last.snapshot_id, "timestamp-ms": last.timestamp_ms}
    history = [*body.get("snapshot-log", ()), logged]
    schema_ids = {one.schema_id for one in snapshots} | {body["current-schema-id"]}
    body |= {
        "last-sequence-number": last.sequence_number,
        "last-updated-ms": last.timestamp_ms,
        "current-snapshot-id": last.snapshot_id,
        "schemas": [one for one in body["schemas"] if one["schema-id"] in schema_ids],
        "snapshots": [msgspec.to_builtins(one) for one in snapshots],
        "snapshot-log": [one for one in history if one["snapshot-id"] in known],
        "refs": {"main": {"snapshot-id": last.snapshot_id, "type": "branch"}},
    }
    return Metadata(body, snapshots)


def _kept(snapshots: Sequence[IcebergSnapshot], since_ms: int) -> list[IcebergSnapshot]:
    """All snapshots but the last that were current at this time or later."""
    pairs = itertools.pairwise(snapshots)
    return [one for one, following in pairs if following.timestamp_ms >= since_ms]


def _thinned(
    snapshots: Sequence[IcebergSnapshot], last: IcebergSnapshot, keep_newest: int
) -> list[IcebergSnapshot]:
    """Those before the last one that stay: the newest, of the others the last of each hour, and all
    that tell a vacuum of files which it would not keep without them."""
    few = len(snapshots) - max(0, keep_newest - 1)
    pairs = itertools.pairwise([*snapshots, last])
    return [
        one
        for number, (one, following) in enumerate(pairs)
        if number >= few
        or one.timestamp_ms // _HOUR_MS != following.timestamp_ms // _HOUR_MS
        or (one.count("deleted-data-files") and PROMPT not in one.summary)
    ]


def _slim(snapshot: IcebergSnapshot) -> IcebergSnapshot:
    """The state is only of use in the current snapshot, and it may be large; so are totals."""
    if snapshot.summary.keys() <= _KEPT_SUMMARY:
        return snapshot
    summary = {key: text for key, text in snapshot.summary.items() if key in _KEPT_SUMMARY}
    return msgspec.structs.replace(snapshot, summary=summary)


def replacing(snapshots: Sequence[IcebergSnapshot]) -> set[int]:
    """The ids of the snapshots whose manifests the next snapshot need not all have."""
    return {
        one.snapshot_id
        for one, following in itertools.pairwise(snapshots)
        if following.parent_snapshot_id != one.snapshot_id or following.count("manifests-replaced")
    }
