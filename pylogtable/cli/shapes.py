"""Records as JSON: kcat's envelope for topics of Kafka's shape, plain objects for all others.

A binary value is shown as UTF-8; one that is not UTF-8 is shown in base64, under its name and
`_base64`. What is shown can be read back.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from pylogtable.cli.values import to_time

if TYPE_CHECKING:
    import pyarrow as pa

LOG_COLUMNS = ("partition", "offset", "timestamp")
BASE64 = "_base64"
# What an envelope says of a record's old place, and a new record does not take over.
_OLD_PLACE = ("topic", "offset", "tstype", "timestampType", "broker")

Row = dict[str, Any]


def envelopes(batch: pa.RecordBatch, topic: str) -> list[Row]:
    """Records of Kafka's shape, in the manner of `kcat -J`."""
    import pyarrow as pa

    columns = {name: batch.column(name) for name in batch.schema.names}
    stamps = columns["timestamp"].cast(pa.int64()).to_pylist()
    headers = columns["headers"].to_pylist() if "headers" in columns else [None] * len(batch)
    rows: list[Row] = []
    for partition, offset, stamp, pairs, key, payload in zip(
        columns["partition"].to_pylist(),
        columns["offset"].to_pylist(),
        stamps,
        headers,
        _named("key", columns["key"]),
        _named("payload", columns["value"]),
        strict=True,
    ):
        row: Row = {"topic": topic, "partition": partition, "offset": offset}
        row |= {"tstype": "create", "ts": stamp // 1000}
        if pairs:
            row["headers"] = [text for pair in pairs for text in _header(pair)]
        rows.append(row | key | payload)
    return rows


def objects(batch: pa.RecordBatch, topic: str | None) -> list[Row]:
    """Records as objects of their columns; with a topic also where they stand in it."""
    import pyarrow as pa

    names = [name for name in batch.schema.names if topic or name not in LOG_COLUMNS]
    rows: list[Row] = [{"topic": topic} if topic else {} for _ in range(batch.num_rows)]
    for name in names:
        column = batch.column(name)
        if column.type == pa.binary():
            for row, named in zip(rows, _named(name, column), strict=True):
                row |= named
        else:
            for row, value in zip(rows, column.to_pylist(), strict=True):
                row[name] = _shown(value, column.type)
    return rows


def kafka_columns(rows: Sequence[Row], schema: pa.Schema) -> dict[str, pa.Array]:
    """Columns of Kafka's shape from envelopes; a value may be called `value`, and what is neither
    text nor null becomes JSON text."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {
        "key": pa.array([_bytes_of(row, "key") for row in rows], pa.binary()),
        "value": pa.array([_bytes_of(row, "payload", "value") for row in rows], pa.binary()),
    }
    known = {"key", "payload", "value", "headers", "ts", "timestamp", "partition", *_OLD_PLACE}
    known |= {name + BASE64 for name in ("key", "payload", "value")}
    for row in rows:
        unknown = row.keys() - known
        if unknown:
            raise ValueError(f"a record has no {sorted(unknown)[0]!r}; it has key, value, headers")
    if any(row.get("headers") for row in rows):
        pairs = [_pairs(row.get("headers")) for row in rows]
        columns["headers"] = pa.array(pairs, schema.field("headers").type)
    stamps = [row.get("ts", row.get("timestamp")) for row in rows]
    return columns | _place(rows, stamps)


def table_columns(rows: Sequence[Row], schema: pa.Schema) -> dict[str, pa.Array]:
    """Columns of a topic from objects; a column that no object has is left out, and one that the
    topic has not is handed on, to be refused by it."""
    import pyarrow as pa

    rows = [_decoded(row, schema) for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, pa.Array] = {}
    for name in names:
        if name in (*LOG_COLUMNS, *_OLD_PLACE):
            continue
        values = [row.get(name) for row in rows]
        if name not in schema.names:
            columns[name] = pa.nulls(len(rows))
            continue
        wanted = schema.field(name).type
        try:
            columns[name] = pa.array(_parsed(values, wanted), wanted)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise ValueError(f"column {name!r} is {wanted}: {error}") from None
    return columns | _place(rows, [row.get("timestamp") for row in rows])


def _place(rows: Sequence[Row], stamps: Sequence[Any]) -> dict[str, pa.Array]:
    """Where and when a record wants to be, if it says so."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    if any(stamp is not None for stamp in stamps):
        utc = pa.timestamp("us", tz="UTC")
        columns["timestamp"] = pa.array(_parsed(stamps, utc), utc)
    if any(row.get("partition") is not None for row in rows):
        columns["partition"] = pa.array(
            _parsed([row.get("partition") for row in rows], pa.int64()), pa.int64()
        )
    return columns


def _named(name: str, column: pa.Array) -> list[Row]:
    """`{name: text}` of each value, or `{name_base64: …}` where the bytes are no UTF-8."""
    import pyarrow as pa

    try:
        return [{name: text} for text in column.cast(pa.string()).to_pylist()]
    except pa.ArrowInvalid:
        return [_text_or_base64(name, value) for value in column.to_pylist()]


def _text_or_base64(name: str, value: bytes | None) -> Row:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: base64.b64encode(value or b"").decode()}


