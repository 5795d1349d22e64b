"""Rows of a topic with columns as records of Kafka, with the newest schema that is registered."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import HEADERS
from pylogtable.kafka.rows import HEADERS as HEADERS_TYPE
from pylogtable.kafka.typed.columns_plan import KEY, VALUE, VALUE_SCHEMA_ID
from pylogtable.kafka.typed.fields_plan import (
    Fields,
    check_key,
    columns_of_values,
    is_from_typed_import,
    key_fields,
    value_fields,
)
from pylogtable.kafka.typed.options import ValueOptions
from pylogtable.kafka.values.encoder import Encoder, UnwritableRowError, encoder
from pylogtable.kafka.values.frames import KEY_HEADER, VALUE_HEADER
from pylogtable.kafka.values.json_writer import JsonWriter
from pylogtable.lazy_arrow import pc

_ADVICE = (
    "Nothing of this batch was sent. Register a schema that has a place for it, or move the group "
    "of the export behind it (pylogtable groups reset)"
)


class RecordMaker:
    """Makes records for one topic of Kafka of the rows of a topic, as long as its columns stay."""

    def __init__(
        self, topic: str, info: TopicInfo, options: ValueOptions, kafka_topic: str
    ) -> None:
        self._info = info
        self._values = _Part(
            VALUE,
            _encoder(
                options.value_format,
                options.value_schema,
                options,
                f"{kafka_topic}-value",
                is_record=columns_of_values(info) != [VALUE],
            ),
            lambda fields: value_fields(info, fields),
            topic,
        )
        self._keys: _Part | None = None
        if options.key_format is None:
            check_key(topic, info)
        else:
            self._keys = _Part(
                KEY,
                _encoder(
                    options.key_format,
                    options.key_schema,
                    options,
                    f"{kafka_topic}-key",
                    is_record=list(info.key) != [KEY],
                ),
                lambda fields: key_fields(info, fields),
                topic,
            )
        columns = columns_of_values(info)
        if is_from_typed_import(info):
            columns = [*columns, VALUE_SCHEMA_ID]  # null if and only if Kafka's value was
        self._value_columns = columns

    def fits(self, info: TopicInfo) -> bool:
        """True if these are the columns that it was made for."""
        return (info.fields, info.key) == (self._info.fields, self._info.key)

    def make(self, rows: pa.Table) -> pa.Table:
        """The records. Raises if one of them cannot be encoded."""
        keys = self._info.key
        if self._keys is not None:
            key = self._keys.encode(rows, _any_valid(rows, keys))
        elif keys:
            key = rows[KEY].cast(pa.binary())
        else:
            key = pa.nulls(len(rows), pa.binary())
        is_there = _any_valid(rows, self._value_columns)
        return pa.table(
            {
                **{name: rows[name] for name in ("partition", "offset", "timestamp")},
                "key": key,
                "value": self._values.encode(rows, is_there),
                "headers": self._headers(rows),
            }
        )

    def _headers(self, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        """Without those that name the schema that a payload had before."""
        if HEADERS not in rows.column_names:
            return pa.nulls(len(rows), HEADERS_TYPE)
        headers = rows[HEADERS]
        outdated = [VALUE_HEADER, *([] if self._keys is None else [KEY_HEADER])]
        names = pc.list_flatten(headers).combine_chunks().field("key")
        if not pc.any(pc.is_in(names, pa.array(outdated))).as_py():
            return headers
        kept = [
            pairs and [pair for pair in pairs if pair["key"] not in outdated]
            for pairs in headers.to_pylist()
        ]
        return pa.array(kept, HEADERS_TYPE)


class _Part:
    """Encodes values, or keys."""

    def __init__(
        self,
        name: str,
        written: Encoder,
        fields_of: Callable[[tuple[str, ...] | None], Fields],
        topic: str,
    ) -> None:
        self._name = name
        self._encoder = written
        self._fields = fields_of(written.fields)
        schema = "the schema" if written.schema_id is None else f"schema {written.schema_id}"
        self._schema = schema
        if not self._fields.columns:
            fields = ", ".join(written.fields or ()) or "a single value"
            raise InvalidRequestError(
                f"topic {topic!r} has no column for the {name} of {schema}, which has {fields}"
            )

    def encode(self, rows: pa.Table, is_there: pa.Array) -> pa.BinaryArray:
        for column in self._fields.others:
            valid = rows[column].is_valid()
            if pc.any(valid).as_py():
                row = pc.index(valid, True).as_py()
                why = f"{self._schema} has no field for the column {column!r}"
                raise self._error(rows, row, why)
        table = pa.table({field: rows[column] for field, column in self._fields.columns.items()})
        try:
            return self._encoder.payloads(table, is_there)
        except UnwritableRowError as error:
            raise self._error(rows, error.row, str(error)) from error

    def _error(self, rows: pa.Table, row: int, why: str) -> InvalidRequestError:
        place = f"offset {rows['offset'][row]} of partition {rows['partition'][row]}"
        return InvalidRequestError(
            f"the {self._name} of the record at {place} cannot be written as "
            f"{self._encoder.format}: {why}. {_ADVICE}"
        )


def _encoder(
    format: str, schema: str | None, options: ValueOptions, subject: str, *, is_record: bool
) -> Encoder:
    """`is_record` says what JSON without a schema is: a plain value has one column, which is called
    as an import calls it."""
    if format == "json" and schema is None:
        return Encoder(format, JsonWriter(None, is_record=is_record), None)
    return encoder(
        format,
        schema_registry=options.schema_registry if schema is None else None,
        subject=subject,
        schema=schema,
        registry_settings=options.registry_settings or None,
    )


def _any_valid(rows: pa.Table, columns: list[str] | tuple[str, ...]) -> pa.Array:
    """The rows that have anything in these columns. Without columns all do [REC-3]."""
    if not columns:
        return pa.array([True] * len(rows), pa.bool_())
    found = rows[columns[0]].is_valid()
    for name in columns[1:]:
        found = pc.or_(found, rows[name].is_valid())
    return found
