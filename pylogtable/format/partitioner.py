"""The partition of a record: Kafka's default partitioner, over whole columns.

- [PART-1] Order of decision: an explicit partition wins; else a record with a key goes to
  `(murmur2(key bytes) & 0x7fffffff) % partitions`; else [PART-5]. The caller handles explicit
  partitions; this module only knows keys.
- [PART-2] murmur2 is Kafka's, bit for bit: seed 0x9747b28c, little-endian words, unsigned bytes.
  An empty key is a key. The sign bit is masked off, which is not `abs`.
- [PART-3] The bytes of a key of one column: string its UTF-8, binary itself; byte, short, integer,
  long, date (days) and timestamp (microseconds) big-endian two's complement in 1, 2, 4, 8, 4, 8
  bytes, as Java's serializers write them; boolean one byte, 0 or 1; decimal 16 bytes big-endian
  two's complement of the unscaled value. Floating-point and nested types cannot be keys.
- [PART-4] The bytes of a key of several columns: for each column in key order the length of its
  part as 4 bytes big-endian, then the part as in [PART-3]; a null part is the length 0xffffffff
  and no bytes. So no two different keys have the same bytes.
- [PART-5] A key is null when all of its columns are. A null key has no hash and no partition
  (`NO_PARTITION` here): the writer spreads such records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.lazy_arrow import pc

#: Stands for "no partition" in arrays of partitions, which cannot hold None.
NO_PARTITION: Final = -1

_Ints: TypeAlias = npt.NDArray[np.int64]
_Hashes: TypeAlias = npt.NDArray[np.uint32]

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_U32: Final = 0xFFFFFFFF
_MAX_BINARY_BYTES: Final = 2**31 - 1
# The length of a null part: 0xffffffff as a signed number [PART-4].
_NULL_LENGTH: Final = -1

# Keys hashed at a time, so that the temporaries stay in the CPU's cache.
_BLOCK: Final = 1 << 15
# All keys are hashed in lockstep up to this many words. Beyond it, only while at least `_CROWD`
# keys are that long: a numpy step for a few keys costs more than plain Python for each of them.
_LOCKSTEP_WORDS: Final = 64
_CROWD: Final = 64
_SCALAR_WORDS: Final = 1 << 16

_TAIL_MASK: Final[_Hashes] = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)
_TAIL_FACTOR: Final[_Hashes] = np.array([1, _M, _M, _M], dtype=np.uint32)

_INTEGER_WIDTH: Final = {
    pa.int8(): 1,
    pa.int16(): 2,
    pa.int32(): 4,
    pa.int64(): 8,
    pa.date32(): 4,
}


def key_bytes(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """The canonical bytes of each row's key, null where the key is null [PART-3] [PART-4].

    A single string or binary column is returned over its own buffers, without a copy.
    """
    if not columns:
        raise InvalidRequestError("a key needs at least one column")
    if len(columns) == 1:
        return _part(columns[0])
    rows = len(columns[0])
    if any(len(column) != rows for column in columns):
        lengths = ", ".join(str(len(column)) for column in columns)
        raise InvalidRequestError(f"the columns of a key differ in length: {lengths}")

    pieces: list[pa.Array] = []
    valid = np.zeros(rows, dtype=np.bool_)
    size = 0
    for column in columns:
        part = _part(column)
        present = _valid(part)
        offsets = _offsets(part)
        part_lengths = np.where(present, np.diff(offsets), _NULL_LENGTH)
        valid |= present
        size += 4 * rows + int(part_lengths[present].sum(dtype=np.int64))
        pieces += [_fixed_width(part_lengths.astype(">i4"), 4, None), part]
    if size > _MAX_BINARY_BYTES:
        raise InvalidRequestError(
            f"the keys of {rows} rows take {size} bytes, more than the {_MAX_BINARY_BYTES} of one "
            "Arrow array: pass fewer rows at a time"
        )
    joined = pc.binary_join_element_wise(
        *pieces, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
    if valid.all():
        return joined
    offsets_buffer, data = joined.buffers()[1:]
    return pa.Array.from_buffers(
        pa.binary(), rows, [_bitmap(valid), offsets_buffer.slice(4 * joined.offset), data]
    )


def murmur2(keys: pa.BinaryArray) -> _Hashes:
    """Kafka's murmur2 of each key [PART-2]. The hash of a null key is meaningless."""
    rows = len(keys)
    out = np.empty(rows, dtype=np.uint32)
    if not rows:
        return out
    offsets = _offsets(keys)
    buffer = keys.buffers()[2]
    data = np.frombuffer(buffer if buffer is not None else b"", dtype=np.uint8)
    if data.size < 4:
        data = np.concatenate([data, np.zeros(4, dtype=np.uint8)])
    for first in range(0, rows, _BLOCK):
        last = min(first + _BLOCK, rows)
        _hash_block(data, offsets[first : last + 1].astype(np.int64), out[first:last])
    return out


