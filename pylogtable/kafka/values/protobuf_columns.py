"""Messages of Protobuf become columns: one field of all messages after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.kafka.values import shapes
from pylogtable.kafka.values.batches import SchemaError

MAX_TYPES = 10_000
#: Field descriptors say their type by these numbers [descriptor.proto, FieldDescriptorProto.Type].
_PLAIN = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),  # uint64
    5: pa.int32(),
    6: pa.decimal128(20, 0),  # fixed64
    7: pa.int64(),  # fixed32
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),  # uint32
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
FREE = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
TIMESTAMP = "google.protobuf.Timestamp"

Objects = Sequence[Any]


@dataclass(frozen=True)
class _Column:
    """`array` makes it of objects of google.protobuf, some of which may be None."""

    type: pa.DataType
    array: Callable[[Objects], pa.Array]


class MessageColumn:
    """The column of one message. Raises SchemaError if it cannot be one."""

    def __init__(self, message: Any) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self.descriptor = message
        self.message_class = GetMessageClass(message)
        self._column = _Columns().of_message(message, ())
        self.type = self._column.type

    def array(self, messages: Objects) -> pa.Array:
        return self._column.array(messages)


class _Columns:
    def __init__(self) -> None:
        self._types_left = MAX_TYPES

    def of_message(self, message: Any, trail: tuple[str, ...]) -> _Column:
        """`trail` are the messages that this is inside of."""
        name = message.full_name
        if name == TIMESTAMP:
            return _Column(shapes.TIMESTAMP, _timestamps)
        if name in WRAPPERS:
            return self._wrapper(message)
        if name in FREE:
            return _Column(pa.string(), _json_texts)
        if name in trail:
            raise SchemaError(
                f"its message {name} contains itself, and a column cannot; import it without "
                "decoding"
            )
        fields = [(part.name, self._field(part, (*trail, name))) for part in message.fields]
        if not fields:
            # All that it says is that it is there.
            return _Column(pa.bool_(), _is_there)
        names = [pa.field(part, column.type) for part, column in fields]

        def array(messages: Objects) -> pa.Array:
            children = [column.array(messages) for _, column in fields]
            mask = pa.array([each is None for each in messages], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=names, mask=mask)

        return _Column(pa.struct(names), array)

    def _wrapper(self, message: Any) -> _Column:
        inside = self._value(message.fields_by_name["value"], ())

        def array(messages: Objects) -> pa.Array:
            return inside.array([None if each is None else each.value for each in messages])

        return _Column(inside.type, array)

    def _field(self, field: Any, trail: tuple[str, ...]) -> _Column:
        """Of messages: this field of theirs."""
        self._types_left -= 1
        if self._types_left < 0:
            raise SchemaError(f"it has more than {MAX_TYPES} fields")
        name = field.name
        if is_repeated(field):
            return self._map(field, trail) if is_map(field) else self._repeated(field, trail)
        value = self._value(field, trail)
        if field.has_presence:

            def if_there(messages: Objects) -> pa.Array:
                return value.array(
                    [
                        getattr(each, name) if each is not None and each.HasField(name) else None
                        for each in messages
                    ]
                )

            return _Column(value.type, if_there)

        def always(messages: Objects) -> pa.Array:
            return value.array([None if each is None else getattr(each, name) for each in messages])

        return _Column(value.type, always)

    def _repeated(self, field: Any, trail: tuple[str, ...]) -> _Column:
        name, value = field.name, self._value(field, trail)
        kind = pa.list_(pa.field("element", value.type))

        def array(messages: Objects) -> pa.Array:
            lists = [() if each is None else getattr(each, name) for each in messages]
            flat = value.array([each for part in lists for each in part])
            return _nested(kind, messages, lists, flat)

        return _Column(kind, array)

    def _map(self, field: Any, trail: tuple[str, ...]) -> _Column:
        name, parts = field.name, field.message_type.fields_by_name
        key, value = self._value(parts["key"], trail), self._value(parts["value"], trail)
        kind = pa.map_(key.type, pa.field("value", value.type))

        def array(messages: Objects) -> pa.Array:
            maps = [() if each is None else getattr(each, name).items() for each in messages]
            pairs = [pair for part in maps for pair in part]
            columns = [
                key.array([one for one, _ in pairs]),
                value.array([other for _, other in pairs]),
            ]
            fields = [kind.key_field, kind.item_field]
            entries = pa.StructArray.from_arrays(columns, fields=fields)
            return _nested(kind, messages, maps, entries)

        return _Column(kind, array)

    def _value(self, field: Any, trail: tuple[str, ...]) -> _Column:
        """Of what a field has, or one of what a repeated field has."""
        if field.type in (_MESSAGE, _GROUP):
            return self.of_message(field.message_type, trail)
        if field.type == _ENUM:
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            return _Column(pa.string(), lambda numbers: _enum(names, numbers))
        kind = _PLAIN[field.type]
        return _Column(kind, lambda objects: pa.array(objects, kind))


def is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # newer ones
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _nested(kind: pa.DataType, messages: Objects, parts: Objects, flat: pa.Array) -> pa.Array:
    """A list or a map with these elements, null where the message is."""
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    is_there = pa.array([each is not None for each in messages], pa.bool_())
    buffers = [is_there.buffers()[1], pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(parts), buffers, children=[flat])


def _enum(names: dict[int, str], numbers: Objects) -> pa.Array:
    """A number that the schema has no name for, as newer writers have it, is its digits."""
    distinct = pa.array(numbers, pa.int32()).dictionary_encode()
    texts = [names.get(number, str(number)) for number in distinct.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(distinct.indices)


def _timestamps(messages: Objects) -> pa.Array:
    seconds = pa.array([None if each is None else each.seconds for each in messages], pa.int64())
    nanos = pa.array([None if each is None else each.nanos for each in messages], pa.int64())
    # Whole seconds first: they say whether it is in range, before anything overflows.
    whole = shapes.timestamp("s").array_of(seconds).cast(pa.int64())
    return pc.add(whole, pc.divide(nanos, 1000)).cast(shapes.TIMESTAMP)


def _json_texts(messages: Objects) -> pa.Array:
    from google.protobuf.json_format import MessageToJson

    texts = [None if each is None else MessageToJson(each, indent=None) for each in messages]
    return pa.array(texts, pa.string())


def _is_there(messages: Objects) -> pa.Array:
    return pa.array([None if each is None else True for each in messages], pa.bool_())
