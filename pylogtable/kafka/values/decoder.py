"""Payloads in, columns out: by the schema that each payload names, or by one from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.values import frames
from pylogtable.kafka.values.batches import Found, SchemaError, ValueFormat, together
from pylogtable.kafka.values.formats import asked_as, check_format, from_file, of_schema
from pylogtable.kafka.values.frames import Rows
from pylogtable.kafka.values.json_inferred import InferredJson
from pylogtable.kafka.values.registry import Registry, UnknownSchemaError


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
            found = known.decode(frame.bodies, frame.header_rest).at(frame.rows)
            guid = frame.schema if isinstance(frame.schema, str) else None
            groups += _groups(found, schema_id, guid)
            failures += [
                Failure(row, schema_id, f"schema {frame.schema}: {reason}")
                for row, reason in found.failures
            ]
        return _decoded(groups, failures)

    def newest_type(self, subject: str) -> pa.DataType | None:
        """The type of values with the newest schema of a subject, or with the schema of the file;
        None if there is none. That of a record is a struct."""
        if self._local is not None:
            return self._local.type
        assert self._registry is not None
        try:
            return of_schema(self.format, self._registry.newest(subject)[1]).type
        except (UnknownSchemaError, SchemaError):
            return None

    def _format_of(self, name: int | str) -> ValueFormat | SchemaError | UnknownSchemaError:
        assert self._registry is not None
        known = self._known.get(name)
        if known is None:
            try:
                known = of_schema(self.format, self._registry.schema(name))
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
        found = []
        why_framed: dict[int, str] = {}
        if len(framed):
            bodies = frames.without_first(payloads.take(pa.array(framed)), frames.ID_BYTES)
            unframed = local.decode(bodies, None).at(framed)
            why_framed = dict(unframed.failures)
            found.append(Found(unframed.parts, []))
            bare = np.union1d(bare, np.array(list(why_framed), np.int64))
        found.append(local.decode(payloads.take(pa.array(bare)), b"").at(bare))
        both = together(found)
        failures = [Failure(row, None, why_framed.get(row, why)) for row, why in both.failures]
        return _decoded(_groups(both, None, None), failures)


def _groups(found: Found, schema_id: int | None, guid: str | None) -> list[DecodedGroup]:
    return [
        DecodedGroup(schema_id, part.rows, part.values, part.is_record, guid)
        for part in found.parts
    ]


def _decoded(groups: list[DecodedGroup], failures: list[Failure]) -> Decoded:
    return Decoded(tuple(groups), tuple(sorted(failures, key=lambda each: each.row)))


def decoder(
    format: str,
    *,
    schema_registry: str | None = None,
    schema: str | Path | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    is_key: bool = False,
    message: str | None = None,
) -> Decoder:
    """Decodes payloads of Kafka into columns. `format` is how they are written: `avro`,
    `json-schema`, `json` or `protobuf`.

    `schema_registry` is the URL of a registry with Confluent's API; `registry_settings` are those
    of confluent-kafka's client for it, such as basic.auth.user.info. Or `schema` is the file of the
    one schema that all payloads have: of Avro or of JSON Schema, or descriptors as `protoc
    --descriptor_set_out` writes them, in which `message` is the full name of the message. `json`
    needs neither: it has the columns that the values have. `is_key` looks for the schema of keys in
    headers.

        >>> decoder("avro", schema_registry="http://registry:8081").decode(table["value"])
    """
    check_format(format)
    if format == "json" and schema is None:
        # Keys and values may share the setting of a registry, which plain JSON has no use for.
        return Decoder(format, None, InferredJson(), is_key)
    if (schema_registry is None) == (schema is None) and format != "json":
        raise InvalidRequestError(
            f"{format} needs its schemas: give either `schema_registry`, a URL, or `schema`, a "
            f"file (--schema-registry or --{'key' if is_key else 'value'}-schema)"
        )
    if schema is not None:
        return Decoder(format, None, from_file(format, Path(schema), message), is_key)
    assert schema_registry is not None
    registry = Registry(schema_registry, registry_settings, asked_as(format))
    return Decoder(format, registry, None, is_key)
