"""Values in JSON with a JSON Schema, read by msgspec."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from pylogtable.kafka.values.batches import Found, decode
from pylogtable.kafka.values.json_types import to_text, type_of
from pylogtable.kafka.values.registry import RegisteredSchema


class JsonFormat:
    """Values of one schema. Raises SchemaError if that is none."""

    def __init__(self, schema: RegisteredSchema) -> None:
        top = type_of(schema)
        self._shape = top.shape
        self.type = top.shape.final
        self._is_record = pa.types.is_struct(top.shape.final)
        read: Any = top.read if top.read is None else top.read | None
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(read, dec_hook=to_text)

    def decode(self, bodies: pa.LargeBinaryArray, header_rest: bytes | None) -> Found:
        return decode(bodies, self._convert, self._is_record)

    def _convert(self, bodies: pa.LargeBinaryArray) -> pa.Array:
        read = self._decoder.decode
        return self._shape.array([read(body) for body in bodies.to_pylist()])
