"""The columns of a topic: stored types, Arrow types, and which type fits into which [TYPE-1..4]."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.arguments import names_in
from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.format.model import Field, TopicInfo

PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
HEADERS = "headers"
ON_REQUEST = ("topic", "timestampType")
RESERVED = (PARTITION, OFFSET, TIMESTAMP, *ON_REQUEST)

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
LOG_FIELDS = (
    pa.field(PARTITION, pa.int32(), nullable=False),
    pa.field(OFFSET, pa.int64(), nullable=False),
    pa.field(TIMESTAMP, TIMESTAMP_TYPE, nullable=False),
)

WireType = str | dict[str, Any]

#: Integer types: their names in Spark SQL, and in the format.
SQL_INTEGERS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_SQL_NAMES = {name: sql for sql, name in SQL_INTEGERS.items()}

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP_TYPE,
    "timestamp_ntz": pa.timestamp("us"),
}
PLAIN_NAMES = tuple(_PLAIN)
_NAMES = {arrow: name for name, arrow in _PLAIN.items()}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)", re.ASCII)

_INTEGERS = ("byte", "short", "integer", "long")
_KEY_TYPES = (*_INTEGERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")

HEADERS_TYPE: WireType = {
    "type": "array",
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True},
            {"name": "value", "type": "binary", "nullable": True},
        ],
    },
    "containsNull": True,
}

KAFKA_FIELDS = (
    Field(name="key", type="binary"),
    Field(name="value", type="binary"),
    Field(name=HEADERS, type=HEADERS_TYPE),
)


def to_arrow(wire: WireType) -> pa.DataType:
    """The Arrow type of a stored type, in memory and in files. Raises if there is no such type
    [TYPE-1], [TYPE-2].

        >>> to_arrow("decimal(10,2)")
        Decimal128Type(decimal128(10, 2))
    """
    try:
        arrow = _plain_type(wire) if isinstance(wire, str) else _nested_type(wire)
    except (KeyError, TypeError, AttributeError, UnicodeError):
        arrow = None
    if arrow is None:
        raise InvalidRequestError(
            f"unknown column type {wire!r}; the types are {', '.join(_PLAIN)}, decimal(p,s) with p "
            "of 1 to 38 and s of 0 to p, and array, struct (with fields) and map, as JSON"
        )
    return arrow


def _plain_type(name: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(name)
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _PLAIN.get(name)


def _nested_type(wire: dict[str, Any]) -> pa.DataType | None:
    if wire["type"] == "array":
        nullable = _flag(wire, "containsNull")
        return pa.list_(pa.field("element", to_arrow(wire["elementType"]), nullable=nullable))
    if wire["type"] == "map":
        nullable = _flag(wire, "valueContainsNull")
        value = pa.field("value", to_arrow(wire["valueType"]), nullable=nullable)
        return pa.map_(to_arrow(wire["keyType"]), value)
    names = [field["name"] for field in wire["fields"]]
    if wire["type"] != "struct" or not names or len(set(names)) != len(names):
        return None
    return pa.struct(
        pa.field(field["name"], to_arrow(field["type"]), nullable=_flag(field, "nullable"))
        for field in wire["fields"]
    )


def _flag(wire: dict[str, Any], name: str) -> bool:
    """A member that is true unless it says otherwise. It may be absent, and not null [JSON-2]."""
    value = wire.get(name, True)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}")
    return value


def struct_names(wire: WireType) -> Iterator[list[str]]:
    """The names of the fields of each struct inside of a type."""
    if isinstance(wire, str):
        return
    fields = wire.get("fields", ())
    if fields:
        yield [field["name"] for field in fields]
    inside = (wire.get(part) for part in ("elementType", "keyType", "valueType"))
    for part in (*inside, *(field["type"] for field in fields)):
        if part is not None:
            yield from struct_names(part)


def from_arrow(arrow: pa.DataType) -> WireType:
    """The stored type of an Arrow type. Raises if a topic cannot have such a column."""
    types = pa.types
    if types.is_dictionary(arrow):
        return from_arrow(arrow.value_type)
    if types.is_large_string(arrow) or arrow == pa.string_view():
        return "string"
    if (
        types.is_large_binary(arrow)
        or types.is_fixed_size_binary(arrow)
        or arrow == pa.binary_view()
    ):
        return "binary"
    if types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if types.is_decimal128(arrow) and arrow.scale >= 0:
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_map(arrow):
        return {
            "type": "map",
            "keyType": from_arrow(arrow.key_type),
            "valueType": from_arrow(arrow.item_type),
            "valueContainsNull": arrow.item_field.nullable,
        }
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return {
            "type": "array",
            "elementType": from_arrow(arrow.value_type),
            "containsNull": arrow.value_field.nullable,
        }
    if types.is_struct(arrow):
        fields = (arrow.field(i) for i in range(arrow.num_fields))
        return {
            "type": "struct",
            "fields": [
                {"name": f.name, "type": from_arrow(f.type), "nullable": f.nullable} for f in fields
            ],
        }
    if arrow in _NAMES:
        return _NAMES[arrow]
    raise SchemaMismatchError(f"a topic cannot have a column of Arrow type {arrow}")


def check_fields(fields: Sequence[Field], key: Sequence[str]) -> None:
    """Raise if a topic cannot have these columns with this key [TYPE-3]."""
    names = [field.name for field in fields]
    by_name = {field.name: field for field in fields}
    if not fields:
        raise InvalidRequestError("a topic needs at least one column")
    if len(by_name) != len(names):
        doubled = sorted({name for name in names if names.count(name) > 1})
        raise InvalidRequestError(f"column names occur twice: {', '.join(doubled)}")
    clashes = [name for name in names if name in RESERVED]
    if clashes:
        raise InvalidRequestError(
            f"column name(s) {', '.join(clashes)} belong to the log itself; rename them. "
            f"Reserved: {', '.join(RESERVED)}"
        )
    for field in fields:
        to_arrow(field.type)
    headers = by_name.get(HEADERS)
    if headers and to_arrow(headers.type) != to_arrow(HEADERS_TYPE):  # [REC-2]
        raise InvalidRequestError(
            "column 'headers' is for record headers: it must be a list of "
            "struct<key: string, value: binary>, or have another name"
        )
    for name in key:
        if name not in by_name:
            raise InvalidRequestError(f"key column {name!r} is not among {', '.join(names)}")
        wire = by_name[name].type
        if wire not in _KEY_TYPES and not (isinstance(wire, str) and _DECIMAL.fullmatch(wire)):
            raise InvalidRequestError(
                f"key column {name!r} is {type_text(wire)}; a key is made of "
                f"{', '.join(map(type_text, _KEY_TYPES))} or decimal columns"
            )
    if len(set(key)) != len(key):
        raise InvalidRequestError(f"key columns occur twice: {', '.join(key)}")


def is_kafka_shaped(schema: pa.Schema, *, more_columns: bool = False) -> bool:
    """True if records have the columns of a Kafka record: binary `key` and `value`, and optionally
    `headers`. The log's own columns and the order of columns are ignored.

    With other columns the result is False, unless `more_columns` allows them: a Kafka-shaped topic
    may get columns later. It does not matter which columns are the topic's key.

        >>> is_kafka_shaped(store.create_topic("clicks").schema)
        True
        >>> is_kafka_shaped(pa.schema({"key": pa.int64(), "value": pa.float64()}))
        False
    """
    types = {column.name: column.type for column in schema}
    if types.get("key") != pa.binary() or types.get("value") != pa.binary():
        return False
    return more_columns or types.keys() <= {"key", "value", HEADERS, PARTITION, OFFSET, TIMESTAMP}


def value_columns(topic: TopicInfo) -> list[str]:
    """The columns that are all null in a tombstone: all but key and headers [REC-3]."""
    return [f.name for f in topic.fields if f.name not in topic.key and f.name != HEADERS]


def is_keys_only(topic: TopicInfo) -> bool:
    """True if the topic has a key but no value columns: it cannot have tombstones [REC-3]."""
    return bool(topic.key) and not value_columns(topic)


def file_schema(fields: Sequence[Field]) -> pa.Schema:
    """The columns of a segment file [SEG-3]: offset, timestamp, then the topic's."""
    return pa.schema([*LOG_FIELDS[1:], *(_arrow_field(field) for field in fields)])


