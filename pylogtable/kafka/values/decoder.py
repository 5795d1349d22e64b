"""Payloads in, columns out: by the schema that each payload names, or by one from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.values import frames
from pylogtable.kafka.values.avro import AvroFormat, avro_library
from pylogtable.kafka.values.batches import SchemaError, Values
from pylogtable.kafka.values.frames import Rows
from pylogtable.kafka.values.registry import RegisteredSchema, Registry, UnknownSchemaError

FORMATS = ("avro",)


@dataclass(frozen=True)
class DecodedGroup:
    """The payloads of one writer's schema."""

    #: None: the schema is from a file, or a GUID names it, or there is none.
    schema_id: int | None
    #: Which payloads, rising.
    rows: Rows
    #: One for each row: a struct with a field for each column if `is_record`.
    values: pa.Array
    is_record: bool
    #: If a GUID names the schema.
    schema_guid: str | None = None


@dataclass(frozen=True)
class Failure:
    """A payload that does not decode, and why."""

    row: int
    schema_id: int | None
    reason: str


@dataclass(frozen=True)
class Decoded:
    """A null payload is in neither."""

    groups: tuple[DecodedGroup, ...]
    failures: tuple[Failure, ...]


class ValueFormat(Protocol):
    """Decodes the bodies of one schema."""

    is_record: bool
    #: Of a value. That of a record is a struct.
    type: pa.DataType

    def decode(self, bodies: pa.LargeBinaryArray) -> Values: ...


class Decoder:
    """Made by `decoder`. One thread uses it at a time."""

    def __init__(
        self,
        format: str,
        registry: Registry | None,
        local: ValueFormat | None,
        is_key: bool,
    ) -> None:
        self.format = format
        self._registry = registry
        self._local = local
        self._header = frames.KEY_HEADER if is_key else frames.VALUE_HEADER
        self._known: dict[int | str, ValueFormat | SchemaError] = {}

    def decode(
        self,
        payloads: pa.BinaryArray | pa.ChunkedArray,
        headers: pa.Array | pa.ChunkedArray | None = None,
    ) -> Decoded:
        """Raises StorageError if the registry does not answer, or refuses. What it does not know is
        a failure of the payloads that name it, and is asked for again at the next call."""
        large = frames.as_large(payloads)
        if self._local is not None:
            return self._decode_local(large, self._local)
        split = frames.split(large, headers, self._header)
        groups: list[DecodedGroup] = []
        failures = [Failure(row, None, reason) for row, reason in split.failures]
        for frame in split.frames:
            schema_id = frame.schema if isinstance(frame.schema, int) else None
            known = self._format_of(frame.schema)
            if isinstance(known, Exception):
                reason = f"schema {frame.schema}: {known}"
                failures += [Failure(int(row), schema_id, reason) for row in frame.rows]
                continue
            values = known.decode(frame.bodies)
            failures += [
                Failure(int(frame.rows[row]), schema_id, f"schema {frame.schema}: {reason}")
                for row, reason in values.failures
            ]
            if values.array is not None:
                guid = frame.schema if isinstance(frame.schema, str) else None
                rows = frame.rows[values.rows]
                groups.append(DecodedGroup(schema_id, rows, values.array, known.is_record, guid))
        return Decoded(tuple(groups), tuple(sorted(failures, key=lambda each: each.row)))

    def newest_type(self, subject: str) -> pa.DataType | None:
        """The type of values with the newest schema of a subject, or with the schema of the file;
        None if there is none. That of a record is a struct."""
        if self._local is not None:
            return self._local.type
        if self._registry is None:
            return None
        try:
            return self._made(self._registry.newest(subject)[1]).type
        except (UnknownSchemaError, SchemaError):
            return None

    def _made(self, schema: RegisteredSchema) -> ValueFormat:
        return AvroFormat(schema)

    def _format_of(self, name: int | str) -> ValueFormat | SchemaError | UnknownSchemaError:
        assert self._registry is not None
        known = self._known.get(name)
        if known is None:
            try:
                known = self._made(self._registry.schema(name))
            except SchemaError as error:
                known = error
            except UnknownSchemaError as error:
                return error  # it may be registered later
            self._known[name] = known
        return known

    def _decode_local(self, payloads: pa.LargeBinaryArray, local: ValueFormat) -> Decoded:
        """Payloads that look framed are read without their frame, and as they are if that fails."""
        rows = frames.valid_rows(payloads)
        is_framed = frames.look_framed(payloads, rows)
        framed, bare = rows[is_framed], rows[~is_framed]
        parts: list[tuple[Rows, pa.Array]] = []
        why_framed: dict[int, str] = {}
        if len(framed):
            bodies = frames.without_first(payloads.take(pa.array(framed)), frames.ID_BYTES)
            found = local.decode(bodies)
            if found.array is not None:
                parts.append((framed[found.rows], found.array))
            why_framed = {int(framed[row]): why for row, why in found.failures}
            bare = np.union1d(bare, np.array(list(why_framed), np.int64))
        found = local.decode(payloads.take(pa.array(bare)))
        if found.array is not None:
            parts.append((bare[found.rows], found.array))
        failures = tuple(
            Failure(int(bare[row]), None, why_framed.get(int(bare[row]), why))
            for row, why in found.failures
        )
        if not parts:
            return Decoded((), failures)
        rows = np.concatenate([part for part, _ in parts])
        order = np.argsort(rows, kind="stable")
        values = pa.concat_arrays([array for _, array in parts]).take(pa.array(order))
        return Decoded((DecodedGroup(None, rows[order], values, local.is_record),), failures)


def decoder(
    format: str,
    *,
    schema_registry: str | None = None,
    schema: str | Path | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    is_key: bool = False,
) -> Decoder:
    """Decodes payloads of Kafka into columns. `format` is how they are written: `avro`.

    `schema_registry` is the URL of a registry with Confluent's API; `registry_settings` are those
    of confluent-kafka's client for it, such as basic.auth.user.info. Or `schema` is the file of the
    one schema that all payloads have. `is_key` looks for the schema of keys in headers.

        >>> decoder("avro", schema_registry="http://registry:8081").decode(table["value"])
    """
    if format not in FORMATS:
        raise InvalidRequestError(f"unknown format {format!r}; it is one of {', '.join(FORMATS)}")
    if (schema_registry is None) == (schema is None):
        raise InvalidRequestError(
            f"{format} needs its schemas: give either `schema_registry`, a URL, or `schema`, a "
            "file (--schema-registry or --schema)"
        )
    avro_library()
    if schema_registry is not None:
        return Decoder(format, Registry(schema_registry, registry_settings), None, is_key)
    assert schema is not None
    return Decoder(format, None, _local(Path(schema)), is_key)


def _local(path: Path) -> ValueFormat:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the schema {path} cannot be read: {error}") from error
    try:
        return AvroFormat(RegisteredSchema(text, "AVRO"))
    except SchemaError as error:
        raise InvalidRequestError(f"the schema {path} cannot be used: {error}") from error
