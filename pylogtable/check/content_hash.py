"""A hash of records that depends only on their values, and not on how they are stored or cut.

Each column has three streams: where its nulls are, the lengths of its texts and lists, and its
values without the nulls. The streams of nested columns are nested in the same way. Each stream has
a hash of its own, which is fed with whole buffers. So batches may be cut anywhere, and what a
buffer holds under a null does not matter. Floats are compared by their bits.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.format.schema import OFFSET

#: Types of texts and bytes, with the type of their offsets in memory.
_TEXTS: dict[pa.DataType, np.dtype[Any]] = {
    **dict.fromkeys((pa.string(), pa.binary()), np.dtype("<i4")),
    **dict.fromkeys((pa.large_string(), pa.large_binary()), np.dtype("<i8")),
}
_LENGTH = np.dtype("<u4")
_POSITION = np.dtype("<i8")


class ContentHash:
    """The hash of record batches with the same columns, in order."""

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self._streams: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        """Continue the hash with these records."""
        for number, column in enumerate(batch.columns):
            self._add(str(number), column)
        self.records += batch.num_rows

    def digest(self) -> bytes:
        """The hash of all records that were added."""
        whole = hashlib.sha256(str(self.records).encode())
        for name in sorted(self._streams):
            whole.update(name.encode() + b"\0" + self._streams[name].digest())
        return whole.digest()

    def _add(self, path: str, array: pa.Array) -> None:
        before = self._counts[path]
        self._counts[path] += len(array)
        if array.null_count:
            nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
            self._feed(f"{path}.nulls", (nulls + before).astype(_POSITION, copy=False))
            array = array.drop_null()
        if not len(array):
            return
        kind = array.type
        if pa.types.is_struct(kind):
            for number in range(kind.num_fields):
                self._add(f"{path}.{number}", array.field(number))
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
            offsets = array.offsets.to_numpy()
            self._feed(f"{path}.lengths", np.diff(offsets).astype(_LENGTH, copy=False))
            parts = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
            for number, part in enumerate(parts):
                self._add(f"{path}.{number}", part.slice(offsets[0], offsets[-1] - offsets[0]))
        elif kind in _TEXTS:
            self._add_texts(path, array)
        else:
            self._add_numbers(path, array)

    def _add_texts(self, path: str, array: pa.Array) -> None:
        width = _TEXTS[array.type]
        _, ends, data = array.buffers()
        offsets = np.frombuffer(ends, width, len(array) + 1, array.offset * width.itemsize)
        self._feed(f"{path}.lengths", np.diff(offsets).astype(_LENGTH, copy=False))
        size = int(offsets[-1] - offsets[0])
        if size:
            self._feed(path, data.slice(int(offsets[0]), size))

    def _add_numbers(self, path: str, array: pa.Array) -> None:
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        width = array.type.bit_width // 8
        self._feed(path, array.buffers()[1].slice(array.offset * width, len(array) * width))

    def _feed(self, stream: str, data: Any) -> None:
        if stream not in self._streams:
            self._streams[stream] = hashlib.sha256()
        self._streams[stream].update(data)
        self.size_bytes += memoryview(data).nbytes


@dataclass
class RangeContent:
    """What a range of offsets of one partition holds. `blocks` has a digest for each block of
    offsets that has records, by its number."""

    records: int = 0
    size_bytes: int = 0
    blocks: dict[int, bytes] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One hash for all blocks, in hexadecimal."""
        whole = hashlib.sha256()
        for number in sorted(self.blocks):
            whole.update(number.to_bytes(8, "little") + self.blocks[number])
        return whole.hexdigest()


class RangeHash:
    """Hashes the records of one partition block by block. They come in offset order."""

    def __init__(self, block_offsets: int) -> None:
        self._block_offsets = block_offsets
        self._content = RangeContent()
        self._block = -1
        self._hash = ContentHash()

    def add(self, batch: pa.RecordBatch) -> None:
        """Continue with these records. `offset` is one of their columns."""
        if not batch.num_rows:
            return
        blocks = batch.column(OFFSET).to_numpy() // self._block_offsets
        cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(cuts):
            if blocks[start] != self._block:
                self._close_block()
                self._block = int(blocks[start])
            self._hash.add(batch.slice(start, end - start))

    def finish(self) -> RangeContent:
        """What was added."""
        self._close_block()
        return self._content

    def _close_block(self) -> None:
        if self._hash.records:
            self._content.blocks[self._block] = self._hash.digest()
            self._content.records += self._hash.records
            self._content.size_bytes += self._hash.size_bytes
            self._hash = ContentHash()


def first_different_block(one: RangeContent, other: RangeContent) -> int | None:
    """The number of the first block in which two ranges differ, or None."""
    numbers = one.blocks.keys() | other.blocks.keys()
    return min((n for n in numbers if one.blocks.get(n) != other.blocks.get(n)), default=None)
