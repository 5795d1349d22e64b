"""Columns become values in Avro, written by fastavro with the schema that they are read with."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pylogtable.kafka.values.avro import avro_library, parse, readable
from pylogtable.kafka.values.registry import RegisteredSchema
from pylogtable.kafka.values.same_kind import check_same_kind
from pylogtable.kafka.values.shapes import Shape


class AvroWriter:
    """Writes values of one schema. Raises SchemaError if columns have no such values."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._avro = avro_library()
        parsed, named = parse(schema)
        self._type = readable(parsed, named)
        self._schema = self._avro.parse_schema(self._type.read)
        #: Of the fields of a record: what stands for a column that the table does not have.
        self._defaults = _defaults(parsed) if self._type.fields else {}

    @property
    def fields(self) -> tuple[str, ...]:
        """Those of the record; none if the schema is no record."""
        return tuple(name for name, _ in self._type.fields)

    def encode(self, table: pa.Table) -> Sequence[bytes]:
        stream = io.BytesIO()
        ends = [0]
        write = self._avro.schemaless_writer
        value = None
        try:
            for value in self._objects(table):
                write(stream, self._schema, value)
                ends.append(stream.tell())
        except Exception as error:  # of many classes, which do not always name the field
            raise ValueError(self._reason(value, error)) from error
        written = stream.getvalue()
        return [written[start:end] for start, end in itertools.pairwise(ends)]

    def _objects(self, table: pa.Table) -> list[Any]:
        if not self._type.fields:
            if table.num_columns != 1:
                raise ValueError(
                    f"the schema is no record, and there are {table.num_columns} columns: "
                    f"{', '.join(table.column_names)}"
                )
            found: list[Any] = _raw(table.column(0), self._type.shape).to_pylist()
            return found
        unknown = set(table.column_names) - {name for name, _ in self._type.fields}
        if unknown:
            raise ValueError(f"the schema has no field for {', '.join(sorted(unknown))}")
        rows: list[Any] = [{} for _ in range(len(table))]
        for name, kind in self._type.fields:
            if name in table.column_names:
                try:
                    column = _raw(table.column(name), kind.shape).to_pylist()
                except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
                    raise ValueError(f"the field {name!r}: {error}") from error
                default = self._defaults.get(name)
                for row, value in zip(rows, column, strict=True):
                    # A value of an earlier schema lacks the field: a reader takes the default.
                    row[name] = default if value is None else value
            elif name in self._defaults:
                for row in rows:
                    row[name] = self._defaults[name]
            else:
                raise ValueError(f"there is no column for the field {name!r} of the schema")
        return rows

    def _reason(self, value: Any, error: Exception) -> str:
        """Why a value cannot be written, with the first field that cannot be."""
        for name, kind in self._type.fields if isinstance(value, dict) else ():
            alone = {
                "type": "record",
                "name": "Alone",
                "fields": [{"name": name, "type": kind.read}],
            }
            try:
                self._avro.schemaless_writer(
                    io.BytesIO(), self._avro.parse_schema(alone), {name: value[name]}
                )
            except Exception as why:  # of many classes
                if value[name] is None:
                    return f"the field {name!r} is null, and the schema requires a value"
                return f"the field {name!r}: {why}"
        return str(error) or type(error).__name__


def _raw(column: pa.ChunkedArray, shape: Shape) -> pa.Array:
    check_same_kind(column.type, shape.final)
    return shape.raw_of(column.combine_chunks())


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
