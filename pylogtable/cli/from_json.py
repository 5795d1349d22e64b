"""Turns JSON objects into columns of records; `to_json` does the reverse.

Arrow alone would take true for 1, cut the fraction off a whole number and make a large number
infinite, all without an error. Here each of these is a ValueError.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from pylogtable.arguments import did_you_mean
from pylogtable.cli.to_json import BASE64, LOG_COLUMNS, NON_FINITE, Row
from pylogtable.times import as_datetime, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

# Fields that describe where the old record was. They are ignored for the new record.
_OLD_PLACE = ("topic", "offset", "tstype", "timestampType", "broker")
_ENVELOPE = ("key", "payload", "value", "headers")


def kafka_columns(rows: Sequence[Row], schema: pa.Schema) -> dict[str, pa.Array]:
    """Columns of Kafka's shape from kcat's envelopes. `value` is another name for `payload`; a key
    or value that is neither text nor null becomes JSON text."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {
        "key": pa.array([_bytes_of(row, "key") for row in rows], pa.binary()),
        "value": pa.array([_bytes_of(row, "payload", "value") for row in rows], pa.binary()),
    }
    known = {*_ENVELOPE, *(name + BASE64 for name in _ENVELOPE), *_OLD_PLACE}
    known |= {"ts", "timestamp", "partition"}
    for row in rows:
        if unknown := row.keys() - known:
            raise ValueError(f"unknown field {min(unknown)!r}; a record has key, value, headers")
    headers = [_headers_of(row) for row in rows]
    if any(headers):
        columns["headers"] = pa.array(headers, schema.field("headers").type)
    stamps = [row.get("ts", row.get("timestamp")) for row in rows]
    return columns | _place(rows, stamps)


def table_columns(
    rows: Sequence[Row], schema: pa.Schema, new_names: Mapping[str, str]
) -> dict[str, pa.Array]:
    """All columns of a topic from objects; missing fields are null. `new_names` has the names of
    renamed columns by their old names."""
    rows = [decoded(row, schema) for row in rows]
    fields = [field for field in schema if field.name not in LOG_COLUMNS]
    known = {*LOG_COLUMNS, *_OLD_PLACE, *(field.name for field in fields)}
    for row in rows:
        if unknown := row.keys() - known:
            name = min(unknown)
            hint = did_you_mean(name, [field.name for field in fields])
            if name in new_names:
                hint = f"it was renamed to {new_names[name]!r}"
            raise ValueError(f"the topic has no column {name!r}; {hint}")
    columns = {
        field.name: column_of(field, [row.get(field.name) for row in rows]) for field in fields
    }
    return columns | _place(rows, [row.get("timestamp") for row in rows])


