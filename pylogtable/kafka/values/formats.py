"""Which formats there are, and how a schema of each is read."""

from __future__ import annotations

import difflib
from pathlib import Path

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.values.avro import AvroFormat, avro_library
from pylogtable.kafka.values.batches import SchemaError, ValueFormat
from pylogtable.kafka.values.json_values import JsonFormat
from pylogtable.kafka.values.protobuf import of_descriptor_set, of_registered, protobuf_library
from pylogtable.kafka.values.registry import RegisteredSchema

FORMATS = ("avro", "json-schema", "protobuf", "json")
_KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF", "json": "JSON"}


def check_format(name: str) -> None:
    """Raise if there is no such format, or if its library is missing."""
    if name not in FORMATS:
        near = difflib.get_close_matches(str(name), FORMATS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(FORMATS)}"
        raise InvalidRequestError(f"unknown format {name!r}; {hint}")
    if name == "avro":
        avro_library()
    if name == "protobuf":
        protobuf_library()


def of_schema(name: str, schema: RegisteredSchema) -> ValueFormat:
    """Raises SchemaError if values of this schema cannot become columns."""
    check_kind(name, schema)
    try:
        if name == "avro":
            return AvroFormat(schema)
        if name == "protobuf":
            return of_registered(schema)
        return JsonFormat(schema)
    except RecursionError as error:
        raise SchemaError("its types are nested too deep") from error


def check_kind(name: str, schema: RegisteredSchema) -> None:
    """Raise SchemaError if the schema is one of another format."""
    if schema.type != _KINDS[name]:
        raise SchemaError(f"it is a schema of {schema.type}, and the format is {name}")


def asked_as(name: str) -> str | None:
    """The form in which a registry is asked for schemas; None: as they were registered."""
    return "serialized" if name == "protobuf" else None


def registered_as(name: str) -> str:
    """What registries call a format."""
    return _KINDS[name]


def read_file(path: Path) -> bytes:
    """The schema in a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"the schema {path} cannot be read: {error}") from error


def from_file(name: str, path: Path, message: str | None) -> ValueFormat:
    if message is not None and name != "protobuf":
        raise InvalidRequestError(f"`message` names a message of Protobuf; the format is {name}")
    content = read_file(path)
    try:
        if name == "protobuf":
            return of_descriptor_set(content, message)
        return of_schema(name, RegisteredSchema(content.decode(), _KINDS[name]))
    except (SchemaError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the schema {path} cannot be used: {error}") from error
