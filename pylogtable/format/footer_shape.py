"""The shape of a Parquet footer that has no checksum, checked before Arrow parses it. Pure.

A footer of an older writer, or of another one, may be damaged without anybody knowing. Some damage
ends the process inside of Arrow, where no exception can be caught: a row group with fewer columns
than the schema, a column of another type, histograms of another length than the levels of their
column. Only these are looked for here. Everything else Arrow refuses by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Thrift's compact protocol: https://github.com/apache/thrift/blob/master/doc/specs
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_I16, _I32, _I64 = 4, 5, 6
_MAX_DEPTH = 32
# After the metadata: its length, and "PAR1".
_END_BYTES = 8

# Field ids of parquet.thrift.
_SCHEMA, _ROW_GROUPS = 2, 4
_TYPE, _REPETITION, _CHILDREN = 1, 3, 5
_COLUMNS, _CHUNK_METADATA = 1, 3
_SIZES, _REPETITION_LEVELS, _DEFINITION_LEVELS = 16, 2, 3
_OPTIONAL, _REPEATED = 1, 2
_UNENCODED_BYTES, _BYTE_ARRAY = 1, 6


class _Leaf(NamedTuple):
    """A column without children: its physical type, and its greatest levels."""

    type: Any
    repetition: int
    definition: int


def shape_fault(footer: bytes) -> str | None:
    """Why Arrow must not be given a file with this footer; None if it may parse it. `footer` is the
    end of the file, from the metadata on, or more of it."""
    length = int.from_bytes(footer[-_END_BYTES:-4], "little")
    if len(footer) < length + _END_BYTES:
        return "its footer is longer than the file"
    try:
        metadata = _Thrift(footer[-length - _END_BYTES : -_END_BYTES]).struct()
        leaves = _leaves(metadata[_SCHEMA])
        for group in metadata[_ROW_GROUPS]:
            chunks = group[_COLUMNS]
            if len(chunks) != len(leaves):
                return f"a row group has {len(chunks)} columns, and the schema {len(leaves)}"
            for chunk, leaf in zip(chunks, leaves, strict=True):
                fault = _chunk_fault(chunk[_CHUNK_METADATA], leaf)
                if fault is not None:
                    return fault
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return f"it is not the metadata of a Parquet file: {type(error).__name__} {error}"
    return None


def _chunk_fault(chunk: dict[int, Any], leaf: _Leaf) -> str | None:
    if chunk[_TYPE] != leaf.type:
        return f"a column has the type {chunk[_TYPE]} in a row group, and {leaf.type} in the schema"
    sizes = chunk.get(_SIZES, {})
    if _UNENCODED_BYTES in sizes and leaf.type != _BYTE_ARRAY:
        return "a column of numbers has a size of texts"
    for at, most in ((_REPETITION_LEVELS, leaf.repetition), (_DEFINITION_LEVELS, leaf.definition)):
        counts = sizes.get(at, [])
        if len(counts) not in (0, most + 1):
            return f"a histogram has {len(counts)} numbers, and its column {most + 1} levels"
        if any(count is not None for count in counts):
            return "a histogram is not of 64-bit numbers"
    return None


def _leaves(schema: list[dict[int, Any]]) -> list[_Leaf]:
    """The columns without children, in order. `schema` lists all nodes, each before its children,
    and begins with the root."""
    found: list[_Leaf] = []
    open_nodes = [(schema[0][_CHILDREN], 0, 0)]
    for node in schema[1:]:
        while open_nodes[-1][0] == 0:
            open_nodes.pop()
        left, repetition, definition = open_nodes[-1]
        open_nodes[-1] = (left - 1, repetition, definition)
        kind = node.get(_REPETITION)
        repetition += kind == _REPEATED
        definition += kind in (_OPTIONAL, _REPEATED)
        if node.get(_CHILDREN):
            open_nodes.append((node[_CHILDREN], repetition, definition))
        else:
            found.append(_Leaf(node[_TYPE], repetition, definition))
    if any(left for left, _, _ in open_nodes):
        raise ValueError("the schema ends too early")
    return found


class _Thrift:
    """Reads values of the compact protocol. A struct is a dict by field id. Only 32-bit integers
    have a value: all that is compared here are such, and Arrow skips a field of another type.
    Raises if the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        fields: dict[int, Any] = {}
        last = 0
        while kind := self._byte():
            delta, kind = kind >> 4, kind & 15
            last = last + delta if delta else self._integer()
            fields[last] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_I16, _I32, _I64):
            number = self._integer()
            return number if kind == _I32 else None
        if kind == _BINARY:
            return self._skip(self._varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._skip(8)
        raise ValueError(f"it has a value of type {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        if size > len(self._data):
            raise ValueError("a list is longer than the footer")
        return [self._value(kind, depth + 1) for _ in range(size)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number has too many bytes")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("it ends too early")
