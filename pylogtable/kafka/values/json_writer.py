"""Columns become values in JSON, written by msgspec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from pylogtable.kafka.values.json_types import (
    JsonText,
    JsonType,
    required_fields,
    to_text,
    type_of,
)
from pylogtable.kafka.values.registry import RegisteredSchema

Turn = Callable[[Any], Any]


class JsonWriter:
    """Writes objects with the fields that are not null. Bytes are in base64, times in RFC 3339.
    What has no type in the schema is JSON text in a column, and is written as it stands. Without a
    schema, `is_record` says whether a row is an object, or the value of its one column."""

    def __init__(self, schema: RegisteredSchema | None, *, is_record: bool = True) -> None:
        self._is_record = is_record
        self._type = None if schema is None else type_of(schema)
        self._write = msgspec.json.Encoder(decimal_format="number").encode
        self._check: Turn = lambda body: None
        #: The fields that an object must have, and whether they may be null.
        self._required = {} if schema is None else required_fields(schema)
        if self._type is not None:
            self._check = msgspec.json.Decoder(self._type.read, dec_hook=to_text).decode

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Those of the schema: none if it is no object."""
        if self._type is not None:
            return tuple(self._type.fields)
        return None if self._is_record else ()

    def encode(self, table: pa.Table) -> Sequence[bytes]:
        objects = self._objects(table)
        for name, may_be_null in self._required.items():
            _require(objects, name, may_be_null)
        bodies = [self._write(value) for value in objects]
        for body in bodies:
            self._check(body)  # that the types are those of the schema
        return bodies

    def _objects(self, table: pa.Table) -> list[Any]:
        known = self._type
        if known is not None and not known.fields:
            if table.num_columns != 1:
                raise ValueError(
                    f"the schema is no object, and there are {table.num_columns} columns: "
                    f"{', '.join(table.column_names)}"
                )
            column = table.column(0)
            return list(map(_turn(column.type, known), column.to_pylist()))
        if not self._is_record:
            return list(map(_turn(table.schema[0].type, None), table.column(0).to_pylist()))
        kind = pa.struct(list(table.schema))
        return list(map(_turn(kind, known), table.to_pylist()))


def _require(objects: list[Any], name: str, may_be_null: bool) -> None:
    for value in objects:
        if name not in value:
            if not may_be_null:
                raise ValueError(f"the field {name!r} is null, and the schema requires a value")
            value[name] = None


def _turn(kind: pa.DataType, known: JsonType | None) -> Turn:
    """What makes a value for JSON of one from a column of this type."""
    if known is not None and known.read is JsonText and pa.types.is_string(kind):
        return lambda text: None if text is None else msgspec.Raw(text.encode())
    if pa.types.is_struct(kind):
        fields = {} if known is None else known.fields
        turns = [(part.name, _turn(part.type, fields.get(part.name))) for part in kind]
        return lambda row: (
            None
            if row is None
            else {name: turn(row[name]) for name, turn in turns if row[name] is not None}
        )
    element = None if known is None else known.element
    if pa.types.is_map(kind):
        turn = _turn(kind.item_type, element)
        return lambda pairs: None if pairs is None else {key: turn(each) for key, each in pairs}
    if pa.types.is_list(kind):
        turn = _turn(kind.value_type, element)
        return lambda values: None if values is None else [turn(each) for each in values]
    return lambda value: value
