"""A topic's columns as an Iceberg table has them: schema, name mapping, partition spec. Pure.

Iceberg finds columns in files by id. Ours carry the same ids [META-6]. Files from before ids were
written have none: for them the name mapping has the stored name of each column.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.field_ids import LOG_IDS, column_ids, ids_in_file, numbered
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import LOG_FIELDS, PARTITION, WireType, from_arrow
from pylogtable.publish.columns import check_names

Json = dict[str, Any]

PARTITION_FIELD_ID = 1000
#: Ids of dropped columns in files without ids. No topic has so many columns.
FIRST_RETIRED_ID = 1_000_000_000
PARTITION_SPEC: Json = {
    "spec-id": 0,
    "fields": [
        {
            "source-id": LOG_IDS[PARTITION],
            "field-id": PARTITION_FIELD_ID,
            "transform": "identity",
            "name": PARTITION,
        }
    ],
}

_TYPES = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


class _Column(NamedTuple):
    id: int
    name: str
    stored: str
    type: WireType
    nullable: bool


def schema_of(topic: TopicInfo, schema_id: int) -> Json:
    """The schema. Raises if Iceberg's engines could not read such columns."""
    check_names(topic, "an Iceberg table")
    _check_full_names(topic)
    fields = [
        {
            "id": column.id,
            "name": column.name,
            "required": not column.nullable,
            "type": _type(column.type, column.id)[0],
        }
        for column in _columns(topic)
    ]
    return {"type": "struct", "schema-id": schema_id, "fields": fields}


def last_column_id(topic: TopicInfo) -> int:
    """The highest id of a column so far."""
    return numbered(topic).last_field_id or 0


def name_mapping(topic: TopicInfo, known: str | None, files: Iterable[pa.Schema]) -> str:
    """The ids of columns by their names in files, as the table's property has it. `known` is the
    mapping so far, `files` are the columns of new files.

    Readers want an id for every column of a file without ids, also for columns that were dropped.
    Such a column keeps the id that it is known by, or gets one that no column of a topic has.
    """
    columns = [column for column in _columns(topic) if column.name != PARTITION]
    mapped = [_mapped(column.stored, column.type, column.id)[0] for column in columns]
    dropped = {one["names"][0]: one for one in _parsed(known) if one["names"][0] in topic.retired}
    last_id = max((_last_id(one) for one in dropped.values()), default=0)
    last_id = max(last_id, FIRST_RETIRED_ID - 1)
    for column in (column for schema in files for column in schema):
        if column.name in topic.retired and column.name not in dropped and not ids_in_file(column):
            made, last_id = _mapped(column.name, from_arrow(column.type), last_id + 1)
            dropped[column.name] = made
    return json.dumps([*mapped, *dropped.values()], separators=(",", ":"))