def column_of(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    """A column of a topic from JSON values."""
    import pyarrow as pa

    try:
        return pa.array(_converted(values, field.type), field.type)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(f"column {field.name!r} is {field.type}: {error}") from None


def json_value(field: pa.Field, text: str) -> Any:
    """The JSON value that this text means in a column: the text itself, or a number or boolean if
    the column has these."""
    from pyarrow import types

    if types.is_nested(field.type):
        raise ValueError(f"column {field.name!r} is {field.type}, which has no values of one word")
    try:
        return _from_text(text, field.type)
    except msgspec.DecodeError:
        raise ValueError(f"column {field.name!r} is {field.type}, not {text!r}") from None


def _from_text(text: str, kind: pa.DataType) -> Any:
    """The JSON value that a text stands for: itself, or JSON if the type is no text."""
    from pyarrow import types

    is_json = types.is_nested(kind) or types.is_boolean(kind) or types.is_integer(kind)
    is_json |= types.is_floating(kind) and text not in NON_FINITE
    return msgspec.json.decode(text) if is_json else text


def _place(rows: Sequence[Row], stamps: Sequence[Any]) -> dict[str, pa.Array]:
    """The timestamp and the partition columns, if records have these fields."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    if any(stamp is not None for stamp in stamps):
        utc = pa.timestamp("us", tz="UTC")
        columns["timestamp"] = pa.array(_converted(stamps, utc), utc)
    if any(row.get("partition") is not None for row in rows):
        numbers = [row.get("partition") for row in rows]
        columns["partition"] = pa.array(_converted(numbers, pa.int64()), pa.int64())
    return columns


def _headers_of(row: Row) -> list[Row] | None:
    """Headers from kcat's flat list, or from an object."""
    is_base64 = "headers" + BASE64 in row
    headers = row["headers" + BASE64] if is_base64 else row.get("headers")
    if headers is None:
        return None
    if isinstance(headers, dict):
        headers = [part for pair in headers.items() for part in pair]
    if not isinstance(headers, list) or len(headers) % 2:
        raise ValueError("headers are a list of names and values in turn, or an object")
    to_bytes = _from_base64 if is_base64 else _to_bytes
    return [
        {"key": str(name), "value": None if value is None else to_bytes(value)}
        for name, value in zip(headers[::2], headers[1::2], strict=True)
    ]


def _bytes_of(row: Row, *names: str) -> bytes | None:
    for name in names:
        if name + BASE64 in row:
            return _from_base64(row[name + BASE64])
        if name in row:
            return _to_bytes(row[name])
    return None


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _from_base64(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def decoded(row: Row, schema: pa.Schema) -> Row:
    """The row with `name_base64` entries decoded, under the name alone."""
    decoded = {}
    for name, value in row.items():
        column = name.removesuffix(BASE64)
        is_base64 = column != name and name not in schema.names and column in schema.names
        decoded[column if is_base64 else name] = _from_base64(value) if is_base64 else value
    return decoded


def _converted(values: Sequence[Any], wanted: pa.DataType, *, inside: bool = False) -> list[Any]:
    convert = _converter(wanted, inside=inside)
    return [None if value is None else convert(value) for value in values]


def _converter(wanted: pa.DataType, *, inside: bool) -> Callable[[Any], Any]:
    """The function from a JSON value to a value of this type. `inside` means inside of a list, map
    or struct, where bytes are in base64."""
    from pyarrow import types

    if types.is_integer(wanted):
        return _whole_number
    if types.is_floating(wanted):
        return _single_float if wanted.bit_width == 32 else _float
    if types.is_timestamp(wanted):
        return _time if wanted.tz else lambda value: _time(value).replace(tzinfo=None)
    if types.is_date(wanted):
        return date.fromisoformat
    if types.is_decimal(wanted):
        return lambda value: Decimal(str(value))
    if types.is_binary(wanted) and inside:
        return _from_base64
    if types.is_list(wanted):
        return lambda value: _converted(_checked(value, list), wanted.value_type, inside=True)
    if types.is_map(wanted):
        return lambda value: _map_items(_checked(value, dict), wanted)
    if types.is_struct(wanted):
        return lambda value: _struct(_checked(value, dict), wanted)
    return lambda value: value


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {'a list' if kind is list else 'an object'}")
    return value


def _map_items(value: Row, wanted: pa.MapType) -> list[tuple[Any, Any]]:
    keys = [_map_key(key, wanted.key_type) for key in value]
    items = _converted(list(value.values()), wanted.item_type, inside=True)
    return list(zip(_converted(keys, wanted.key_type, inside=True), items, strict=True))


def _map_key(key: str, wanted: pa.DataType) -> Any:
    """Parse a map key, which is text in JSON: keys of some types are JSON inside that text."""
    try:
        return _from_text(key, wanted)
    except msgspec.DecodeError:
        raise ValueError(f"{key!r} is not a key of type {wanted}") from None


def _struct(value: Row, wanted: pa.StructType) -> Row:
    converted = {}
    for name, item in value.items():
        if wanted.get_field_index(name) < 0:
            raise ValueError(f"it has no field {name!r}")
        (converted[name],) = _converted([item], wanted.field(name).type, inside=True)
    return converted


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _float(value: Any) -> Any:
    if isinstance(value, str) and value in NON_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number, nor one of {', '.join(NON_FINITE)}")
    return value


def _single_float(value: Any) -> Any:
    number = _float(value)
    # Raises OverflowError where Arrow would make the number infinite.
    struct.pack("<f", number)
    return number


def _time(value: Any) -> datetime:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a time: write ISO 8601, or milliseconds")
    return as_datetime(parse_time(str(value), timezone.utc))
