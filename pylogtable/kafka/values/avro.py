"""Values in Avro, read by fastavro.

fastavro gets a schema of our own, which reads the same bytes: without logical types, since whole
columns are turned faster than objects; with each branch of a union in a record, so that the object
says which branch it was; and with a map as an array of pairs. It reads a batch of values in one
call, as one array of Avro.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.values import shapes
from pylogtable.kafka.values.batches import Found, SchemaError, decode
from pylogtable.kafka.values.registry import RegisteredSchema
from pylogtable.kafka.values.shapes import Shape

#: More types in one schema are refused: records that have the next record twice make millions.
MAX_TYPES = 10_000
_GUARD_BYTES = 8
_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_FIXED_BYTES = {"float": 4, "double": 8}
_TIMES = {
    "timestamp-millis": ("ms", True),
    "timestamp-micros": ("us", True),
    "timestamp-nanos": ("ns", True),
    "local-timestamp-millis": ("ms", False),
    "local-timestamp-micros": ("us", False),
    "local-timestamp-nanos": ("ns", False),
}


@dataclass(frozen=True)
class AvroType:
    """A type of the writer: as it is read, as a column, and the fewest bytes that it takes."""

    read: Any
    shape: Shape
    fewest_bytes: int
    fields: tuple[tuple[str, AvroType], ...] = ()


class AvroFormat:
    """Values of one writer's schema. Raises SchemaError if they cannot become columns."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._avro = avro_library()
        parsed, named = parse(schema)
        top = readable(parsed, named)
        self.type = top.shape.final
        self._is_record = pa.types.is_struct(top.shape.final)
        self._has_fields = bool(top.fields)
        fields = top.fields or (("value", top),)
        names = [name for name, _ in fields]
        guard = next(name for n in itertools.count() if (name := f"guard{n}") not in names)
        guard_type = {"type": "fixed", "name": "Guard", "size": _GUARD_BYTES}
        read = [(name, part.read) for name, part in fields]
        self._alone = self._avro.parse_schema(_record("Item", read))
        item = _record("Item", [*read, (guard, guard_type)])
        self._schema = self._avro.parse_schema({"type": "array", "items": item})
        self._shape = shapes.struct(
            [*((name, part.shape) for name, part in fields), (guard, shapes.plain(pa.binary()))]
        )

    def decode(self, bodies: pa.LargeBinaryArray, header_rest: bytes | None) -> Found:
        return decode(bodies, self._convert, self._is_record)

    def _convert(self, bodies: pa.LargeBinaryArray) -> pa.Array:
        """A guard follows each value. So a value that is too long or too short is noticed, even if
        another one makes up for it. Nobody can write the guard into a value: it is made of all of
        them."""
        if len(bodies) == 1:
            self._check_end(_joined(bodies))
        guard = hashlib.blake2b(_joined(bodies), digest_size=_GUARD_BYTES).digest()
        guarded = pc.binary_join_element_wise(
            bodies, pa.scalar(guard, pa.large_binary()), pa.scalar(b"", pa.large_binary())
        )
        stream = io.BytesIO(b"".join((_long(len(bodies)), _joined(guarded), b"\0")))
        objects = self._avro.schemaless_reader(stream, self._schema, None)
        items = self._shape.array(objects)
        *columns, guards = items.flatten()
        if len(items) != len(bodies) or stream.read(1) or not _all_equal(guards, guard):
            raise ValueError("one of them is too long, another one too short")
        if not self._has_fields:
            return columns[0]
        return pa.StructArray.from_arrays(columns, fields=list(items.type)[:-1])

    def _check_end(self, body: memoryview) -> None:
        """For a better reason than that the guard is not where it should be."""
        stream = io.BytesIO(body)
        self._avro.schemaless_reader(stream, self._alone, None)
        if stream.read(1):
            raise ValueError("its bytes go on after its last field")


def readable(parsed: Any, named: dict[str, Any]) -> AvroType:
    """How values of a parsed schema are read. Raises SchemaError if they cannot be columns."""
    return _Types(named).type_of(parsed, ())