def table_schema(fields: Sequence[Field]) -> pa.Schema:
    """The columns of a read: the log's own, then the topic's."""
    return pa.schema([*LOG_FIELDS, *(_arrow_field(field) for field in fields)])


def column_schema(fields: Sequence[Field], columns: Sequence[str] | None) -> pa.Schema:
    """The schema of a read of these columns, in this order. None means all columns."""
    everything = table_schema(fields)
    if columns is None:
        return everything
    columns = names_in("columns", columns)
    extra = {
        "topic": pa.field("topic", pa.string(), nullable=False),
        "timestampType": pa.field("timestampType", pa.int32(), nullable=False),
    }
    chosen = []
    for name in columns:
        index = everything.get_field_index(name)
        if index < 0 and name not in extra:
            renamed = renamed_to(fields, name)
            known = f"the topic has {', '.join([*everything.names, *extra])}"
            hint = known if renamed is None else f"it was renamed to {renamed!r}"
            raise InvalidRequestError(f"there is no column {name!r}; {hint}")
        chosen.append(everything.field(index) if index >= 0 else extra[name])
    if not chosen:
        raise InvalidRequestError("`columns` is empty; name at least one, or give None for all")
    if len(set(columns)) != len(chosen):
        raise InvalidRequestError(f"a column is named twice in `columns`: {', '.join(columns)}")
    return pa.schema(chosen)


