"""Is an Avro file whole? Pure.

A file has a header and blocks. The header ends with a marker, and so does every block. Decoders do
not check all of it. So we check files first.
"""

from __future__ import annotations

_MAGIC = b"Obj\x01"
_MARKER_SIZE = 16


def is_complete(data: bytes) -> bool:
    """True if header and blocks are complete, and nothing comes after them."""
    try:
        at = _after_header(data)
        marker = data[at : at + _MARKER_SIZE]
        at += _MARKER_SIZE
        while at < len(data):
            _, at = _long(data, at)  # how many records
            size, at = _long(data, at)
            at += _positive(size)
            if data[at : at + _MARKER_SIZE] != marker:
                return False
            at += _MARKER_SIZE
    except (IndexError, ValueError):
        return False
    return at == len(data)


def _after_header(data: bytes) -> int:
    """Where the marker of the header begins."""
    if not data.startswith(_MAGIC):
        raise ValueError
    count, at = _long(data, len(_MAGIC))
    while count:
        if count < 0:  # then the size of these entries follows
            _, at = _long(data, at)
        for _ in range(2 * abs(count)):  # names and values
            if at >= len(data):
                raise ValueError
            size, at = _long(data, at)
            at += _positive(size)
        count, at = _long(data, at)
    return at


def _positive(size: int) -> int:
    if size < 0:
        raise ValueError
    return size


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
