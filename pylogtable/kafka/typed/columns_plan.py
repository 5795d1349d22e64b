"""Which columns a typed topic has, how fields are named in it, and which columns new schemas add
or widen. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.format.model import Field, TopicInfo
from pylogtable.format.schema import (
    HEADERS,
    HEADERS_TYPE,
    RESERVED,
    WireType,
    from_arrow,
    to_arrow,
    widens,
)
from pylogtable.kafka.values.nesting_plan import why_no_column

KEY, VALUE = "key", "value"
#: The id of the schema that the value was written with. It is null if and only if Kafka's value is.
VALUE_SCHEMA_ID = "value_schema_id"
#: Kafka's bytes, on request.
RAW_VALUE, RAW_KEY = "raw_value", "raw_key"
#: Where a record was in Kafka, if it has another offset here.
KAFKA_PARTITION, KAFKA_OFFSET = "kafka_partition", "kafka_offset"

#: Columns that are no fields.
OWN = (*RESERVED, HEADERS, VALUE_SCHEMA_ID, RAW_VALUE, RAW_KEY, KAFKA_PARTITION, KAFKA_OFFSET)
#: Names that no field can have, in lower case [TYPE-5].
TAKEN = {name.lower() for name in OWN}

#: What the note of a commit calls the origins of `ValueNames`, and how many bytes it has for them:
#: a note holds 4 KiB [TXN-7].
ORIGINS, ORIGINS_BYTES = "origins", 3_000


def is_typed(schema: pa.Schema) -> bool:
    """True if these are the columns of a typed import."""
    at = schema.get_field_index(VALUE_SCHEMA_ID)
    return at >= 0 and bool(pa.types.is_integer(schema.field(at).type))


def key_names(fields: Sequence[str]) -> dict[str, str]:
    """The columns of the fields of a key."""
    return _named(fields, KEY, TAKEN, {}, {})


def value_names(fields: Sequence[str], info: TopicInfo) -> dict[str, str]:
    """The columns of the fields of a value, in a topic that has these columns already. A field
    whose name is taken gets the prefix `value_`."""
    return ValueNames(info, {}).of(fields)


class ValueNames:
    """Names the fields of one schema after the other, as if the columns of those before were there
    already.

    `origins` has the fields that the columns with a prefix are of. A field with that very name is
    another one, so it gets one more prefix. What is found out is added.
    """

    def __init__(self, info: TopicInfo, origins: dict[str, str]) -> None:
        self._taken = TAKEN | {name.lower() for name in info.key}
        known = [column.name for column in info.fields if column.name not in info.key]
        self._columns = {name.lower(): name for name in known}
        self._origins = origins

    def of(self, fields: Sequence[str]) -> dict[str, str]:
        """The columns of the fields of one schema."""
        names = _named(fields, VALUE, self._taken, self._columns, self._origins)
        for name, column in names.items():
            self._columns.setdefault(column.lower(), column)
            if column.startswith(f"{VALUE}_"):
                self._origins.setdefault(column, name)
        return names


def noted_origins(origins: Mapping[str, str]) -> dict[str, str]:
    """As many of these as a note has room for."""
    noted: dict[str, str] = {}
    size = 0
    for column, name in origins.items():
        size += len(json.dumps([column, name]))
        if size > ORIGINS_BYTES:
            break
        noted[column] = name
    return noted


def _named(
    fields: Sequence[str],
    part: str,
    taken: set[str],
    known: Mapping[str, str],
    origins: Mapping[str, str],
) -> dict[str, str]:
    """Fields that can have their own name come first: another one must not take it."""
    columns = dict(known)
    names: dict[str, str] = {}

    def is_free(column: str, name: str) -> bool:
        """No two columns may differ only in case [TYPE-5]."""
        folded = column.lower()
        is_new = bool(column) and folded not in taken and columns.get(folded, column) == column
        return is_new and column not in names.values() and origins.get(column, name) == name

    for name in fields:
        if is_free(name, name):
            names[name] = columns[name.lower()] = name
    for name in fields:
        if name not in names:
            column = f"{part}_{name}"
            while not is_free(column, name):
                column = f"{part}_{column}"
            names[name] = columns[column.lower()] = column
    return {name: names[name] for name in fields}


def stored_type(kind: pa.DataType) -> WireType | None:
    """The type of a column for these values, with all inside of it nullable; None if a topic cannot
    have it."""
    if why_no_column(kind) is not None:
        return None
    try:
        wire = _nullable(from_arrow(kind))
        to_arrow(wire)
    except (InvalidRequestError, SchemaMismatchError):
        return None
    return wire


def _nullable(wire: WireType) -> WireType:
    """Later schemas may have nulls where the first one has none."""
    if isinstance(wire, str):
        return wire
    if wire["type"] == "array":
        return {
            "type": "array",
            "elementType": _nullable(wire["elementType"]),
            "containsNull": True,
        }
    if wire["type"] == "map":
        return {
            "type": "map",
            "keyType": _nullable(wire["keyType"]),
            "valueType": _nullable(wire["valueType"]),
            "valueContainsNull": True,
        }
    fields = [
        {"name": one["name"], "type": _nullable(one["type"]), "nullable": True}
        for one in wire["fields"]
    ]
    return {"type": "struct", "fields": fields}


class ColumnsRefusedError(Exception):
    """The topic refuses columns that values need, so these values are dead letters."""


@dataclass
class Evolution:
    """The columns that a topic lacks for some values, and those that are too narrow for them."""

    add: dict[str, WireType] = field(default_factory=dict)
    widen: dict[str, WireType] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.add or self.widen)

    def arguments(self) -> dict[str, Any]:
        """What `Topic.alter` is to be called with."""
        return {
            "add_columns": {name: to_arrow(wire) for name, wire in self.add.items()} or None,
            "widen_columns": {name: to_arrow(wire) for name, wire in self.widen.items()} or None,
        }


def plan_evolution(info: TopicInfo, schemas: Iterable[Mapping[str, pa.DataType]]) -> Evolution:
    """What these schemas of values, whose fields are given by their columns, need beyond what the
    topic has [META-4]. What can be neither added nor widened is left as it is."""
    plan = Evolution()
    has = {column.name: column.type for column in info.fields}
    for schema in schemas:
        for name, kind in schema.items():
            wire = stored_type(kind)
            if wire is None:
                continue
            if name not in has:
                plan.add[name] = has[name] = wire
            elif widens(has[name], wire) and name not in info.key:
                (plan.add if name in plan.add else plan.widen)[name] = has[name] = wire
    return plan


def evolved_info(info: TopicInfo, evolution: Evolution) -> TopicInfo:
    """The topic as it would be then."""
    kept = [
        msgspec.structs.replace(one, type=evolution.widen.get(one.name, one.type))
        for one in info.fields
    ]
    added = [Field(name=name, type=wire) for name, wire in evolution.add.items()]
    return msgspec.structs.replace(info, fields=(*kept, *added))


def new_columns(
    key: pa.DataType | None, value: pa.DataType | None, *, keep_raw: bool
) -> tuple[pa.Schema, list[str]]:
    """The columns of a new typed topic, and those of its key. `key` and `value` are the types of
    the first ones; that of a record is a struct. Without a `key`, keys are bytes; without a
    `value`, columns come later. Raises if a topic cannot have such a key."""
    columns: list[tuple[str, pa.DataType]] = []
    for name, kind in ({KEY: pa.binary()} if key is None else _columns(key, KEY, ())).items():
        wire = stored_type(kind)
        if wire is None or not isinstance(wire, str) or wire in ("float", "double"):
            raise InvalidRequestError(
                f"the key's field {name!r} is {kind}, and no key of a topic can have that type. "
                "Import keys as bytes: leave out --key-format (key_format=)"
            )
        columns.append((name, to_arrow(wire)))
    keys = [name for name, _ in columns]
    if value is not None:
        for name, kind in _columns(value, VALUE, keys).items():
            wire = stored_type(kind)
            if wire is not None:
                columns.append((name, to_arrow(wire)))
    columns.append((VALUE_SCHEMA_ID, pa.int32()))
    if keep_raw:
        columns.append((RAW_VALUE, pa.binary()))
        if key is not None:
            columns.append((RAW_KEY, pa.binary()))
    columns.append((HEADERS, to_arrow(HEADERS_TYPE)))
    return pa.schema(columns), keys


def _columns(kind: pa.DataType, part: str, keys: Sequence[str]) -> dict[str, pa.DataType]:
    """The columns of one part of a new topic, and their types."""
    if not pa.types.is_struct(kind):
        return {part: kind}
    names = [field.name for field in kind]
    if part == KEY:
        columns = key_names(names)
    else:
        columns = _named(names, VALUE, TAKEN | {name.lower() for name in keys}, {}, {})
    return {columns[field.name]: field.type for field in kind}


def check_same_options(
    name: str, info: TopicInfo, made_by: Mapping[str, Any] | None, asked: Mapping[str, Any]
) -> None:
    """Raise if a typed copy was made with other options than these. `made_by` are those of its last
    commit, if there was one."""
    columns: Sequence[str] = [column.name for column in info.fields]
    raw = RAW_VALUE in columns
    if raw != asked["keep_raw"]:
        has, give = ("has", "give it again") if raw else ("does not have", "leave it out")
        raise InvalidRequestError(
            f"topic {name!r} {has} Kafka's bytes (--keep-raw, keep_raw=True): {give}, or import "
            "under another --name"
        )
    for option in ("value_format", "key_format"):
        before = (made_by or asked).get(option)
        if before != asked[option]:
            flag = f"--{option.replace('_', '-')}"
            way = f"give {flag} {before}" if before else f"leave {flag} out"
            raise InvalidRequestError(
                f"topic {name!r} was imported with {option}={before!r}, and now it is "
                f"{asked[option]!r}: {way}, or import under another --name"
            )
