"""JSON objects as bytes: what decodes, and what does not [JSON-1]. Checksums [SUM-1]. Pure.

Python's own errors end here. Bytes from a store may be anything, so whatever is wrong with them is
`UndecodableError`, and `codec` turns it into an error that names the object.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, TypeVar

import msgspec
import numpy as np

from pylogtable.errors import InvalidRequestError

#: An object inside an object is one level deeper.
MAX_NESTING = 100

_MARKS = b'"[]{}'
_NOT_MARKS = bytes(byte for byte in range(256) if byte not in _MARKS)
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_QUOTED = re.compile(rb'"[^"]*"')
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1

_SUM = re.compile(rb',"checksum":"([0-9a-f]{8})"\}')
_SUM_LENGTH = len(b',"checksum":"00000000"}')


class _JustChecksum(msgspec.Struct):
    checksum: Any = msgspec.UNSET


_checksums = msgspec.json.Decoder(_JustChecksum)
_encoder = msgspec.json.Encoder()

Decoded = TypeVar("Decoded")


class UndecodableError(Exception):
    """These bytes are not the JSON object that was expected."""


def encode(stored: msgspec.Struct) -> bytes:
    """Encode an object as JSON. Fields with their default value are left out."""
    try:
        return _encoder.encode(stored)
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{error.object[:60]!r} cannot be stored: it is not valid Unicode text ({error.reason})"
        ) from None
    except (OverflowError, TypeError) as error:
        raise InvalidRequestError(f"a value cannot be stored as JSON: {error}") from None


def encode_summed(stored: msgspec.Struct) -> bytes:
    """Encode an object with a checksum as its last member [SUM-1]."""
    body = encode(stored)[:-1]
    return body + f',"checksum":"{checksum(body)}"}}'.encode()


def checksum(data: bytes) -> str:
    """The CRC-32 of these bytes, as the format writes it."""
    return f"{zlib.crc32(data):08x}"


def has_sum(data: bytes) -> bool:
    """True if an object ends with a checksum, right or wrong."""
    return _SUM.fullmatch(data, max(0, len(data) - _SUM_LENGTH)) is not None


def check_sum(data: bytes) -> None:
    """Raise `UndecodableError` if an object has a checksum that is wrong or out of place. An object
    without one is taken as it is: older writers, and others, write none."""
    found = _SUM.fullmatch(data, len(data) - _SUM_LENGTH) if len(data) > _SUM_LENGTH else None
    if found is not None:
        expected = checksum(data[:-_SUM_LENGTH])
        if found[1].decode() != expected:
            raise UndecodableError(
                f"its checksum is {found[1].decode()}, but its bytes have {expected}"
            )
    elif decode(_checksums, data).checksum is not msgspec.UNSET:
        raise UndecodableError("its checksum is not its last member, or has another form")


def decode(decoder: msgspec.json.Decoder[Decoded], data: bytes) -> Decoded:
    """The object in `data`. Raises `UndecodableError` and nothing else."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            detail = f"byte {error.start} is not UTF-8: {error.reason}"
            raise UndecodableError(detail) from None
    if is_nested_deeper(MAX_NESTING, data):
        raise UndecodableError(f"it is nested more than {MAX_NESTING} levels deep")
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UndecodableError(str(error)) from None


def is_nested_deeper(levels: int, data: bytes) -> bool:
    """True if brackets are nested too deep. Decoders recurse, and how deep they can go depends on
    their caller, so the limit is checked before."""
    if data.count(b"[") + data.count(b"{") <= levels:
        return False
    unescaped = _ESCAPED.sub(b"", data) if b"\\" in data else data
    # Most texts have no brackets: their two quotes are neighbours now.
    brackets = unescaped.translate(None, _NOT_MARKS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = _QUOTED.sub(b"", brackets)
    depths = np.cumsum(_STEPS[np.frombuffer(brackets, dtype=np.uint8)], dtype=np.int64)
    return bool(np.any(depths > levels))
