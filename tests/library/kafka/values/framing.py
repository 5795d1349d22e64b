"""Payloads as a registry's clients frame them, and decoders of a server's schemas."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pylogtable.kafka import Decoded, DecodedGroup, Decoder, decoder
from tests.library.kafka.registry import RegistryServer

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def framed_by_guid(guid: uuid.UUID, body: bytes = b"") -> bytes:
    return b"\1" + guid.bytes + body


def payloads(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def headers(*rows: Sequence[tuple[str, bytes | None]] | None) -> pa.Array:
    shown = [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in rows
    ]
    return pa.array(shown, HEADERS)


def of(registry: RegistryServer, format: str = "avro", **more: Any) -> Decoder:
    return decoder(format, schema_registry=registry.url, **more)


def only_group(decoded: Decoded) -> DecodedGroup:
    (group,) = decoded.groups
    assert group.values.validate(full=True) is None
    assert len(group.rows) == len(group.values)
    return group


def reasons(decoded: Decoded) -> dict[int, str]:
    return {failure.row: failure.reason for failure in decoded.failures}
