"""Formats records as text with kcat's `%` placeholders, a whole batch at a time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import msgspec

import pylogtable
from pylogtable.cli.parse import unescape
from pylogtable.cli.to_json import objects

if TYPE_CHECKING:
    import pyarrow as pa

SIGNS = {
    "s": "value",
    "S": "its length in bytes, -1 for null",
    "k": "key",
    "K": "its length in bytes, -1 for null",
    "h": "headers",
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp in milliseconds",
}
#: What kcat prints for a header without a value.
_NULL = b"NULL"
_SIGN = re.compile(r"%(.?)", re.DOTALL)


class Template:
    """A `--format` such as `%t [%p] at %o: %k=%s\\n`."""

    def __init__(self, text: str, topic: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
        self._parts = _parse(text)
        self._topic = topic
        self._key = key
        self._is_kafka = pylogtable.is_kafka_shaped(schema)

    def render(self, batch: pa.RecordBatch) -> memoryview:
        """The text of all records of the batch, one after the other."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        fields = {sign: self._field(sign, batch) for sign, _ in self._parts if sign}
        pieces = [
            fields[sign] if sign else pa.scalar(literal, pa.large_binary())
            for sign, literal in self._parts
        ]
        # An array comes first, because scalars alone would be joined to one scalar.
        every = pa.repeat(pa.scalar(b"", pa.large_binary()), batch.num_rows)
        joined = pc.binary_join_element_wise(
            every,
            *pieces,
            pa.scalar(b"", pa.large_binary()),
            null_handling="replace",
            null_replacement="",
        )
        _, offsets, data = joined.buffers()
        bounds = np.frombuffer(offsets, np.int64)
        start, end = bounds[joined.offset], bounds[joined.offset + len(joined)]
        return memoryview(data)[start:end]

    def _field(self, sign: str, batch: pa.RecordBatch) -> pa.Array:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if sign == "t":
            return pa.scalar(self._topic.encode(), pa.large_binary())
        if sign in "po":
            return _text(batch.column("partition" if sign == "p" else "offset"))
        if sign == "T":
            stamps = batch.column("timestamp").cast(pa.int64()).to_numpy()
            return _text(pa.array(np.floor_divide(stamps, 1000)))
        if sign == "h":
            return pa.array(_headers(batch), pa.large_binary())
        column = self._value(batch) if sign in "sS" else self._key_text(batch)
        if sign in "SK":
            return _text(pc.fill_null(pc.binary_length(column).cast(pa.int64()), -1))
        return column

    def _value(self, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa

        if self._is_kafka:
            return batch.column("value").cast(pa.large_binary())
        rows = objects(batch, None)
        return pa.array([msgspec.json.encode(row) for row in rows], pa.large_binary())

    def _key_text(self, batch: pa.RecordBatch) -> pa.Array:
        """The bytes of the key, or its columns as text, separated by commas."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = []
        for name in self._key:
            column = batch.column(name)
            is_text = pa.types.is_binary(column.type) or pa.types.is_string(column.type)
            texts.append(column.cast(pa.large_binary()) if is_text else _text(column))
        if len(texts) < 2:
            return texts[0] if texts else pa.nulls(batch.num_rows, pa.large_binary())
        comma = pa.scalar(b",", pa.large_binary())
        return pc.binary_join_element_wise(
            *texts, comma, null_handling="replace", null_replacement=""
        )


def _parse(text: str) -> list[tuple[str, bytes]]:
    """The parts in order: (sign, b"") or ("", literal)."""
    parts: list[tuple[str, bytes]] = []
    literal, end = b"", 0
    for match in _SIGN.finditer(text):
        literal += unescape(text[end : match.start()])
        end, sign = match.end(), match[1]
        if sign == "%":
            literal += b"%"
        elif sign in SIGNS:
            parts += [("", literal), (sign, b"")] if literal else [(sign, b"")]
            literal = b""
        else:
            known = ", ".join(f"%{name}" for name in SIGNS)
            raise click.BadParameter(
                f"%{sign} is not supported; use {known} or %%", param_hint="--format"
            )
    literal += unescape(text[end:])
    return [*parts, ("", literal)] if literal else parts


def _text(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.large_string()).cast(pa.large_binary())


def _headers(batch: pa.RecordBatch) -> list[bytes]:
    """Headers as kcat prints them: name=value, separated by commas, and NULL without a value."""
    if "headers" not in batch.schema.names:
        return [b""] * batch.num_rows
    return [
        b",".join(
            b"%s=%s" % ((pair["key"] or "").encode(), _NULL if (v := pair["value"]) is None else v)
            for pair in pairs or ()
        )
        for pairs in batch.column("headers").to_pylist()
    ]
