"""Turns records into JSON objects; `from_json` does the reverse.

A topic of Kafka's shape is written as kcat writes it; every other topic as objects of its columns.
Whatever `consume --output json` writes, `produce` reads back to the same record:

- bytes that are not UTF-8 are in base64, under the column's name and `_base64`; bytes inside of
  lists, maps and structs are always in base64
- NaN and infinity are the strings of `NON_FINITE`, as Spark's to_json writes them
- the key of a map is text: the key itself, or its JSON
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from pylogtable import InvalidRequestError
from pylogtable.cli.parse import time_from_microseconds

if TYPE_CHECKING:
    import pyarrow as pa

LOG_COLUMNS = ("partition", "offset", "timestamp")
BASE64 = "_base64"
NON_FINITE = ("NaN", "Infinity", "-Infinity")
Row = dict[str, Any]
_DAY = 86_400_000_000  # microseconds


def envelopes(batch: pa.RecordBatch, topic: str) -> list[Row]:
    """Records of Kafka's shape, as `kcat -J` writes them."""
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
            row |= _headers(pairs)
        rows.append(row | key | payload)
    return rows


def objects(batch: pa.RecordBatch, topic: str | None) -> list[Row]:
    """Records as objects of their columns; with a topic also partition, offset and timestamp."""
    import pyarrow as pa

    names = [name for name in batch.schema.names if topic is not None or name not in LOG_COLUMNS]
    rows: list[Row] = [{} if topic is None else {"topic": topic} for _ in range(batch.num_rows)]
    for name in names:
        column = batch.column(name)
        if column.type == pa.binary():
            for row, named in zip(rows, _named(name, column), strict=True):
                row |= named
        else:
            for row, value in zip(rows, _values(name, column), strict=True):
                row[name] = value
    return rows


def encode_lines(rows: Sequence[Row]) -> bytes:
    """One JSON object per line."""
    return msgspec.json.Encoder().encode_lines(rows)


def _values(name: str, column: pa.Array) -> list[Any]:
    from pyarrow import types

    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise InvalidRequestError(
            f"column {name!r} holds text that is not UTF-8, which cannot be written as JSON. Read "
            "the topic from Python, and cast the column to binary"
        ) from None
    except (OverflowError, ValueError):
        return _times_out_of_range(name, column)
    if types.is_floating(column.type):
        return [value if value is None else _number(value) for value in values]
    if types.is_nested(column.type):
        return [_shown(value, column.type) for value in values]
    return values


def _times_out_of_range(name: str, column: pa.Array) -> list[Any]:
    """A column of times or dates, some of them outside of Python's years 1 to 9999."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        times = [time_from_microseconds(us) for us in column.cast(pa.int64()).to_pylist()]
        if column.type.tz is not None:
            return list(times)
        return [when.replace(tzinfo=None) if isinstance(when, datetime) else when for when in times]
    if pa.types.is_date(column.type):
        days = column.cast(pa.int32()).to_pylist()
        times = [time_from_microseconds(None if day is None else day * _DAY) for day in days]
        return [when.date() if isinstance(when, datetime) else when for when in times]
    raise InvalidRequestError(
        f"column {name!r} holds a time outside of the years 1 to 9999, which cannot be written as "
        "JSON inside of a list, map or struct; read the topic from Python"
    )


def _named(name: str, column: pa.Array) -> list[Row]:
    """`{name: text}` for each value, or `{name_base64: …}` if its bytes are not UTF-8."""
    import pyarrow as pa

    try:
        return [{name: text} for text in column.cast(pa.string()).to_pylist()]
    except pa.ArrowInvalid:
        return [_text_or_base64(name, value) for value in column.to_pylist()]


def _text_or_base64(name: str, value: bytes | None) -> Row:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: _base64(value)}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _headers(pairs: Sequence[Mapping[str, Any]]) -> Row:
    """kcat's flat list of names and values; all values are in base64 if one is not UTF-8."""
    try:
        return {"headers": _flat(pairs, bytes.decode)}
    except UnicodeDecodeError:
        return {"headers" + BASE64: _flat(pairs, _base64)}


def _flat(pairs: Sequence[Mapping[str, Any]], text: Callable[[bytes], str]) -> list[str | None]:
    return [
        part
        for pair in pairs
        for part in (pair["key"] or "", None if pair["value"] is None else text(pair["value"]))
    ]


def _shown(value: Any, kind: pa.DataType) -> Any:
    """A value in JSON's form: NaN as text, maps as objects (Arrow has lists of pairs)."""
    from pyarrow import types

    if value is None:
        return None
    if types.is_floating(kind):
        return _number(value)
    if types.is_map(kind):
        return {
            _map_key(_shown(key, kind.key_type)): _shown(item, kind.item_type)
            for key, item in value
        }
    if types.is_struct(kind):
        return {name: _shown(item, kind.field(name).type) for name, item in value.items()}
    if types.is_list(kind):
        return [_shown(item, kind.value_type) for item in value]
    return value


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _map_key(key: Any) -> str:
    """A map key as text: what JSON writes as a string stays as it is, anything else becomes
    JSON."""
    if isinstance(key, str):
        return key
    encoded = msgspec.json.encode(key)
    return encoded[1:-1].decode() if encoded.startswith(b'"') else encoded.decode()