def partition_for(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key, `NO_PARTITION` where the key is null [PART-1] [PART-5]."""
    if not 1 <= partitions < 2**31:
        raise InvalidRequestError(f"a topic has at least one partition, not {partitions}")
    hashes = murmur2(keys)
    hashes &= np.uint32(0x7FFFFFFF)
    hashes %= np.uint32(partitions)
    result = hashes.view(np.int32)
    if keys.null_count:
        result[~_valid(keys)] = NO_PARTITION
    return result


def _hash_block(data: npt.NDArray[np.uint8], offsets: _Ints, out: _Hashes) -> None:
    """Hash the keys between `offsets` of `data`, which holds at least four bytes."""
    starts = offsets[:-1]
    lengths = np.diff(offsets)
    width = int(lengths[0])
    if width <= 4 * _LOCKSTEP_WORDS and bool((lengths == width).all()):
        _hash_equal_widths(data, int(starts[0]), width, out)
    else:
        _hash_mixed_widths(data, starts, lengths, out)
    _xor_shift(out, 13)
    out *= np.uint32(_M)
    _xor_shift(out, 15)


def _hash_equal_widths(
    data: npt.NDArray[np.uint8], start: int, width: int, hashes: _Hashes
) -> None:
    """Keys of one width lie at a constant stride, so no gather is needed."""
    hashes[:] = _SEED ^ width
    tail = width & ~3
    for position in range(start, start + tail, 4):
        words = np.ndarray(hashes.shape, "<u4", data, position, (width,))
        _mix(hashes, words.astype(np.uint32))
    for i in range(width & 3):
        column = np.ndarray(hashes.shape, np.uint8, data, start + tail + i, (width,))
        hashes ^= column.astype(np.uint32) << np.uint32(8 * i)
    if width & 3:
        hashes *= np.uint32(_M)


def _hash_mixed_widths(
    data: npt.NDArray[np.uint8], starts: _Ints, lengths: _Ints, out: _Hashes
) -> None:
    """Keys are sorted by length, so those with more words to mix are always a suffix."""
    words_of_key = lengths >> 2
    # The narrower type makes the stable sort a radix sort.
    sortable = words_of_key.astype(np.min_scalar_type(int(words_of_key.max())))
    order = np.argsort(sortable, kind="stable")
    words_of_key = words_of_key[order]
    lengths = lengths[order]
    position = starts[order]
    tail = position + (words_of_key << 2)
    hashes = lengths.astype(np.uint32)
    hashes ^= np.uint32(_SEED)

    # Every position of `data` seen as a word, aligned or not.
    word_at = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))
    crowd = int(words_of_key[-_CROWD]) if len(words_of_key) >= _CROWD else 0
    steps = min(max(_LOCKSTEP_WORDS, crowd), int(words_of_key[-1]))
    suffixes = np.searchsorted(words_of_key, np.arange(steps + 1), side="right").tolist()
    for suffix in suffixes[:-1]:
        _mix(hashes[suffix:], word_at[position[suffix:]])
        position[suffix:] += 4
    for i in range(suffixes[-1], len(hashes)):
        hashes[i] = _mix_one(data[position[i] : tail[i]], int(hashes[i]))

    # The word at the tail, or the buffer's last word with what precedes the tail shifted out.
    readable = np.minimum(tail, data.size - 4)
    tail_words = word_at[readable]
    tail_words >>= ((tail - readable) << 3).astype(np.uint32)
    rest = lengths & 3
    tail_words &= _TAIL_MASK[rest]
    hashes ^= tail_words
    hashes *= _TAIL_FACTOR[rest]
    out[order] = hashes


def _mix(hashes: _Hashes, words: _Hashes) -> None:
    words *= np.uint32(_M)
    _xor_shift(words, 24)
    words *= np.uint32(_M)
    hashes *= np.uint32(_M)
    hashes ^= words


def _mix_one(words: npt.NDArray[np.uint8], start: int) -> int:
    """Mix a single long key; only the recurrence itself is a Python loop."""
    result = start
    for first in range(0, len(words), 4 * _SCALAR_WORDS):
        block = words[first : first + 4 * _SCALAR_WORDS].view("<u4").astype(np.uint32)
        block *= np.uint32(_M)
        _xor_shift(block, 24)
        block *= np.uint32(_M)
        for word in block.tolist():
            result = (result * _M & _U32) ^ word
    return result


def _xor_shift(values: _Hashes, bits: int) -> None:
    values ^= values >> np.uint32(bits)


def _part(column: pa.Array) -> pa.BinaryArray:
    """The bytes of one key column [PART-3]."""
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind):
        return pa.Array.from_buffers(
            pa.binary(), len(column), column.buffers(), column.null_count, column.offset
        )
    width = 8 if pa.types.is_timestamp(kind) and kind.unit == "us" else _INTEGER_WIDTH.get(kind, 0)
    if width:
        values = _values(column, f"=i{width}").astype(f">i{width}")
    elif pa.types.is_boolean(kind):
        values = _bits(column.buffers()[1], column.offset, len(column)).view(np.uint8)
        width = 1
    elif pa.types.is_decimal128(kind):
        values = _values(column, "V16").view(np.uint8).reshape(-1, 16)[:, ::-1]
        width = 16
    else:
        raise InvalidRequestError(
            f"a key column cannot be of type {kind}: use string, binary, an integer, boolean, "
            "date, timestamp in microseconds or decimal"
        )
    return _fixed_width(values, width, _valid(column) if column.null_count else None)


def _fixed_width(
    values: npt.NDArray[np.generic], width: int, valid: npt.NDArray[np.bool_] | None
) -> pa.BinaryArray:
    rows = len(values)
    if rows * width > _MAX_BINARY_BYTES:
        raise InvalidRequestError(
            f"the keys of {rows} rows do not fit one Arrow array: pass fewer rows at a time"
        )
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(values).view(np.uint8)
    return pa.Array.from_buffers(
        pa.binary(),
        rows,
        [None if valid is None else _bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)],
    )


def _values(column: pa.Array, dtype: str) -> npt.NDArray[np.generic]:
    width = np.dtype(dtype).itemsize
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.empty(0, dtype=dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * width)


def _offsets(keys: pa.BinaryArray) -> npt.NDArray[np.int32]:
    buffer = keys.buffers()[1]
    if buffer is None or not len(keys):
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, np.int32, len(keys) + 1, keys.offset * 4)


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    buffer = column.buffers()[0]
    if buffer is None:
        return np.ones(len(column), dtype=np.bool_)
    return _bits(buffer, column.offset, len(column))


def _bits(buffer: pa.Buffer | None, offset: int, count: int) -> npt.NDArray[np.bool_]:
    if buffer is None or not count:
        return np.zeros(count, dtype=np.bool_)
    first = offset >> 3
    packed = np.frombuffer(buffer, np.uint8, ((offset + count + 7) >> 3) - first, first)
    skip = offset & 7
    unpacked = np.unpackbits(packed, bitorder="little")[skip : skip + count]
    return unpacked.view(np.bool_)


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
