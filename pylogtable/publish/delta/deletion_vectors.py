"""Deletion vectors of Delta: which rows of a file a table hides, as its protocol writes them.

A small vector is in the log itself. Larger ones of a publication are together in one object.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from zlib import crc32

from pylogtable.publish.columns import guid
from pylogtable.publish.roaring import Numbers, from_bytes, to_bytes
from pylogtable.publish.table import damaged
from pylogtable.storage.base import ObjectStore

VECTORS_DIR = "_delta_vectors/"
#: A vector that is larger is not in the log, nor are those of a publication that are larger
#: together: the log and its checkpoints are read as a whole.
INLINE_BYTES = 512
INLINE_TOTAL_BYTES = 4096

_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_NAME = re.compile(rf"{VECTORS_DIR}deletion_vector_[0-9a-f-]{{36}}\.bin")
#: A UUID in base 85.
_UUID_DIGITS = 20

#: What an `add` or a `remove` says about the vector of its file.
Descriptor = dict[str, Any]


def is_vectors(key: str) -> bool:
    """True if this is an object of vectors that we wrote."""
    return _NAME.fullmatch(key) is not None


def object_of_vector(descriptor: Mapping[str, Any]) -> str | None:
    """The object that has a vector; None if the log has it."""
    kind, place = descriptor["storageType"], str(descriptor["pathOrInlineDv"])
    if kind == "i":
        return None
    if kind != "u":
        raise ValueError(f"a deletion vector has the storage type {kind!r}")
    folder = place[:-_UUID_DIGITS]
    name = f"deletion_vector_{guid(_from_base85(place[-_UUID_DIGITS:]).hex())}.bin"
    return f"{folder}/{name}" if folder else name


@dataclass
class VectorReader:
    """Reads vectors of the topic at the root of `store`. Objects of the last read are known."""

    store: ObjectStore
    _objects: dict[str, bytes] = field(default_factory=dict)

    def read(self, descriptors: Mapping[str, Mapping[str, Any]]) -> dict[str, Numbers]:
        """The rows in these vectors, each with what it belongs to."""
        places = {name: object_of_vector(of) for name, of in descriptors.items()}
        missing = sorted({p for p in places.values() if p is not None and p not in self._objects})
        for key, data in zip(missing, self.store.read_many(missing), strict=True):
            if data is None:
                raise damaged(key, "it is missing", "PUB-9")
            self._objects[key] = data
        self._objects = {p: self._objects[p] for p in places.values() if p is not None}
        return {name: self._rows(of, places[name]) for name, of in descriptors.items()}

    def _rows(self, descriptor: Mapping[str, Any], key: str | None) -> Numbers:
        size = int(descriptor["sizeInBytes"])
        if key is None:
            data = _from_base85(descriptor["pathOrInlineDv"])[:size]
        else:
            at = int(descriptor["offset"])
            framed = self._objects[key][at : at + size + 8]
            data = framed[4:-4]
            frame = struct.pack(">I", size), struct.pack(">I", crc32(data))
            if (framed[:4], framed[-4:]) != frame:
                raise damaged(key, f"the vector at byte {at} is not what was written", "PUB-9")
        try:
            if data[:4] != _MAGIC:
                raise ValueError("it does not begin as one")
            rows = from_bytes(data[4:])
        except ValueError as error:
            raise damaged(key or "_delta_log/", f"a vector is damaged: {error}", "PUB-9") from error
        if len(rows) != descriptor["cardinality"]:
            raise damaged(key or "_delta_log/", "a vector has another number of rows", "PUB-9")
        return rows


def write_vectors(
    store: ObjectStore, rows: Mapping[str, Numbers], publish_id: str
) -> dict[str, Descriptor]:
    """Write the vectors of a publication, if they are not small. Returns their descriptors."""
    bodies = {name: _MAGIC + to_bytes(one) for name, one in rows.items()}
    sizes = [len(body) for body in bodies.values()]
    if max(sizes, default=0) <= INLINE_BYTES and sum(sizes) <= INLINE_TOTAL_BYTES:
        return {
            name: {
                "storageType": "i",
                "pathOrInlineDv": _to_base85(body + bytes(-len(body) % 4)),
                "sizeInBytes": len(body),
                "cardinality": len(rows[name]),
            }
            for name, body in bodies.items()
        }
    object_id = sha256(publish_id.encode()).digest()[:16]
    place = VECTORS_DIR.rstrip("/") + _to_base85(object_id)
    data = bytearray(_VERSION)
    descriptors = {}
    for name, body in bodies.items():
        descriptors[name] = {
            "storageType": "u",
            "pathOrInlineDv": place,
            "offset": len(data),
            "sizeInBytes": len(body),
            "cardinality": len(rows[name]),
        }
        data += struct.pack(">I", len(body)) + body + struct.pack(">I", crc32(body))
    store.write(f"{VECTORS_DIR}deletion_vector_{guid(object_id.hex())}.bin", bytes(data))
    return descriptors


def remove_vectors(store: ObjectStore) -> int:
    """Remove all objects of vectors, when the table is gone. Returns how many there were."""
    mine = [info.key for info in store.list(VECTORS_DIR) if is_vectors(info.key)]
    if mine:
        store.delete_many(mine)
        store.remove_empty_folders(VECTORS_DIR)
    return len(mine)


def objects_of(descriptors: Iterable[Mapping[str, Any]]) -> set[str]:
    """The objects that have these vectors."""
    return {key for one in descriptors if (key := object_of_vector(one)) is not None}


def _to_base85(data: bytes) -> str:
    """Base 85 with the digits of ZeroMQ, for a number of bytes that 4 divides."""
    digits: list[str] = []
    for (value,) in struct.iter_unpack(">I", data):
        block = []
        for _ in range(5):
            value, digit = divmod(value, 85)
            block.append(_DIGITS[digit])
        digits += reversed(block)
    return "".join(digits)


def _from_base85(text: str) -> bytes:
    if len(text) % 5 or not set(text) <= _VALUES.keys():
        raise ValueError(f"{text!r} is not base 85")
    data = bytearray()
    for at in range(0, len(text), 5):
        value = 0
        for digit in text[at : at + 5]:
            value = value * 85 + _VALUES[digit]
        data += struct.pack(">Q", value)[4:]
    return bytes(data)
