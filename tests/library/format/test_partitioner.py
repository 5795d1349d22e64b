"""The vectorised partitioner compared with a plain murmur2 and plain key bytes."""

from __future__ import annotations

import random
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylogtable.errors import InvalidRequestError
from pylogtable.format import partitioner
from pylogtable.format.partitioner import key_bytes, murmur2, partition_for

Key = bytes | None


def reference(key: bytes) -> int:
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def check(keys: pa.BinaryArray) -> None:
    hashes = murmur2(keys)
    assert hashes.dtype == np.uint32
    parts = partition_for(keys, 7)
    assert parts.dtype == np.int32
    for key, hashed, part in zip(keys.to_pylist(), hashes.tolist(), parts.tolist(), strict=True):
        if key is None:
            assert part == -1
        else:
            assert hashed == reference(key)
            assert part == (reference(key) & 0x7FFFFFFF) % 7


one_key = st.one_of(st.none(), st.binary(max_size=24), st.binary(min_size=250, max_size=300))
one_width = st.integers(0, 70).flatmap(
    lambda n: st.lists(st.one_of(st.none(), st.binary(min_size=n, max_size=n)), max_size=40)
)


@settings(deadline=None)
@given(st.one_of(st.lists(one_key, max_size=60), one_width), st.integers(0, 9), st.integers(0, 9))
def test_murmur2_matches_kafka(keys: list[Key], drop_first: int, drop_last: int) -> None:
    array = pa.array(keys, pa.binary())
    check(array)
    check(array[drop_first : max(drop_first, len(array) - drop_last)])


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=20))
def test_hashing_does_not_read_past_the_end_of_the_buffer(keys: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(keys))]
    check(pa.Array.from_buffers(pa.binary(), len(keys), buffers))


def test_bytes_behind_a_null_key_are_ignored() -> None:
    buffers = [
        pa.py_buffer(b"\x05"),
        pa.py_buffer(np.array([0, 3, 8, 10], dtype=np.int32)),
        pa.py_buffer(b"abcHIDDENxy"[:10]),
    ]
    check(pa.Array.from_buffers(pa.binary(), 3, buffers))


@pytest.mark.parametrize("lengths", [(8, 8), (6, 6), (0, 20)], ids=["words", "tail", "mixed"])
def test_keys_in_several_blocks_hash_like_kafka(lengths: tuple[int, int]) -> None:
    rng = random.Random(7)
    keys = [rng.randbytes(rng.randint(*lengths)) for _ in range(partitioner._BLOCK + 100)]
    check(pa.array(keys))


@pytest.mark.parametrize("crowd", [1, 3, 63, 64, 80])
def test_long_keys_among_short_ones_hash_like_kafka(crowd: int) -> None:
    """Few long keys are hashed one by one, many are hashed together; the hashes are the same."""
    rng = random.Random(crowd)
    keys = [rng.randbytes(rng.randint(900, 1100)) for _ in range(crowd)]
    keys += [rng.randbytes(rng.randint(0, 15)) for _ in range(50)]
    rng.shuffle(keys)
    check(pa.array(keys))


def test_a_key_longer_than_a_scalar_block_hashes_like_kafka() -> None:
    longest = random.Random(1).randbytes(4 * partitioner._SCALAR_WORDS + 7)
    check(pa.array([b"k", longest, b"key"]))


def test_an_empty_array_of_keys_gives_no_hashes() -> None:
    assert murmur2(pa.array([], pa.binary())).shape == (0,)
    assert partition_for(pa.array([], pa.binary()), 3).shape == (0,)
    assert len(key_bytes([pa.array([], pa.int64())])) == 0
    assert len(key_bytes([pa.array([], pa.int64()), pa.array([], pa.string())])) == 0


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_an_invalid_partition_count_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidRequestError, match=str(partitions)):
        partition_for(pa.array([b"k"]), partitions)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_one_variable_width_column_is_not_copied(kind: pa.DataType) -> None:
    column = pa.array(["skipped", "a", None, "bcd"], kind)[1:]
    keys = key_bytes([column])
    assert keys.type == pa.binary()
    assert keys.to_pylist() == [b"a", None, b"bcd"]
    for mine, theirs in zip(keys.buffers(), column.buffers(), strict=True):
        assert mine.address == theirs.address