def _parsed(mapping: str | None) -> list[Json]:
    try:
        found = json.loads(mapping or "[]")
        return [one for one in found if _last_id(one) and one["names"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []  # not ours any more; then it is made anew


def _last_id(mapped: Json) -> int:
    return max([int(mapped["field-id"]), *(_last_id(one) for one in mapped.get("fields", ()))])


def types_by_stored_name(topic: TopicInfo) -> dict[str, tuple[int, Any]]:
    """The id and the type in Iceberg of each column that files have, by its stored name."""
    return {
        column.stored: (column.id, _type(column.type, column.id)[0])
        for column in _columns(topic)
        if column.name != PARTITION
    }


def check_promotion(old: Json, new: Json) -> None:
    """Raise if Iceberg cannot read files of the schema `old` with the schema `new`."""
    types = {field["id"]: field["type"] for field in old["fields"]}
    for field in new["fields"]:
        before = types.get(field["id"], field["type"])
        if not _promotes(before, field["type"]):
            _refuse(field["name"], before, field["type"], "the published table has it as")


def check_file(topic: TopicInfo, path: str, schema: pa.Schema) -> None:
    """Raise if Iceberg cannot read a file with these columns."""
    wanted = types_by_stored_name(topic)
    names = {field.stored_name: field.name for field in topic.fields}
    for column in schema:
        if column.name not in wanted or pa.types.is_nested(column.type):
            continue
        field_id, kind = wanted[column.name]
        stored = _type(from_arrow(column.type), field_id)[0]
        if not _promotes(stored, kind):
            _refuse(names.get(column.name, column.name), stored, kind, f"the file {path} has it as")


def _check_full_names(topic: TopicInfo) -> None:
    """Raise if a column is called as a field inside of another: Iceberg writes both as `a.b`."""
    names = Counter(name for column in _columns(topic) for name in _full_names(column))
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidRequestError(
            "the topic cannot be published as an Iceberg table: a column and a field inside of "
            f"another both have the full name {twice[0]!r}. Rename the column: "
            "topic.alter(rename_columns={...: ...})"
        )


def _full_names(column: _Column) -> Iterator[str]:
    def below(prefix: str, wire: WireType) -> Iterator[str]:
        yield prefix
        for name, inner in _inside(wire):
            yield from below(f"{prefix}.{name}", inner)

    return below(column.name, column.type)


def _refuse(column: str, before: str, after: str, who: str) -> None:
    raise InvalidRequestError(
        f"the topic cannot be published as an Iceberg table: column {column!r} is {after}, but "
        f"{who} {before}, and Iceberg has no promotion from {before} to {after}. To publish it, "
        "unpublish the Iceberg table, rewrite the old files by merge or compaction, and publish "
        "again; or publish the topic as a Delta table. If a backup of the topic was restored, "
        "unpublish and publish are enough"
    )


def _promotes(old: Any, new: Any) -> bool:
    if old == new or (old, new) in {("int", "long"), ("float", "double")}:
        return True
    if not isinstance(old, str) or not isinstance(new, str):
        return isinstance(old, dict) and isinstance(new, dict)  # types inside never change
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if not before or not after:
        return False
    return before[2] == after[2] and int(before[1]) <= int(after[1])


def _columns(topic: TopicInfo) -> Iterator[_Column]:
    ids: Mapping[str, int] = column_ids(topic)
    for own in LOG_FIELDS:
        # Files do not have the partition; pyiceberg wants a required column in every file.
        nullable = own.nullable or own.name == PARTITION
        yield _Column(ids[own.name], own.name, own.name, from_arrow(own.type), nullable)
    for field in topic.fields:
        name = field.name
        yield _Column(ids[name], name, field.stored_name, field.type, field.nullable)


def _type(wire: WireType, last_id: int) -> tuple[Any, int]:
    """The type in Iceberg's JSON, and the last field id in it. Fields inside count on from their
    column's id, as they do in files [META-6]."""
    if isinstance(wire, str):
        decimal = _DECIMAL.fullmatch(wire)
        return (f"decimal({decimal[1]}, {decimal[2]})" if decimal else _TYPES[wire]), last_id
    if wire["type"] == "array":
        element_id = last_id + 1
        element, last_id = _type(wire["elementType"], element_id)
        made = {
            "type": "list",
            "element-id": element_id,
            "element": element,
            "element-required": not wire.get("containsNull", True),
        }
        return made, last_id
    if wire["type"] == "map":
        key_id = last_id + 1
        key, last_id = _type(wire["keyType"], key_id)
        value_id = last_id + 1
        value, last_id = _type(wire["valueType"], value_id)
        made = {
            "type": "map",
            "key-id": key_id,
            "key": key,
            "value-id": value_id,
            "value": value,
            "value-required": not wire.get("valueContainsNull", True),
        }
        return made, last_id
    fields = []
    for field in wire["fields"]:
        own_id = last_id + 1
        inner, last_id = _type(field["type"], own_id)
        required = not field.get("nullable", True)
        fields.append({"id": own_id, "name": field["name"], "required": required, "type": inner})
    return {"type": "struct", "fields": fields}, last_id


def _mapped(name: str, wire: WireType, own_id: int) -> tuple[Json, int]:
    """The mapping of a field, and the last field id in it."""
    last_id = own_id
    inside = []
    for below, inner in _inside(wire):
        mapped, last_id = _mapped(below, inner, last_id + 1)
        inside.append(mapped)
    made: Json = {"field-id": own_id, "names": [name]}
    return (made | {"fields": inside} if inside else made), last_id


def _inside(wire: WireType) -> list[tuple[str, WireType]]:
    if isinstance(wire, str):
        return []
    if wire["type"] == "array":
        return [("element", wire["elementType"])]
    if wire["type"] == "map":
        return [("key", wire["keyType"]), ("value", wire["valueType"])]
    return [(field["name"], field["type"]) for field in wire["fields"]]
