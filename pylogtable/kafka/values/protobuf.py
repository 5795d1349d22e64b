"""Values in Protobuf, read by google.protobuf with the descriptors of a registry or of a file."""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.values import frames
from pylogtable.kafka.values.batches import Found, SchemaError, decode, together
from pylogtable.kafka.values.frames import Rows
from pylogtable.kafka.values.protobuf_columns import MessageColumn
from pylogtable.kafka.values.registry import RegisteredSchema

#: More message indexes than this are damage.
_MOST_INDEXES = 100
_MAIN = "main.proto"
#: Files that clients have beside the ones that they register.
_SHIPPED = {
    "google/protobuf/": "google.protobuf.",
    "google/type/": "google.type.",
    "confluent/type/": "confluent_kafka.schema_registry.confluent.types.",
    "confluent/": "confluent_kafka.schema_registry.confluent.",
}
_FILE = re.compile(r"[a-z_]+\.proto")


class ProtobufFormat:
    """Values of one file of messages. `default` is the message of bodies that do not say which."""

    def __init__(self, file: Any, default: Any = None) -> None:
        self._file = file
        self._default = default
        self._columns: dict[str, MessageColumn] = {}

    @property
    def type(self) -> pa.DataType | None:
        """That of the message of bodies that do not say which, or of the first one."""
        try:
            return self.first_message().type
        except SchemaError:
            return None

    def first_message(self) -> MessageColumn:
        """The message of bodies that do not say which. Raises SchemaError if it has no column."""
        return self._column(b"" if self._default is not None else b"\x00")

    def decode(self, bodies: pa.LargeBinaryArray, header_rest: bytes | None) -> Found:
        if header_rest is not None:
            return self._decode(bodies, header_rest)
        failures: list[tuple[int, str]] = []
        found = []
        for head, rows in _heads(bodies, failures):
            rest = frames.without_first(bodies.take(pa.array(rows)), len(head))
            found.append(self._decode(rest, head).at(rows))
        return together([*found, Found([], failures)])

    def _decode(self, bodies: pa.LargeBinaryArray, head: bytes) -> Found:
        """Of bodies without message indexes; `head` has these."""
        try:
            column = self._column(head)
        except SchemaError as error:
            return Found([], [(row, str(error)) for row in range(len(bodies))])
        read = column.message_class.FromString

        def convert(part: pa.LargeBinaryArray) -> pa.Array:
            return column.array([read(body) for body in part.to_pylist()])

        return decode(bodies, convert, pa.types.is_struct(column.type))

    def _column(self, head: bytes) -> MessageColumn:
        message = self._default
        if message is None or head:
            message = self._message_at(head)
        if message.full_name not in self._columns:
            self._columns[message.full_name] = MessageColumn(message)
        return self._columns[message.full_name]

    def _message_at(self, head: bytes) -> Any:
        indexes = _indexes(head)[0]
        inside = list(self._file.message_types_by_name.values())
        try:
            for index in indexes:
                if index < 0:
                    raise IndexError(index)
                message = inside[index]
                inside = list(message.nested_types)
        except IndexError as error:
            raise SchemaError(f"it has no message at index {indexes}") from error
        return message


def of_registered(schema: RegisteredSchema) -> ProtobufFormat:
    """Raises SchemaError if these are no whole descriptors."""
    files = {name: _file(below.text, name) for name, below in schema.references}
    return ProtobufFormat(_in_pool(_file(schema.text, _MAIN), files.get))


def of_descriptor_set(content: bytes, message: str | None) -> ProtobufFormat:
    """Of a file as `protoc --descriptor_set_out --include_imports` writes it, whose last file is
    the one that protoc was given."""
    pb2 = protobuf_library().descriptor_pb2
    try:
        files = {file.name: file for file in pb2.FileDescriptorSet.FromString(content).file}
    except Exception as error:  # of a class that depends on the version
        raise SchemaError(f"it holds no descriptors: {error}") from error
    if not files:
        raise SchemaError("it holds no descriptors; `protoc --descriptor_set_out` writes them")
    loaded = _in_pool(list(files.values())[-1], files.get)
    messages = {found.full_name: found for found in _all_messages(loaded)}
    if message is None and messages:
        return ProtobufFormat(loaded, next(iter(messages.values())))
    if message not in messages:
        raise SchemaError(f"it has no message {message!r}; it has {', '.join(messages) or 'none'}")
    return ProtobufFormat(loaded, messages[message])


