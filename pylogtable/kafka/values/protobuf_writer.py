"""Columns become values in Protobuf: rows fill messages, which google.protobuf writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.kafka.values.batches import SchemaError
from pylogtable.kafka.values.protobuf import ProtobufFormat
from pylogtable.kafka.values.protobuf_columns import FREE, TIMESTAMP, WRAPPERS, is_map, is_repeated

#: Puts the value of a column into a message.
Fill = Callable[[Any, Any], None]


class ProtobufWriter:
    """Writes the first message of a file, with its index before it if payloads are framed. Raises
    SchemaError if that message has no columns."""

    def __init__(self, format: ProtobufFormat, *, is_framed: bool) -> None:
        if not pa.types.is_struct(format.type or pa.null()):
            raise SchemaError("its first message has no fields that can be columns")
        message = format.first_message()
        self._new = message.message_class
        self._fields = _fields(message.descriptor)
        self._head = b"\0" if is_framed else b""

    @property
    def fields(self) -> tuple[str, ...]:
        """Those of the message."""
        return tuple(self._fields)

    def encode(self, table: pa.Table) -> Sequence[bytes]:
        unknown = set(table.column_names) - self._fields.keys()
        if unknown:
            raise ValueError(f"the message has no field for {', '.join(sorted(unknown))}")
        bodies = []
        for row in table.to_pylist():
            message = self._new()
            _fill(self._fields, message, row)
            bodies.append(self._head + message.SerializeToString(deterministic=True))
        return bodies


def _fields(message: Any) -> dict[str, Fill]:
    return {field.name: _field(field) for field in message.fields}


def _fill(fields: Mapping[str, Fill], message: Any, row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        if value is None:
            continue
        try:
            fields[name](message, value)
        except Exception as error:
            raise ValueError(f"the field {name!r}: {error}") from error


def _field(field: Any) -> Fill:
    name = field.name
    if is_map(field):
        value = field.message_type.fields_by_name["value"]
        if value.message_type is None:
            plain = _plain(value)
            return lambda message, pairs: getattr(message, name).update(
                {key: plain(each) for key, each in pairs}
            )
        part = _message(value.message_type)

        def fill_map(message: Any, pairs: Any) -> None:
            for key, each in pairs:
                part(getattr(message, name)[key], each)

        return fill_map
    if field.message_type is None:
        plain = _plain(field)
        if is_repeated(field):
            return lambda message, values: getattr(message, name).extend(map(plain, values))
        return lambda message, value: setattr(message, name, plain(value))
    part = _message(field.message_type)
    if not is_repeated(field):
        return lambda message, value: part(getattr(message, name), value)

    def fill_list(message: Any, values: Any) -> None:
        for each in values:
            part(getattr(message, name).add(), each)

    return fill_list


def _plain(field: Any) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        numbers = {each.name: each.number for each in field.enum_type.values}
        return lambda text: numbers[text] if text in numbers else int(text)
    if field.cpp_type in (field.CPPTYPE_UINT64,):
        return int  # a decimal in the column
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return _single
    return lambda value: value


def _single(value: float) -> float:
    """Raises for what has more digits than a float, which Protobuf would cut."""
    if float(np.float32(value)) != value and not math.isnan(value):
        raise ValueError(f"{value!r} does not fit into a float")
    return value


def _message(kind: Any) -> Fill:
    """Fills a message inside of another one, which is then there, even if nothing is in it."""
    if kind.full_name == TIMESTAMP:
        return lambda message, at: message.FromDatetime(at)
    if kind.full_name in FREE:
        from google.protobuf.json_format import Parse

        return lambda message, text: Parse(text, message)
    if kind.full_name in WRAPPERS:
        plain = _plain(kind.fields_by_name["value"])

        def wrap(message: Any, value: Any) -> None:
            message.SetInParent()
            message.value = plain(value)

        return wrap
    fields = _fields(kind)

    def fill(message: Any, row: Any) -> None:
        if fields or row:
            message.SetInParent()
        if fields:
            _fill(fields, message, row)

    return fill
