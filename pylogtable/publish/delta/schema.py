"""A topic's columns as a Delta table has them: schema, protocol and table properties. Pure.

Types have the same names here and there. A column that was renamed keeps its name in files, so the
table needs Delta's column mapping. The table names a writer feature that only we know: no other
writer may touch it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pylogtable.format.field_ids import column_ids, numbered, uses_mapping
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import LOG_FIELDS, PARTITION, WireType, from_arrow
from pylogtable.publish.columns import check_names, guid

#: Delta's writers refuse a table with a feature that they do not know.
OWN_FEATURE = "pylogtable"
#: Columns that are not nullable, as `offset` is, need it of writers.
INVARIANTS = "invariants"
COLUMN_MAPPING = "columnMapping"
TIMESTAMP_NTZ = "timestampNtz"
TYPE_WIDENING = "typeWidening"
DELETION_VECTORS = "deletionVectors"
CHECKPOINT_INTERVAL = 10

#: Without column mapping, Delta allows none of these in a column's name.
_SPECIAL = set(" ,;{}()\n\t=")

#: By stored name of a column: the types that it had in older files, oldest first.
Widened = Mapping[str, tuple[WireType, ...]]


def features_of(topic: TopicInfo, widened: Widened) -> set[str]:
    """The features of Delta that a reader of this topic needs."""
    features = set()
    names = [field.name for field in topic.fields]
    if uses_mapping(topic) or any(_SPECIAL & set(name) for name in names):
        features.add(COLUMN_MAPPING)
    if any(_contains(field.type, "timestamp_ntz") for field in topic.fields):
        features.add(TIMESTAMP_NTZ)
    if any(widened.values()):
        features.add(TYPE_WIDENING)
    return features


def protocol_of(features: Iterable[str]) -> dict[str, Any]:
    """The protocol. Reader version 3 names features: a reader that does not know one refuses. With
    version 2 some readers show nulls in renamed columns."""
    readers = sorted(features)
    writers = {"minWriterVersion": 7, "writerFeatures": [*readers, INVARIANTS, OWN_FEATURE]}
    if not readers:
        return {"minReaderVersion": 1, **writers}
    return {"minReaderVersion": 3, "readerFeatures": readers, **writers}


def metadata_of(
    name: str, topic_id: str, topic: TopicInfo, features: Iterable[str], widened: Widened
) -> dict[str, Any]:
    """The metadata of the table: schema, partition column and properties."""
    check_names(topic, "a Delta table")
    features = set(features)
    properties = {
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
        # A full vacuum of a foreign writer would take segments that are not shown yet for garbage.
        "delta.deletedFileRetentionDuration": "interval 36500 days",
        "delta.enableExpiredLogCleanup": "false",
        "pylogtable.topicId": topic_id,
    }
    if COLUMN_MAPPING in features:
        properties["delta.columnMapping.mode"] = "name"
        properties["delta.columnMapping.maxColumnId"] = str(numbered(topic).last_field_id)
    if TYPE_WIDENING in features:
        properties["delta.enableTypeWidening"] = "true"
    if DELETION_VECTORS in features:
        properties["delta.enableDeletionVectors"] = "true"
    schema = _schema(topic, is_mapped=COLUMN_MAPPING in features, widened=widened)
    return {
        "id": guid(topic_id),
        "name": name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema, separators=(",", ":")),
        "partitionColumns": [PARTITION],
        "configuration": properties,
        "createdTime": topic.created_at_ms,
    }


def _schema(topic: TopicInfo, *, is_mapped: bool, widened: Widened) -> dict[str, Any]:
    ids = column_ids(topic)
    columns: list[tuple[str, str, WireType, bool]] = [
        (field.name, field.name, from_arrow(field.type), field.nullable) for field in LOG_FIELDS
    ]
    columns += [(f.name, f.stored_name, f.type, f.nullable) for f in topic.fields]
    fields = []
    for name, stored, wire, nullable in columns:
        metadata: dict[str, Any] = {}
        older = widened.get(stored, ())
        if older:
            metadata["delta.typeChanges"] = [
                {"fromType": before, "toType": after}
                for before, after in zip(older, (*older[1:], wire), strict=True)
            ]
        if is_mapped:
            metadata |= _mapping(ids[name], stored)
        fields.append(
            {
                "name": name,
                "type": _type(wire, ids[name], is_mapped)[0],
                "nullable": nullable,
                "metadata": metadata,
            }
        )
    return {"type": "struct", "fields": fields}


def _mapping(field_id: int, stored: str) -> dict[str, Any]:
    return {"delta.columnMapping.id": field_id, "delta.columnMapping.physicalName": stored}


def _type(wire: WireType, last_id: int, is_mapped: bool) -> tuple[WireType, int]:
    """The type in Delta's JSON, and the last field id in it. Fields inside count on from their
    column's id, as they do in files [META-6]."""
    if isinstance(wire, str):
        return wire, last_id
    if wire["type"] == "array":
        element, last_id = _type(wire["elementType"], last_id + 1, is_mapped)
        nullable = wire.get("containsNull", True)
        return {"type": "array", "elementType": element, "containsNull": nullable}, last_id
    if wire["type"] == "map":
        key, last_id = _type(wire["keyType"], last_id + 1, is_mapped)
        value, last_id = _type(wire["valueType"], last_id + 1, is_mapped)
        nullable = wire.get("valueContainsNull", True)
        made = {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nullable}
        return made, last_id
    fields = []
    for field in wire["fields"]:
        own_id = last_id + 1
        inner, last_id = _type(field["type"], own_id, is_mapped)
        fields.append(
            {
                "name": field["name"],
                "type": inner,
                "nullable": field.get("nullable", True),
                "metadata": _mapping(own_id, field["name"]) if is_mapped else {},
            }
        )
    return {"type": "struct", "fields": fields}, last_id


def _contains(wire: WireType, name: str) -> bool:
    if isinstance(wire, str):
        return wire == name
    if wire["type"] == "struct":
        return any(_contains(field["type"], name) for field in wire["fields"])
    return any(
        _contains(wire[part], name)
        for part in ("elementType", "keyType", "valueType")
        if part in wire
    )
