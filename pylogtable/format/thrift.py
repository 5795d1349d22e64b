"""Reading Thrift's compact protocol, in which Parquet writes its metadata. Pure.

https://github.com/apache/thrift/blob/master/doc/specs has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _SET = 1, 2, 3, 7, 8, 10
_I16 = 4
I32, I64, LIST, STRUCT = 5, 6, 9, 12
_MAX_DEPTH = 32


class Thrift:
    """Reads values from `at` on. Raises LookupError or ValueError if the bytes end too early or
    are something else."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self.at = data, at

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """A struct as a dict by field id. Only 32-bit integers have a value: all that is compared
        are such, and Arrow skips a field of another type."""
        if depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        fields: dict[int, Any] = {}
        for field, kind in self.fields():
            fields[field] = self.value(kind, depth)
        return fields

    def fields(self) -> Iterator[tuple[int, int]]:
        """Field id and type of each field of a struct. The caller reads its value before it goes
        on, with `value` or piece by piece."""
        last = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            last = last + delta if delta else self.integer()
            yield last, kind

    def value(self, kind: int, depth: int = 0) -> Any:
        """The value of a field. A boolean is in the type of its field."""
        return kind == _TRUE if kind in (_TRUE, _FALSE) else self._item(kind, depth)

    def list_head(self) -> tuple[int, int]:
        """How many items a list has, and their type."""
        head = self._byte()
        size, kind = head >> 4, head & 15
        size = self._varint() if size == 15 else size
        if size > len(self._data):
            raise ValueError("a list is longer than the footer")
        return size, kind

    def integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _item(self, kind: int, depth: int) -> Any:
        if kind in (_I16, I32, I64):
            number = self.integer()
            return number if kind == I32 else None
        if kind == _BINARY:
            return self._skip(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, _SET):
            size, kind = self.list_head()
            return [self._item(kind, depth + 1) for _ in range(size)]
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._skip(8)
        raise ValueError(f"it has a value of type {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

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

    def _skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise ValueError("it ends too early")


def integer_bytes(value: int) -> bytes:
    """An integer as Thrift writes it: a zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


def field_head(field: int, after: int, kind: int) -> bytes:
    """The head of a field that comes after the field `after`."""
    delta = field - after
    return bytes([delta << 4 | kind]) if 0 < delta < 16 else bytes([kind]) + integer_bytes(field)
