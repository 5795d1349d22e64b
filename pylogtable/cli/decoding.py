"""Values and keys of Kafka as JSON, for `consume`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
import msgspec

import pylogtable
from pylogtable.cli.kafka_values import parse_value_options
from pylogtable.cli.messages import warn
from pylogtable.cli.session import Session
from pylogtable.cli.to_json import Row, envelopes, objects

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable import View
    from pylogtable.kafka import Decoder

#: The columns, and what `envelopes` calls them.
_NAMES = {"key": "key", "value": "payload"}
Texts = dict[str, list[bytes | None]]


class Decoding:
    """Decodes keys and values of a topic of Kafka's shape. What does not decode is printed as it
    is, with a warning."""

    def __init__(self, session: Session, view: View, decoders: Mapping[str, Decoder]) -> None:
        if not pylogtable.is_kafka_shaped(view.schema):
            raise click.UsageError(
                f"--value-format and --key-format decode bytes, and topic {view.name} has columns: "
                f"{', '.join(view.schema.names)}"
            )
        self._session = session
        self._decoders = decoders

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With JSON texts in place of what decodes."""
        import pyarrow as pa

        for name, texts in self._texts(batch).items():
            number = batch.schema.get_field_index(name)
            shown = [
                raw if text is None else text
                for text, raw in zip(texts, batch.column(number).to_pylist(), strict=True)
            ]
            batch = batch.set_column(number, name, pa.array(shown, pa.binary()))
        return batch

    def envelopes(self, batch: pa.RecordBatch, topic: str) -> list[Row]:
        """Records as JSON objects, with the values as they are in JSON, not as texts."""
        rows = envelopes(batch, topic)
        for name, texts in self._texts(batch).items():
            shown = _NAMES[name]
            for row, text in zip(rows, texts, strict=True):
                if text is not None:
                    row.pop(f"{shown}_base64", None)
                    row[shown] = msgspec.Raw(text)
        return rows

    def _texts(self, batch: pa.RecordBatch) -> Texts:
        """Of each column that is decoded: JSON, or None where a value is null or damaged."""
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        found: Texts = {}
        for name, decoder in self._decoders.items():
            decoded = decoder.decode(batch.column(name), headers)
            texts: list[bytes | None] = [None] * batch.num_rows
            for group in decoded.groups:
                for row, value in zip(group.rows.tolist(), _values(group.values), strict=True):
                    texts[row] = msgspec.json.encode(value)
            found[name] = texts
            if decoded.failures:
                self._warn(name, batch, len(decoded.failures), decoded.failures[0])
        return found

    def _warn(self, name: str, batch: pa.RecordBatch, count: int, first: Any) -> None:
        place = [batch.column(part)[first.row].as_py() for part in ("offset", "partition")]
        more = "" if count == 1 else f" (and {count - 1} more)"
        warn(
            self._session,
            f"the {name} at offset {place[0]} of partition {place[1]}{more} could not be decoded, "
            f"and is printed as it is: {first.reason}",
        )


def decoders_of(given: dict[str, Any]) -> dict[str, Decoder]:
    """The decoder of each column that the options ask for. Takes these options out of `given`."""
    parse_value_options(given)
    formats = {name: given.pop(f"{name}_format") for name in _NAMES}
    schemas = {name: given.pop(f"{name}_schema") for name in _NAMES}
    registry, settings = given.pop("schema_registry"), given.pop("registry_settings")
    if not any(formats.values()):
        if registry is not None or any(schemas.values()):
            raise click.UsageError("schemas need --value-format or --key-format")
        return {}
    from pylogtable.kafka import decoder

    return {
        name: decoder(
            format,
            schema_registry=None if schemas[name] is not None else registry,
            schema=schemas[name],
            registry_settings=settings,
            is_key=name == "key",
        )
        for name, format in formats.items()
        if format is not None
    }


def _values(values: pa.Array) -> list[Any]:
    """For JSON, by the rules of all columns."""
    import pyarrow as pa

    rows = objects(pa.RecordBatch.from_arrays([values], ["value"]), None)
    return [next(iter(row.values())) for row in rows]
