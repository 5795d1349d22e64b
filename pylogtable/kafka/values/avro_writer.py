"""Columns become values in Avro, written by fastavro with the schema that they are read with."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pylogtable.kafka.values.avro import avro_library, parse, readable
from pylogtable.kafka.values.registry import RegisteredSchema


class AvroWriter:
    """Writes values of one schema. Raises SchemaError if columns have no such values."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._avro = avro_library()
        parsed, named = parse(schema)
        self._type = readable(parsed, named)
        self._schema = self._avro.parse_schema(self._type.read)
        #: Of the fields of a record: what stands for a column that the table does not have.
        self._defaults = _defaults(parsed) if self._type.fields else {}

    def encode(self, table: pa.Table) -> Sequence[bytes]:
        stream = io.BytesIO()
        ends = [0]
        write = self._avro.schemaless_writer
        for value in self._objects(table):
            write(stream, self._schema, value)
            ends.append(stream.tell())
        written = stream.getvalue()
        return [written[start:end] for start, end in itertools.pairwise(ends)]

    def _objects(self, table: pa.Table) -> list[Any]:
        if not self._type.fields:
            if table.num_columns != 1:
                raise ValueError(
                    f"the schema is no record, and there are {table.num_columns} columns: "
                    f"{', '.join(table.column_names)}"
                )
            found: list[Any] = self._type.shape.raw_of(table.column(0).combine_chunks()).to_pylist()
            return found
        unknown = set(table.column_names) - {name for name, _ in self._type.fields}
        if unknown:
            raise ValueError(f"the schema has no field for {', '.join(sorted(unknown))}")
        rows: list[Any] = [{} for _ in range(len(table))]
        for name, kind in self._type.fields:
            if name in table.column_names:
                column = kind.shape.raw_of(table.column(name).combine_chunks()).to_pylist()
                for row, value in zip(rows, column, strict=True):
                    row[name] = value
            elif name in self._defaults:
                for row in rows:
                    row[name] = self._defaults[name]
            else:
                raise ValueError(f"there is no column for the field {name!r} of the schema")
        return rows


def _defaults(parsed: dict[str, Any]) -> dict[str, Any]:
    """Of fields of a plain type, whose default is written as the value is, and of fields that may
    be null."""
    found: dict[str, Any] = {}
    for field in parsed["fields"]:
        kind = field["type"]
        if isinstance(kind, list) and "null" in kind:
            found[field["name"]] = None
        elif "default" in field and isinstance(field["default"], bool | int | float | str):
            name = kind["type"] if isinstance(kind, dict) else kind
            if name in ("boolean", "int", "long", "float", "double", "string", "enum"):
                found[field["name"]] = field["default"]
    return found
