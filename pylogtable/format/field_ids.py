"""The ids of a topic's columns, and the columns as files store them [META-6..8]. Pure.

Names may change, ids never do. A file has a column under its *stored name*, which is usually the
name that it had when it was added. A rename changes only the name in the topic. A dropped column
stays in older files, and its stored name is *retired*: no other column gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from pylogtable.format.config import compacts
from pylogtable.format.model import Field, TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    LOG_FIELDS,
    OFFSET,
    PARTITION,
    RESERVED,
    TIMESTAMP,
    WireType,
    to_arrow,
    value_columns,
)

FIRST_ID = 16
LOG_IDS = {PARTITION: 1, OFFSET: 2, TIMESTAMP: 3}

_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that a topic object breaks, and how."""

    rule: str
    detail: str


def with_ids(fields: Iterable[Field], last_id: int = FIRST_ID - 1) -> tuple[tuple[Field, ...], int]:
    """The fields with the ids after `last_id`, and the last id given. The fields inside a column
    take the ids after its own."""
    numbered = []
    for field in fields:
        numbered.append(msgspec.structs.replace(field, id=last_id + 1))
        last_id += 1 + _fields_inside(field.type)
    return tuple(numbered), last_id


def numbered(topic: TopicInfo) -> TopicInfo:
    """The topic with the id of each column. As long as no column was dropped, ids count up in the
    order of the columns, whether or not the topic says so [META-6]."""
    if topic.retired:
        return topic
    fields, last_id = with_ids(topic.fields)
    return msgspec.structs.replace(topic, fields=fields, last_field_id=last_id)


def field_fault(topic: TopicInfo) -> Fault | None:
    """What is wrong with the ids and the stored names of a topic; None if they are sound."""
    return _id_fault(topic) or _stored_name_fault(topic) or _tombstone_fault(topic)


def uses_mapping(topic: TopicInfo) -> bool:
    """True if a reader that knows no stored names would read the topic wrongly. Then the topic's
    protocol must have the feature `column-mapping`."""
    return bool(topic.retired) or any(field.stored_as is not None for field in topic.fields)


def column_ids(topic: TopicInfo) -> dict[str, int]:
    """The ids of the log's own columns and of the topic's, by name [META-6]."""
    return LOG_IDS | {field.name: field.id or 0 for field in numbered(topic).fields}


def stored_schema(topic: TopicInfo) -> pa.Schema:
    """The columns of a segment file as they are written: stored names, and ids as Parquet field
    ids [SEG-3], [META-6]."""
    log = [field.with_metadata({_ID: str(LOG_IDS[field.name])}) for field in LOG_FIELDS[1:]]
    return pa.schema([*log, *map(_stored_field, numbered(topic).fields)])


def inline_schema(topic: TopicInfo) -> pa.Schema:
    """The columns of the rows in a commit: those of a file without `offset`, and without ids, which
    would be larger than few rows [INL-2]."""
    stored = [pa.field(f.stored_name, to_arrow(f.type), f.nullable) for f in topic.fields]
    return pa.schema([*LOG_FIELDS[2:], *stored])


def ids_of(field: Field) -> list[int]:
    """The id of a column of a numbered topic, and those of the fields inside of it [META-6]."""
    assert field.id is not None
    return list(range(field.id, field.id + 1 + _fields_inside(field.type)))


def ids_in_file(column: pa.Field) -> list[int]:
    """The id of a column as a Parquet file has it, and the ids of the fields inside. Empty if there
    are none."""
    written = (column.metadata or {}).get(_ID)
    own = [] if written is None else [int(written)]
    return own + [number for inner in _fields_of(column.type) for number in ids_in_file(inner)]


def _fields_inside(wire: WireType) -> int:
    """How many fields a type has, at all levels."""
    return sum(1 + _fields_inside(child) for child in _children(wire))