def _shown(value: Any, kind: pa.DataType) -> Any:
    """The value with maps as objects, where Arrow has lists of pairs."""
    from pyarrow import types

    if value is None or not types.is_nested(kind):
        return value
    if types.is_map(kind):
        return {key: _shown(item, kind.item_type) for key, item in value}
    if types.is_struct(kind):
        return {name: _shown(item, kind.field(name).type) for name, item in value.items()}
    return [_shown(item, kind.value_type) for item in value]


def _header(pair: Mapping[str, Any] | None) -> tuple[str, Any]:
    named = _text_or_base64("", (pair or {}).get("value"))
    return (pair or {}).get("key") or "", next(iter(named.values()))


def _pairs(headers: Any) -> list[Row] | None:
    """From kcat's flat list, or from an object."""
    if not headers:
        return None
    if isinstance(headers, dict):
        flat = [part for pair in headers.items() for part in pair]
    else:
        flat = list(headers)
    if len(flat) % 2:
        raise ValueError("headers are a list of names and values in turn, or an object")
    return [
        {"key": str(name), "value": _to_bytes(value)}
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    ]


def _bytes_of(row: Row, *names: str) -> bytes | None:
    for name in names:
        if name + BASE64 in row:
            return base64.b64decode(row[name + BASE64], validate=True)
        if name in row:
            return _to_bytes(row[name])
    return None


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _decoded(row: Row, schema: pa.Schema) -> Row:
    """The row with what is in base64 as bytes, under its own name."""
    return {
        (name.removesuffix(BASE64) if _is_coded(name, schema) else name): (
            base64.b64decode(value, validate=True) if _is_coded(name, schema) else value
        )
        for name, value in row.items()
    }


def _is_coded(name: str, schema: pa.Schema) -> bool:
    plain = name.removesuffix(BASE64)
    return plain != name and name not in schema.names and plain in schema.names


def _parsed(values: Sequence[Any], wanted: pa.DataType) -> list[Any]:
    convert = _converter(wanted)
    return [None if value is None else convert(value) for value in values]


def _converter(wanted: pa.DataType) -> Callable[[Any], Any]:
    """What makes a value of this type of what JSON has for it: text for times, dates and decimals,
    and milliseconds for times, too. Arrow would cut a fraction off a whole number in silence."""
    from pyarrow import types

    if types.is_integer(wanted):
        return _whole
    if types.is_timestamp(wanted):
        return _moment if wanted.tz else lambda value: _moment(value).replace(tzinfo=None)
    if types.is_date(wanted):
        return date.fromisoformat
    if types.is_decimal(wanted):
        return lambda value: Decimal(str(value))
    if types.is_list(wanted):
        return lambda value: _parsed(_a(list, value), wanted.value_type)
    if types.is_map(wanted):
        return lambda value: list(
            zip(_a(dict, value), _parsed(list(value.values()), wanted.item_type), strict=True)
        )
    if types.is_struct(wanted):
        return lambda value: _parsed_struct(value, wanted)
    return lambda value: value


def _a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {'a list' if kind is list else 'an object'}")
    return value


def _parsed_struct(value: Row, wanted: pa.StructType) -> Row:
    parsed = {}
    for name, inner in _a(dict, value).items():
        if wanted.get_field_index(name) < 0:
            raise ValueError(f"it has no field {name!r}")
        (parsed[name],) = _parsed([inner], wanted.field(name).type)
    return parsed


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _moment(value: Any) -> datetime:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a time: write ISO-8601, or milliseconds")
    return to_time(str(value))