def _int(width: int) -> tuple[st.SearchStrategy[int], struct.Struct]:
    bits = 8 * width - 1
    return st.integers(-(2**bits), 2**bits - 1), struct.Struct(
        {1: ">b", 2: ">h", 4: ">i", 8: ">q"}[width]
    )


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (pa.int8(), 1),
        (pa.int16(), 2),
        (pa.int32(), 4),
        (pa.int64(), 8),
        (pa.date32(), 4),
        (pa.timestamp("us"), 8),
        (pa.timestamp("us", "Europe/Berlin"), 8),
    ],
    ids=str,
)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_integers_are_big_endian(kind: pa.DataType, width: int, data: st.DataObject) -> None:
    numbers, packing = _int(width)
    values = data.draw(st.lists(st.one_of(st.none(), numbers), max_size=30))
    skip = data.draw(st.integers(0, 10))
    column = pa.array(values, pa.int32() if width == 4 else pa.int64())
    if width < 4:
        column = column.cast(kind)
    keys = key_bytes([column.view(kind)[skip:]])
    keys.validate(full=True)
    assert keys.to_pylist() == [None if v is None else packing.pack(v) for v in values[skip:]]
    check(keys)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.booleans()), max_size=40), st.integers(0, 17))
def test_booleans_are_one_byte(values: list[bool | None], skip: int) -> None:
    keys = key_bytes([pa.array(values, pa.bool_())[skip:]])
    keys.validate(full=True)
    assert keys.to_pylist() == [None if v is None else bytes([v]) for v in values[skip:]]


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1)), max_size=20),
    st.integers(0, 5),
)
def test_decimals_are_their_unscaled_value(values: list[int | None], skip: int) -> None:
    column = pa.array([None if v is None else Decimal(v) for v in values], pa.decimal128(38, 0))
    keys = key_bytes([column[skip:]])
    keys.validate(full=True)
    wanted = [None if v is None else v.to_bytes(16, "big", signed=True) for v in values[skip:]]
    assert keys.to_pylist() == wanted


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.text(max_size=6)),
            st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
            st.one_of(st.none(), st.binary(max_size=6)),
        ),
        max_size=30,
    ),
    st.integers(0, 9),
)
def test_keys_of_several_columns(rows: list[tuple[str | None, int | None, Key]], skip: int) -> None:
    types = (pa.string(), pa.int32(), pa.binary())
    columns = [pa.array([row[i] for row in rows], kind)[skip:] for i, kind in enumerate(types)]

    def plain(row: tuple[str | None, int | None, Key]) -> Key:
        text, number, raw = row
        parts = [
            None if text is None else text.encode(),
            None if number is None else struct.pack(">i", number),
            raw,
        ]
        if all(part is None for part in parts):
            return None
        return b"".join(
            b"\xff\xff\xff\xff" if part is None else struct.pack(">I", len(part)) + part
            for part in parts
        )

    keys = key_bytes(columns)
    keys.validate(full=True)
    assert keys.to_pylist() == [plain(row) for row in rows[skip:]]
    check(keys)


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(),
        pa.float64(),
        pa.uint32(),
        pa.timestamp("ms"),
        pa.timestamp("ns"),
        pa.date64(),
        pa.large_string(),
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.null(),
        pa.decimal256(40, 0),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_other_types_are_refused_as_keys(kind: pa.DataType) -> None:
    column = pa.nulls(2, kind)
    with pytest.raises(InvalidRequestError) as alone:
        key_bytes([column])
    assert str(kind) in str(alone.value)
    with pytest.raises(InvalidRequestError):
        key_bytes([pa.array(["a", "b"]), column])


def test_key_columns_must_be_given_and_have_the_same_length() -> None:
    with pytest.raises(InvalidRequestError, match="at least one column"):
        key_bytes([])
    with pytest.raises(InvalidRequestError, match="2, 1"):
        key_bytes([pa.array(["a", "b"]), pa.array([1])])