class _Types:
    """What becomes of the types of one schema. `named` are its records, enums and fixed types."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._numbers = itertools.count()
        self._types_left = MAX_TYPES

    def type_of(self, schema: Any, trail: tuple[str, ...]) -> AvroType:
        """`trail` are the records that this is inside of."""
        self._types_left -= 1
        if self._types_left < 0:
            raise SchemaError(f"it has more than {MAX_TYPES} fields and types")
        if isinstance(schema, list):
            return self._union(schema, trail)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, str):
            return self._plain(schema)
        kind = schema["type"]
        if isinstance(kind, list | dict) or kind in self._named:
            return self.type_of(kind, trail)
        made = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": self._map,
        }.get(kind)
        if made is not None:
            return made(schema, trail)
        if kind == "enum":
            read = {"type": "enum", "name": self._name(), "symbols": schema["symbols"]}
            return AvroType(read, shapes.plain(pa.string()), 1)
        if kind == "fixed":
            read = {"type": "fixed", "name": self._name(), "size": schema["size"]}
            return AvroType(read, _logical(schema), schema["size"])
        return AvroType(kind, _logical(schema), self._plain(kind).fewest_bytes)

    def _name(self) -> str:
        """fastavro refuses a name that comes twice."""
        return f"T{next(self._numbers)}"

    def _plain(self, kind: str) -> AvroType:
        if kind == "null":
            # A topic has no type for it. Nothing is lost: what it says is in the schema.
            return AvroType("null", shapes.plain(pa.string()), 0)
        if kind not in _PLAIN:
            raise SchemaError(f"its type {kind!r} is unknown")
        return AvroType(kind, shapes.plain(_PLAIN[kind]), _FIXED_BYTES.get(kind, 1))

    def _record(self, schema: dict[str, Any], trail: tuple[str, ...]) -> AvroType:
        name = schema["name"]
        if name in trail:
            raise SchemaError(
                f"its record {name!r} contains itself, and a column cannot; import it without "
                "decoding"
            )
        fields = tuple(
            (each["name"], self.type_of(each["type"], (*trail, name))) for each in schema["fields"]
        )
        if not fields:
            raise SchemaError(f"its record {name!r} has no fields, and a column needs one")
        return self._made_record(fields)

    def _made_record(self, fields: tuple[tuple[str, AvroType], ...]) -> AvroType:
        read = _record(self._name(), [(name, part.read) for name, part in fields])
        shape = shapes.struct([(name, part.shape) for name, part in fields])
        return AvroType(read, shape, sum(part.fewest_bytes for _, part in fields), fields)

    def _array(self, schema: dict[str, Any], trail: tuple[str, ...]) -> AvroType:
        items = self.type_of(schema["items"], trail)
        if not items.fewest_bytes:
            # A damaged number of items would then be believed, however large it is.
            raise SchemaError("it has an array of items that take no bytes")
        return AvroType({"type": "array", "items": items.read}, shapes.list_of(items.shape), 1)

    def _map(self, schema: dict[str, Any], trail: tuple[str, ...]) -> AvroType:
        values = self.type_of(schema["values"], trail)
        entry = _record(self._name(), [("key", "string"), ("value", values.read)])
        shape = shapes.map_of(shapes.plain(pa.string()), values.shape)
        return AvroType({"type": "array", "items": entry}, shape, 1)

    def _union(self, schema: list[Any], trail: tuple[str, ...]) -> AvroType:
        """As `from_avro` of Spark does it."""
        branches = [None if each == "null" else self.type_of(each, trail) for each in schema]
        some = [branch for branch in branches if branch is not None]
        if not some:
            return AvroType(schema, shapes.plain(pa.string()), 1)
        reads = [branch.read for branch in some]
        finals = {branch.shape.final for branch in some}
        joined = _WIDER.get(frozenset(map(str, finals))) if len(some) == 2 else None
        if len(some) == 1:
            shape = some[0].shape
        elif joined is not None and all(isinstance(read, str) for read in reads):
            shape = shapes.plain(joined)
        else:
            members = [(f"member{number}", branch) for number, branch in enumerate(some)]
            shape = shapes.struct([(name, branch.shape) for name, branch in members])
            reads = [_record(self._name(), [(name, branch.read)]) for name, branch in members]
        rest = iter(reads)
        return AvroType(["null" if b is None else next(rest) for b in branches], shape, 1)


_WIDER = {
    frozenset(("int32", "int64")): pa.int64(),
    frozenset(("float", "double")): pa.float64(),
}


def parse(schema: RegisteredSchema) -> tuple[Any, dict[str, Any]]:
    """The schema as fastavro has it, and the named types in it and in its references."""
    avro = avro_library()
    named: dict[str, Any] = {}
    try:
        for _, reference in schema.references:
            avro.parse_schema(json.loads(reference.text), named_schemas=named)
        parsed = avro.parse_schema(json.loads(schema.text), named_schemas=named)
    except Exception as error:  # of many classes
        raise SchemaError(f"it is no schema of Avro: {error}") from error
    return parsed, named


def _logical(schema: dict[str, Any]) -> Shape:
    """What Avro does not know, or what is wrong in itself, is its plain type [Avro: Logical
    Types]."""
    kind, logical = schema["type"], schema.get("logicalType")
    size = schema.get("size")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision:
            if precision > 38:
                raise SchemaError(f"its decimal({precision},{scale}) has more than 38 digits")
            if precision > 0:
                return shapes.decimal(precision, scale, size)
    if logical == "uuid" and kind == "fixed" and size == 16:
        return shapes.uuid()
    if logical == "date" and kind == "int":
        return shapes.date()
    if logical in _TIMES and kind == "long":
        return shapes.timestamp(*_TIMES[logical])
    return shapes.plain(pa.binary() if kind == "fixed" else _PLAIN[kind])


def _record(name: str, fields: list[tuple[str, Any]]) -> dict[str, Any]:
    parts = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": parts}


def _joined(values: pa.LargeBinaryArray) -> memoryview:
    """The bytes of all values."""
    _, offsets, data = values.buffers()
    if data is None:
        return memoryview(b"")
    ends = memoryview(offsets).cast("q")
    return memoryview(data)[ends[values.offset] : ends[values.offset + len(values)]]


def _all_equal(values: pa.Array, wanted: bytes) -> bool:
    return bool(pc.all(pc.equal(values, pa.scalar(wanted, pa.binary()))).as_py())


def _long(number: int) -> bytes:
    """A number as Avro writes it: zigzag, seven bits to a byte."""
    number *= 2
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def avro_library() -> Any:
    """fastavro, which is imported only when it is needed."""
    try:
        import fastavro
    except ImportError as error:
        raise InvalidRequestError("Avro needs fastavro: pip install 'pylogtable[kafka]'") from error
    return fastavro