def _children(wire: WireType) -> list[WireType]:
    if isinstance(wire, str):
        return []
    if wire["type"] == "array":
        return [wire["elementType"]]
    if wire["type"] == "map":
        return [wire["keyType"], wire["valueType"]]
    return [field["type"] for field in wire["fields"]]


def _id_fault(topic: TopicInfo) -> Fault | None:
    if not topic.retired:
        counted = numbered(topic)
        pairs = [
            *((field.name, field.id, right.id) for field, right in _pairs(topic, counted)),
            ("last_field_id", topic.last_field_id, counted.last_field_id),
        ]
        for name, given, right in pairs:
            if given not in (None, right):
                return Fault("META-6", f"{name!r} has the id {given}, but {right} is its turn")
        return None
    free = FIRST_ID
    for field in topic.fields:
        if field.id is None or field.id < free:
            detail = f"column {field.name!r} has the id {field.id}, not {free} or more"
            return Fault("META-6", detail)
        free = field.id + 1 + _fields_inside(field.type)
    if topic.last_field_id is None or topic.last_field_id < free - 1:
        return Fault("META-6", f"last_field_id is {topic.last_field_id}, not {free - 1} or more")
    return None


def _pairs(one: TopicInfo, other: TopicInfo) -> Iterable[tuple[Field, Field]]:
    return zip(one.fields, other.fields, strict=True)


def _stored_name_fault(topic: TopicInfo) -> Fault | None:
    for field in topic.fields:
        if field.stored_as is not None and (field.name in topic.key or field.name == HEADERS):
            return Fault("META-7", f"column {field.name!r} cannot have another name in files")
    stored = [field.stored_name for field in topic.fields]
    wrong = _twice_or_reserved(stored)
    if wrong is not None:
        return Fault("META-7", f"{wrong!r} cannot be the stored name of a column")
    wrong = _twice_or_reserved([*stored, *topic.retired])
    return None if wrong is None else Fault("META-8", f"{wrong!r} cannot be a retired name")


def _twice_or_reserved(names: Sequence[str]) -> str | None:
    counts = Counter(names)
    return next((name for name in names if name in RESERVED or counts[name] > 1), None)


def _tombstone_fault(topic: TopicInfo) -> Fault | None:
    """A drop must not turn records into tombstones, which a compaction would remove [META-8]."""
    if not topic.retired or not topic.key:
        return None
    values = [field for field in topic.fields if field.name in value_columns(topic)]
    if not values:
        return Fault("META-8", "no value column is left beside the key")
    if not compacts(topic.config) or not all(field.nullable for field in values):
        return None
    return Fault(
        "META-8",
        f"columns were dropped (in files: {', '.join(topic.retired)}), and all value columns are "
        "nullable: in a compacted topic, records without a value would be removed as tombstones",
    )


def _stored_field(field: Field) -> pa.Field:
    assert field.id is not None
    arrow, _ = _with_ids_inside(to_arrow(field.type), field.id)
    metadata = {_ID: str(field.id)}
    return pa.field(field.stored_name, arrow, nullable=field.nullable, metadata=metadata)


def _with_ids_inside(arrow: pa.DataType, last_id: int) -> tuple[pa.DataType, int]:
    """The type with the ids after `last_id` on its inner fields, and the last id given."""
    if not pa.types.is_nested(arrow):
        return arrow, last_id
    fields = []
    for field in _fields_of(arrow):
        own_id = last_id + 1
        below, last_id = _with_ids_inside(field.type, own_id)
        fields.append(field.with_type(below).with_metadata({_ID: str(own_id)}))
    if pa.types.is_map(arrow):
        return pa.map_(*fields), last_id
    return (pa.list_(fields[0]) if pa.types.is_list(arrow) else pa.struct(fields)), last_id


def _fields_of(arrow: pa.DataType) -> list[pa.Field]:
    """The fields directly inside of a type. Arrow has a struct between a map and its fields."""
    if pa.types.is_map(arrow):
        return [arrow.key_field, arrow.item_field]
    return [arrow.field(index) for index in range(arrow.num_fields)]