def renamed_to(fields: Sequence[Field], unknown: str) -> str | None:
    """The name that the column has now which was once called `unknown`; None if there is none."""
    return next((field.name for field in fields if field.stored_as == unknown), None)


def column_hint(fields: Sequence[Field], unknown: str, names: Sequence[str]) -> str:
    """What a caller can do about a column that is not among these names."""
    renamed = renamed_to(fields, unknown)
    if renamed is not None:
        return f"it was renamed to {renamed!r}"
    near = difflib.get_close_matches(unknown, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names)}"


def fits(given: WireType, wanted: WireType) -> bool:
    """True if every value of type `given` can be cast to `wanted` without loss [TYPE-4]."""
    if _without_nullability(given) == _without_nullability(wanted):
        return True
    return (given, wanted) == ("string", "binary") or widens(given, wanted)


def widens(old: WireType, new: WireType) -> bool:
    """True if a column of type `old` may be widened to `new` [META-4]."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if (old, new) == ("float", "double"):
        return True
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before and after and old != new:
        whole = int(before[1]) - int(before[2])
        return int(after[2]) >= int(before[2]) and int(after[1]) - int(after[2]) >= whole
    return False


def _arrow_field(field: Field) -> pa.Field:
    return pa.field(field.name, to_arrow(field.type), nullable=field.nullable)


def _without_nullability(wire: WireType) -> WireType:
    if isinstance(wire, str):
        return wire
    if wire["type"] == "array":
        return {"type": "array", "elementType": _without_nullability(wire["elementType"])}
    if wire["type"] == "struct":
        fields = [[f["name"], _without_nullability(f["type"])] for f in wire["fields"]]
        return {"type": "struct", "fields": fields}
    return {
        "type": "map",
        "keyType": _without_nullability(wire["keyType"]),
        "valueType": _without_nullability(wire["valueType"]),
    }


def nulls(count: int, arrow: pa.DataType) -> pa.Array:
    """This many nulls. Unlike those of `pa.nulls`, a null struct has no nulls inside: its fields
    may be required."""
    return pa.array([None], arrow).take(pa.array(np.zeros(count, dtype=np.int64)))


def type_text(wire: WireType) -> str:
    """A stored type as Spark SQL writes it.

    >>> type_text({"type": "array", "elementType": "long"})
    'array<bigint>'
    """
    if isinstance(wire, str):
        return _SQL_NAMES.get(wire, wire)
    if wire["type"] == "array":
        return f"array<{type_text(wire['elementType'])}>"
    if wire["type"] == "map":
        return f"map<{type_text(wire['keyType'])},{type_text(wire['valueType'])}>"
    fields = (f"{field['name']}:{type_text(field['type'])}" for field in wire["fields"])
    return f"struct<{','.join(fields)}>"
