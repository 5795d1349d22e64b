"""The split-block Bloom filters of a Parquet file. pyarrow cannot read them, and older versions of
it cannot write them. Those that are made here have the same bits as pyarrow's.

A filter only saves work. If anything is not understood here (an algorithm, a hash, a compression, a
damaged header, a type whose Parquet form depends on the writer), the answer is "may contain".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.thrift import I32, Thrift, field_head, integer_bytes
from pylogtable.lazy_arrow import pc

_Hashes: TypeAlias = npt.NDArray[np.uint64]
_Rows: TypeAlias = npt.NDArray[np.intp]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_LANES: Final[_Hashes] = np.array(
    [0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579], dtype=np.uint64
)
_STRIPE: Final = 32

_SALT: Final[npt.NDArray[np.uint32]] = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    dtype=np.uint32,
)
_BLOCK_BYTES: Final = 32
_HEADER_BYTES: Final = 17
# Hashing takes a step of numpy for every 32 bytes of the longest value.
_LONGEST: Final = 16 << 10

# How the header encodes BLOCK, XXHASH and UNCOMPRESSED: a union with its first, empty member.
_FIRST_CHOICE: Final[dict[int, Any]] = {1: {}}
# The rest of a header, after its size: these three, and the end.
_HEADER_HEAD: Final = field_head(1, 0, I32)
_USUAL_CHOICES: Final = dict.fromkeys((2, 3, 4), _FIRST_CHOICE)
_HEADER_REST: Final = bytes.fromhex("1c1c00001c1c00001c1c000000")


def filter_bytes(values: int, fpp: float) -> int:
    """The size in a file of a filter for this many distinct values, header included."""
    return _bitset_bytes(values, fpp) + _HEADER_BYTES


def _bitset_bytes(values: int, fpp: float) -> int:
    """A power of two, as pyarrow has it."""
    bits = -8 * max(1, values) / math.log(1 - fpp ** (1 / 8))
    return max(_BLOCK_BYTES, 1 << math.ceil(math.log2(bits / 8)))


def can_filter(kind: pa.DataType) -> bool:
    """True if `make_filter` can make a filter of a column of this type."""
    return plain_bytes(pa.array([], kind)) is not None


def make_filter(values: Iterable[pa.Array], fpp: float) -> bytes | None:
    """A filter of these values, header included, as large as the distinct ones need. None if one is
    so long that hashing it would take long."""
    hashes = [np.empty(0, dtype=np.uint64)]
    for chunk in values:
        plain = plain_bytes(chunk.drop_null())
        if plain is None or (pc.max(pc.binary_length(plain)).as_py() or 0) > _LONGEST:
            return None
        hashes.append(xxh64(plain))
    ordered = np.sort(np.concatenate(hashes))  # np.unique takes ten times as long
    distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    size = _bitset_bytes(len(distinct), fpp)
    words = np.zeros((size // _BLOCK_BYTES, 8), dtype="<u4")
    if len(distinct):
        # Blocks are in the order of the hashes, so hashes of one block lie side by side.
        block = _block_of(distinct, len(words))
        first = np.flatnonzero(np.diff(block, prepend=-1))
        bits = np.uint32(1) << _bits_of(distinct)
        words[block[first]] = np.bitwise_or.reduceat(bits, first, axis=0)
    return _HEADER_HEAD + integer_bytes(size) + _HEADER_REST + words.tobytes()


def filter_lengths(data: bytes, count: int) -> list[int] | None:
    """The length of each of the `count` filters that these bytes begin with, header included. None
    if there is anything else in between."""
    lengths = []
    at = 0
    for _ in range(count):
        try:
            header, start = _header(data, at)
        except (IndexError, ValueError):
            return None
        size = header.get(1)
        if not isinstance(size, int) or size <= 0:
            return None
        lengths.append(start - at + size)
        at = start + size
    return lengths if at <= len(data) else None


def plain_bytes(column: pa.Array) -> pa.BinaryArray | None:
    """The values in Parquet's PLAIN encoding, which is what a filter hashes.

    None if there is no filter or the encoding is not certain: boolean columns have no filter, and
    a writer may store a decimal as bytes or as an integer.
    """
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind):
        buffers = column.buffers()
    elif pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return plain_bytes(column.cast(pa.int32()))
    elif pa.types.is_int32(kind) or pa.types.is_date32(kind):
        buffers = _over_fixed_width(column, 4)
    elif pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        buffers = _over_fixed_width(column, 8)
    else:
        buffers = None
    if buffers is None:
        return None
    return pa.Array.from_buffers(
        pa.binary(), len(column), buffers, column.null_count, column.offset
    )


def xxh64(values: pa.BinaryArray) -> _Hashes:
    """XXH64 with seed 0 of each value. The hash of a null means nothing.

    It takes one numpy step for every 32 bytes of the longest value.
    """
    rows = len(values)
    if not rows:
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, rows + 1, 4 * values.offset).astype(np.int64)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    if data.size < 8:
        data = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    # Views that read a word at every position of `data`, aligned or not.
    long_at = np.ndarray((data.size - 7,), "<u8", data, 0, (1,))
    int_at = np.ndarray((data.size - 3,), "<u4", data, 0, (1,))

    position = offsets[:-1].copy()
    end = offsets[1:]
    lengths = end - position
    hashes = np.full(rows, _P5, dtype=np.uint64)
    striped = np.flatnonzero(lengths >= _STRIPE)
    if striped.size:
        hashes[striped] = _stripes(long_at, position[striped], lengths[striped] // _STRIPE)
        position[striped] += lengths[striped] // _STRIPE * _STRIPE
    hashes += lengths.astype(np.uint64)

    def take(width: int) -> _Rows:
        """The rows that have `width` bytes left; moves their position past these bytes."""
        left = np.flatnonzero(end - position >= width)
        position[left] += width
        return left

    for _ in range(3):
        left = take(8)
        word = _round(np.zeros(left.size, dtype=np.uint64), long_at[position[left] - 8])
        hashes[left] = _rotl(hashes[left] ^ word, 27) * _P1 + _P4
    left = take(4)
    word = int_at[position[left] - 4].astype(np.uint64) * _P1
    hashes[left] = _rotl(hashes[left] ^ word, 23) * _P2 + _P3
    for _ in range(3):
        left = take(1)
        word = data[position[left] - 1].astype(np.uint64) * _P5
        hashes[left] = _rotl(hashes[left] ^ word, 11) * _P1

    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def may_contain(filter_bytes: bytes, hashes: _Hashes) -> npt.NDArray[np.bool_]:
    """For each hash, False if its value is certainly not in the column chunk.

    `filter_bytes` are the bytes at the chunk's `bloom_filter_offset`: the header, then the bitset.
    """
    blocks = _blocks(filter_bytes)
    if blocks is None:
        return np.ones(len(hashes), dtype=np.bool_)
    words = blocks[_block_of(hashes, len(blocks))]
    return np.asarray((words >> _bits_of(hashes) & np.uint32(1)).all(axis=1))


def _block_of(hashes: _Hashes, blocks: int) -> _Rows:
    block = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    return block.astype(np.intp)


def _bits_of(hashes: _Hashes) -> npt.NDArray[np.uint32]:
    """The bit of each hash in each of the eight words of its block."""
    return (hashes.astype(np.uint32)[:, None] * _SALT) >> np.uint32(27)


def _over_fixed_width(column: pa.Array, width: int) -> list[pa.Buffer | None] | None:
    """Buffers of a binary array over fixed-width values, which are PLAIN in Arrow already.

    None if the offsets would not fit; a slice keeps its position in the buffers of the whole.
    """
    count = column.offset + len(column) + 1
    if count * width >= 2**31:
        return None
    offsets = np.arange(0, count * width, width, dtype=np.int32)
    validity, data = column.buffers()
    return [validity, pa.py_buffer(offsets), data]


def _stripes(
    long_at: _Hashes, position: npt.NDArray[np.int64], stripes: npt.NDArray[np.int64]
) -> _Hashes:
    """The hash state after all whole stripes, for values of at least one stripe."""
    order = np.argsort(stripes, kind="stable")
    stripes = stripes[order]
    words = position[order][:, None] + np.arange(0, _STRIPE, 8)
    lanes = np.tile(_LANES, (len(order), 1))
    for suffix in np.searchsorted(stripes, np.arange(stripes[-1]), side="right").tolist():
        lanes[suffix:] = _round(lanes[suffix:], long_at[words[suffix:]])
        words[suffix:] += _STRIPE
    state = np.zeros(len(order), dtype=np.uint64)
    for lane, bits in enumerate((1, 7, 12, 18)):
        state += _rotl(lanes[:, lane], bits)
    for lane in range(4):
        state ^= _round(np.zeros(len(order), dtype=np.uint64), lanes[:, lane])
        state = state * _P1 + _P4
    result = np.empty_like(state)
    result[order] = state
    return result


def _round(lanes: _Hashes, words: _Hashes) -> _Hashes:
    return _rotl(lanes + words * _P2, 31) * _P1


def _rotl(values: _Hashes, bits: int) -> _Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _blocks(filter_bytes: bytes) -> npt.NDArray[np.uint32] | None:
    """The bitset as rows of eight words, or None if the filter is not understood."""
    try:
        header, start = _header(filter_bytes, 0)
    except (IndexError, ValueError):
        return None
    size = header.get(1)
    if not isinstance(size, int) or size <= 0 or size % _BLOCK_BYTES:
        return None
    if len(filter_bytes) - start < size:
        return None
    if any(header.get(field) != _FIRST_CHOICE for field in (2, 3, 4)):
        return None
    words = np.frombuffer(filter_bytes, "<u4", size // 4, start)
    return words.astype(np.uint32, copy=False).reshape(-1, 8)


def _header(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The header of a filter, and the position after it."""
    thrift = Thrift(data, at)
    if data.startswith(_HEADER_HEAD, at):
        thrift.at += len(_HEADER_HEAD)
        size = thrift.integer()
        if data.startswith(_HEADER_REST, thrift.at):  # as every writer has it
            return {1: size, **_USUAL_CHOICES}, thrift.at + len(_HEADER_REST)
    thrift = Thrift(data, at)
    return thrift.struct(), thrift.at
