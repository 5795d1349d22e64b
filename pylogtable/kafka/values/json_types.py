"""What becomes of the types of a JSON Schema: how msgspec reads them, and their columns.

Only types are looked at. What cannot be a column becomes its JSON text: several types at once, an
object without known properties, a schema inside of itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, TypedDict
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from pylogtable.kafka.values import shapes
from pylogtable.kafka.values.batches import SchemaError
from pylogtable.kafka.values.registry import RegisteredSchema
from pylogtable.kafka.values.shapes import Shape

MAX_TYPES = 10_000


class JsonText(str):
    """What a column has instead of a value that has no type."""

    __slots__ = ()


@dataclass(frozen=True)
class JsonType:
    """`read` is the type for msgspec; null is always allowed beside it."""

    read: Any
    shape: Shape
    #: Of an object.
    fields: Mapping[str, JsonType] = field(default_factory=dict)
    #: Of an array or a map.
    element: JsonType | None = None


_TEXT = JsonType(JsonText, shapes.plain(pa.string()))
# JSON Schema takes 1.0 for an integer. Beyond 53 bits it may not be what was written.
_WHOLE = msgspec.Meta(multiple_of=1, ge=-(2**53), le=2**53)
_INTEGER = JsonType(int | Annotated[float, _WHOLE], shapes.plain(pa.int64()))
_NUMBER = JsonType(float, shapes.plain(pa.float64()))
_BOOLEAN = JsonType(bool, shapes.plain(pa.bool_()))
_STRING = JsonType(str, shapes.plain(pa.string()))
_NULL = JsonType(None, shapes.plain(pa.string()))
_FORMATS = {
    "date": JsonType(date, shapes.plain(pa.date32())),
    "date-time": JsonType(
        Annotated[datetime, msgspec.Meta(tz=True)], shapes.plain(pa.timestamp("us", tz="UTC"))
    ),
}
_PLAIN = {"integer": _INTEGER, "number": _NUMBER, "boolean": _BOOLEAN, "null": _NULL}


def to_text(kind: type, value: object) -> JsonText:
    """What msgspec calls for what is read as text."""
    return JsonText(msgspec.json.encode(value).decode())


def type_of(schema: RegisteredSchema) -> JsonType:
    """Raises SchemaError if this is no JSON Schema."""
    try:
        root = json.loads(schema.text)
        others = {name: json.loads(below.text) for name, below in schema.references}
    except ValueError as error:
        raise SchemaError(f"it is no JSON Schema: {error}") from error
    return _Types(others).type_of(root, root, ())


def required_fields(schema: RegisteredSchema) -> dict[str, bool]:
    """Those that an object of this schema must have, and whether the schema says that they may be
    null. Objects inside of it are not looked at."""
    root = json.loads(schema.text)
    if not isinstance(root, dict) or not isinstance(root.get("properties"), dict):
        return {}
    properties = root["properties"]
    return {
        name: _may_be_null(properties[name])
        for name in root.get("required", ())
        if name in properties
    }


def _may_be_null(node: Any) -> bool:
    if not isinstance(node, dict) or not node:
        return node is not False
    kinds = node.get("type", ())
    branches = [*node.get("oneOf", ()), *node.get("anyOf", ())]
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or {"type": "null"} in branches


class _Types:
    def __init__(self, others: Mapping[str, Any]) -> None:
        self._others = others
        self._types_left = MAX_TYPES

    def type_of(self, node: Any, root: Any, trail: tuple[int, ...]) -> JsonType:
        """`root` is the document that `node` is in, `trail` what it is inside of."""
        self._types_left -= 1
        if self._types_left < 0:
            raise SchemaError(f"it has more than {MAX_TYPES} types")
        if not isinstance(node, dict) or id(node) in trail:
            return _TEXT
        trail = (*trail, id(node))
        if isinstance(node.get("$ref"), str):
            return self.type_of(*self._referred(node["$ref"], root), trail)
        for words in ("oneOf", "anyOf"):
            if words in node:
                return self._one_of(node[words], root, trail)
        if "allOf" in node:
            node = self._merged(node, root)
        if "enum" in node or "const" in node:
            return _of_values(node.get("enum", [node.get("const")]))
        return self._of_kind(node, root, trail)

    def _of_kind(self, node: dict[str, Any], root: Any, trail: tuple[int, ...]) -> JsonType:
        kind = node.get("type")
        if isinstance(kind, list):
            kinds = [each for each in kind if each != "null"]
            if set(kinds) == {"integer", "number"}:
                kinds = ["number"]
            kind = kinds[0] if len(kinds) == 1 else ("null" if not kinds else "several")
        if kind is None:
            kind = "object" if "properties" in node else "array" if "items" in node else "any"
        if kind == "object":
            return self._object(node, root, trail)
        if kind == "array":
            if not isinstance(node.get("items"), dict) or "prefixItems" in node:
                return _TEXT
            items = self.type_of(node["items"], root, trail)
            return JsonType(list[items.read | None], shapes.list_of(items.shape), {}, items)  # type: ignore[name-defined]
        if kind == "string":
            return _FORMATS.get(node.get("format", ""), _STRING)
        return _PLAIN.get(kind, _TEXT)

    def _object(self, node: dict[str, Any], root: Any, trail: tuple[int, ...]) -> JsonType:
        properties = node.get("properties")
        if isinstance(properties, dict) and properties:
            fields = {name: self.type_of(part, root, trail) for name, part in properties.items()}
            reads = {name: _or_null(part.read) for name, part in fields.items()}
            shape = shapes.struct([(name, part.shape) for name, part in fields.items()])
            return JsonType(TypedDict("Object", reads, total=False), shape, fields)  # type: ignore[operator]
        values = node.get("additionalProperties")
        if not isinstance(values, dict):
            return _TEXT
        part = self.type_of(values, root, trail)
        shape = shapes.map_of_dicts(shapes.plain(pa.string()), part.shape)
        return JsonType(dict[str, _or_null(part.read)], shape, {}, part)  # type: ignore[misc]

    def _one_of(self, branches: Any, root: Any, trail: tuple[int, ...]) -> JsonType:
        some = [branch for branch in branches if branch != {"type": "null"}]
        if not some:
            return _NULL
        return self.type_of(some[0], root, trail) if len(some) == 1 else _TEXT

    def _merged(self, node: dict[str, Any], root: Any) -> dict[str, Any]:
        """One object with the properties of all."""
        merged = {name: part for name, part in node.items() if name != "allOf"}
        properties = dict(node.get("properties", {}))
        for part in node["allOf"]:
            place = root
            while isinstance(part, dict) and isinstance(part.get("$ref"), str):
                part, place = self._referred(part["$ref"], place)
            if not isinstance(part, dict) or place is not root or "allOf" in part:
                return {}
            properties |= part.get("properties", {})
            merged = {**part, **merged}
        return {**merged, "properties": properties} if properties else merged

    def _referred(self, reference: str, root: Any) -> tuple[Any, Any]:
        """A node, and the document that it is in."""
        address, _, pointer = reference.partition("#")
        if address:
            if address not in self._others:
                raise SchemaError(f"it refers to {address!r}, which is not among its references")
            root = self._others[address]
        node = root
        for part in filter(None, unquote(pointer).split("/")):
            name = part.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name)] if isinstance(node, list) else node[name]
            except (LookupError, TypeError, ValueError) as error:
                raise SchemaError(f"it refers to {reference!r}, which is not there") from error
        return node, root


def _or_null(read: Any) -> Any:
    return read if read is None else read | None


def _of_values(values: list[Any]) -> JsonType:
    """Of an enum. Which values it has is not checked: a later schema may have more."""
    kinds = {type(value) for value in values if value is not None}
    plain = {str: _STRING, bool: _BOOLEAN, int: _INTEGER, float: _NUMBER}
    if not kinds:
        return _NULL
    if kinds == {int, float}:
        return _NUMBER
    return plain.get(kinds.pop(), _TEXT) if len(kinds) == 1 else _TEXT
