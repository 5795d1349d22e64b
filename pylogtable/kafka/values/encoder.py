"""Columns in, payloads out: with the newest schema that a subject has in a registry, or with one
from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.values.avro_writer import AvroWriter
from pylogtable.kafka.values.batches import SchemaError
from pylogtable.kafka.values.formats import (
    asked_as,
    check_format,
    check_kind,
    read_file,
    registered_as,
)
from pylogtable.kafka.values.json_writer import JsonWriter
from pylogtable.kafka.values.protobuf import of_descriptor_set, of_registered
from pylogtable.kafka.values.protobuf_writer import ProtobufWriter
from pylogtable.kafka.values.registry import RegisteredSchema, Registry, UnknownSchemaError

#: Rows whose objects are in memory together.
_BATCH = 8192


class Writer(Protocol):
    """Writes rows with one schema."""

    def encode(self, table: pa.Table) -> Sequence[bytes]:
        """One body for each row. Raises if one of them does not fit."""
        ...


class Encoder:
    """Made by `encoder`. One thread uses it at a time."""

    def __init__(self, format: str, writer: Writer, schema_id: int | None) -> None:
        self.format = format
        #: None: the schema is from a file, and payloads have no frame.
        self.schema_id = schema_id
        self._writer = writer
        self._head = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")

    def encode(self, table: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
        """One payload for each row: null, which is a tombstone, if all columns are. Raises
        InvalidRequestError if the schema has no place for a value, and names the first such row."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        found: list[bytes | None] = []
        for start in range(0, len(table), _BATCH):
            found += self._batch(table.slice(start, _BATCH).combine_chunks(), start)
        return pa.array(found, pa.binary())

    def _batch(self, table: pa.Table, start: int) -> list[bytes | None]:
        is_there = pa.array([False] * len(table))
        for column in table.columns:
            is_there = pc.or_(is_there, column.combine_chunks().is_valid())
        try:
            bodies = iter(self._writer.encode(table.filter(is_there).combine_chunks()))
        except Exception as error:  # of many classes: find the row
            if len(table) == 1:
                raise InvalidRequestError(
                    f"row {start} cannot be written as {self.format}: {error}. Register a schema "
                    "that has a place for it, or change the record"
                ) from error
            middle = len(table) // 2
            first = self._batch(table.slice(0, middle).combine_chunks(), start)
            return first + self._batch(table.slice(middle).combine_chunks(), start + middle)
        return [self._head + next(bodies) if there else None for there in is_there.to_pylist()]


def encoder(
    format: str,
    *,
    schema_registry: str | None = None,
    subject: str | None = None,
    schema: str | Path | None = None,
    registry_settings: Mapping[str, Any] | None = None,
) -> Encoder:
    """Encodes columns into payloads for Kafka. `format` is `avro`, `json-schema`, `protobuf` or
    `json`.

    With a `schema_registry` it takes the newest schema of `subject`, such as `orders-value`, and
    frames the payloads with its id. With `schema`, the file of a schema, payloads have no frame.
    Columns and fields go together by name. `json` needs no schema.

        >>> encoder("avro", schema_registry="http://registry:8081", subject="orders-value")
    """
    check_format(format)
    if format == "json" and schema is None:
        return Encoder(format, JsonWriter(None), None)
    if schema is not None and schema_registry is None:
        path = Path(schema)
        content = read_file(path)
        return Encoder(format, _writer(format, f"the schema {path}", content), None)
    if schema is not None or schema_registry is None or subject is None:
        raise InvalidRequestError(
            f"{format} needs a schema: give `schema_registry`, a URL, and `subject`, or "
            "`schema`, a file"
        )
    registry = Registry(schema_registry, registry_settings, asked_as(format))
    try:
        schema_id, newest = registry.newest(subject)
    except UnknownSchemaError as error:
        raise InvalidRequestError(
            f"the schema registry at {schema_registry} has no schema of subject {subject!r}: "
            f"{error}. Register one, or name another subject"
        ) from error
    return Encoder(format, _writer(format, f"schema {schema_id} of {subject}", newest), schema_id)


def _writer(format: str, name: str, schema: RegisteredSchema | bytes) -> Writer:
    """Of a schema from a registry, or of the content of a file."""
    try:
        if format == "protobuf":
            if isinstance(schema, bytes):
                return ProtobufWriter(of_descriptor_set(schema, None), is_framed=False)
            check_kind(format, schema)
            return ProtobufWriter(of_registered(schema), is_framed=True)
        if isinstance(schema, bytes):
            schema = RegisteredSchema(schema.decode(), registered_as(format))
        check_kind(format, schema)
        return AvroWriter(schema) if format == "avro" else JsonWriter(schema)
    except (SchemaError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{name} cannot be used: {error}") from error