def _all_messages(parent: Any) -> Iterator[Any]:
    """Of a file or a message: each, and then those inside of it."""
    own = getattr(parent, "message_types_by_name", None)
    for message in own.values() if own is not None else parent.nested_types:
        if not message.GetOptions().map_entry:
            yield message
            yield from _all_messages(message)


def _file(text: str, name: str) -> Any:
    """What a registry has: descriptors in base64."""
    pb2 = protobuf_library().descriptor_pb2
    try:
        file = pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise SchemaError(
            "the registry gives its schemas of Protobuf as text only, not with format=serialized; "
            "give a file that `protoc --descriptor_set_out --include_imports` has written"
        ) from error
    except Exception as error:  # of a class that depends on the version
        raise SchemaError(f"it holds no descriptor of a file: {error}") from error
    file.name = name
    return file


def _in_pool(main: Any, others: Callable[[str], Any]) -> Any:
    """The file with all that it imports, as google.protobuf uses it."""
    library = protobuf_library()
    pool = library.descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for name in file.dependency:
            found = others(name) or _shipped(name)
            if found is None:
                raise SchemaError(f"it imports {name!r}, which is not among its references")
            add(found)
        pool.AddSerializedFile(file.SerializeToString())

    try:
        add(main)
        return pool.FindFileByName(main.name)
    except SchemaError:
        raise
    except Exception as error:  # TypeError, KeyError, ...
        raise SchemaError(f"its descriptors do not go together: {error}") from error


def _shipped(name: str) -> Any:
    """A file that comes with google.protobuf or with confluent-kafka; None if it does not."""
    for prefix, package in _SHIPPED.items():
        rest = name.removeprefix(prefix)
        if rest != name and _FILE.fullmatch(rest):
            try:
                module = importlib.import_module(package + rest.replace(".proto", "_pb2"))
            except ImportError:
                return None
            file = protobuf_library().descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            return file
    return None


def _heads(
    bodies: pa.LargeBinaryArray, failures: list[tuple[int, str]]
) -> Iterator[tuple[bytes, Rows]]:
    """The message indexes that bodies begin with, as bytes, and the rows of each: there are few."""
    starts, lengths, data = frames.ends_of(bodies)
    left = np.arange(len(bodies))
    while len(left):
        row = int(left[0])
        try:
            size = _indexes(bodies[row].as_py()[: 10 * _MOST_INDEXES])[1]
        except ValueError as error:
            failures.append((row, str(error)))
            left = left[1:]
            continue
        head = data[starts[row] : starts[row] + size]
        is_same = lengths[left] >= size
        at = starts[left[is_same]][:, None] + np.arange(size)
        is_same[is_same] = (data[at] == head).all(axis=1)
        yield head.tobytes(), left[is_same]
        left = left[~is_same]


def _indexes(data: bytes) -> tuple[list[int], int]:
    """The message indexes, and how many bytes they take."""
    count, end = _varint(data, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError(f"it says that it has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, end = _varint(data, end)
        indexes.append(index)
    return indexes or [0], end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("it ends before its message indexes do")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at


def protobuf_library() -> Any:
    """google.protobuf, which is imported only when it is needed."""
    try:
        import google.protobuf
        import google.protobuf.descriptor_pb2
        import google.protobuf.descriptor_pool
    except ImportError as error:
        raise InvalidRequestError(
            "Protobuf needs google.protobuf: pip install 'pylogtable[kafka]'"
        ) from error
    return google.protobuf
