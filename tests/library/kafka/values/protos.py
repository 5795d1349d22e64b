"""Descriptors of Protobuf, and messages of them, without its compiler."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

_Field = descriptor_pb2.FieldDescriptorProto
#: A file that others may import.
PLACE = "place.proto"

WELL_KNOWN = [
    f"google/protobuf/{name}.proto"
    for name in ("timestamp", "wrappers", "struct", "duration", "empty")
]


def file_of(
    name: str,
    messages: Mapping[str, Sequence[str]],
    imports: Sequence[str] = (),
    enums: Mapping[str, Sequence[str]] | None = None,
) -> descriptor_pb2.FileDescriptorProto:
    """Fields are `type name`, `repeated type name`, `optional type name`, `oneof type name`, or
    `map key value name`. The name of a message with a dot is inside of the one before it."""
    file = descriptor_pb2.FileDescriptorProto(
        name=name, package="test", syntax="proto3", dependency=imports
    )
    for enum, values in (enums or {}).items():
        made = file.enum_type.add(name=enum)
        for number, value in enumerate(values):
            made.value.add(name=value, number=number)
    found: dict[str, Any] = {}
    for message, fields in messages.items():
        parent, _, own = message.rpartition(".")
        place = found[parent].nested_type if parent else file.message_type
        found[message] = place.add(name=own)
        for number, text in enumerate(fields, start=1):
            _add_field(found[message], number, text, set(enums or ()), message)
    return file


def _add_field(message: Any, number: int, text: str, enums: set[str], full_name: str) -> None:
    *words, name = text.split()
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if words[0] == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        for place, kind in enumerate(words[1:]):
            part = entry.field.add(name=("key", "value")[place], number=place + 1, label=1)
            _set_type(part, kind, enums)
        field.label = _Field.LABEL_REPEATED
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".test.{full_name}.{entry.name}"
        return
    if words[0] == "repeated":
        field.label = _Field.LABEL_REPEATED
    if words[0] == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    if words[0] == "optional":
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    _set_type(field, words[-1], enums)


def _set_type(field: Any, kind: str, enums: set[str]) -> None:
    known = getattr(_Field, f"TYPE_{kind.upper()}", None)
    if known is not None and kind not in ("message", "enum", "group"):
        field.type = known
        return
    field.type = _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE
    field.type_name = f".{kind}" if kind.startswith("google.") else f".test.{kind}"


def place() -> descriptor_pb2.FileDescriptorProto:
    return file_of(PLACE, {"Place": ["string city"]})


def as_registered(file: descriptor_pb2.FileDescriptorProto) -> str:
    """As confluent-kafka's serializer registers it."""
    return base64.b64encode(file.SerializeToString()).decode()


def classes(*files: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """The class of each message of the last file, by name."""
    pool = descriptor_pool.DescriptorPool()
    for name in ("timestamp", "wrappers", "struct", "duration", "empty"):
        module = __import__(f"google.protobuf.{name}_pb2", fromlist=["DESCRIPTOR"])
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName(files[-1].name)
    return {name: GetMessageClass(each) for name, each in found.message_types_by_name.items()}


def descriptor_set(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    """What `protoc --descriptor_set_out` writes."""
    content: bytes = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    return content
