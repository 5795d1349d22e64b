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


class UnwritableRowError(Exception):
    """A row that cannot be a payload. Its text is the reason."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class Writer(Protocol):
    """Writes rows with one schema."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Those of the schema: none if its values are no records, None if there is no schema."""
        ...

    def encode(self, table: pa.Table) -> Sequence[bytes]:
        """One body for each row. Raises if one of them does not fit."""
        ...


class Encoder:
    """Made by `encoder`. One thread uses it at a time."""

    def __init__(self, format: str, writer: Writer, schema_id: int | None) -> None:
        self.format = format
        #: None: the schema is from a file, and payloads have no frame.
        self.schema_id = schema_id
        #: The fields of the schema: none if its values are no records, None if there is no schema.
        self.fields = writer.fields
        self._writer = writer
        self._head = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")

    def encode(self, table: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
        """One payload for each row: null, which is a tombstone, if all columns are. Raises
        InvalidRequestError if the schema has no place for a value, and names the first such row."""
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        is_there = pa.array([False] * len(table), pa.bool_())
        for column in table.combine_chunks().columns:
            is_there = pc.or_(is_there, column.is_valid())
        try:
            return self.payloads(table, is_there)
        except UnwritableRowError as error:
            raise InvalidRequestError(
                f"row {error.row} cannot be written as {self.format}: {error}. Register a schema "
                "that has a place for it, or change the record"
            ) from error

    def payloads(self, table: pa.Table, is_there: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
        """One payload for each row that is there, also if all of its columns are null, and null for
        the others. Raises UnwritableRowError for the first row that does not fit."""
        found: list[bytes | None] = []
        marked = table.append_column("", is_there)
        for start in range(0, len(table), _BATCH):
            found += self._batch(marked.slice(start, _BATCH), start)
        return pa.array(found, pa.binary())

    def _batch(self, marked: pa.Table, start: int) -> list[bytes | None]:
        """The last column says whether a row is there."""
        last = marked.num_columns - 1
        is_there = marked.column(last)
        try:
            rows = marked.remove_column(last).filter(is_there).combine_chunks()
            bodies = iter(self._writer.encode(rows))
        except Exception as error:  # of many classes: find the row
            if len(marked) == 1:
                raise UnwritableRowError(start, str(error) or type(error).__name__) from error
            middle = len(marked) // 2
            first = self._batch(marked.slice(0, middle), start)
            return first + self._batch(marked.slice(middle), start + middle)
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
