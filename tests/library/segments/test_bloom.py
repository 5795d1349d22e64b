"""XXH64 against the plain algorithm, and probing against filters that pyarrow wrote."""

from __future__ import annotations

import io
import random
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pylogtable.format.footer_filters import ChunkId, filter_places
from pylogtable.segments import bloom
from pylogtable.segments.bloom import make_filter, may_contain, plain_bytes, xxh64
from pylogtable.segments.file_layout import abilities_of_pyarrow

pytestmark = pytest.mark.records_in("files")

_MASK = 2**64 - 1
_P = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def reference(value: bytes) -> int:
    p1, p2, p3, p4, p5 = _P

    def rotl(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & _MASK

    def mix(acc: int, lane: bytes) -> int:
        return rotl((acc + int.from_bytes(lane, "little") * p2) & _MASK, 31) * p1 & _MASK

    rest = value
    h = p5
    if len(value) >= 32:
        lanes = [p1 + p2 & _MASK, p2, 0, -p1 & _MASK]
        while len(rest) >= 32:
            lanes = [mix(v, rest[8 * i : 8 * i + 8]) for i, v in enumerate(lanes)]
            rest = rest[32:]
        h = sum(rotl(v, bits) for v, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for v in lanes:
            h = ((h ^ mix(0, v.to_bytes(8, "little"))) * p1 + p4) & _MASK
    h = h + len(value) & _MASK
    while len(rest) >= 8:
        h = (rotl(h ^ mix(0, rest[:8]), 27) * p1 + p4) & _MASK
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotl(h ^ (int.from_bytes(rest[:4], "little") * p1 & _MASK), 23) * p2 + p3) & _MASK
        rest = rest[4:]
    for byte in rest:
        h = rotl(h ^ (byte * p5 & _MASK), 11) * p1 & _MASK
    h = (h ^ h >> 33) * p2 & _MASK
    h = (h ^ h >> 29) * p3 & _MASK
    return h ^ h >> 32


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64_matches_published_hashes(value: bytes, wanted: int) -> None:
    assert xxh64(pa.array([value])).tolist() == [wanted]


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=20), st.binary(max_size=150)), max_size=40),
    st.integers(0, 5),
)
def test_xxh64_matches_the_reference_implementation(values: list[bytes | None], skip: int) -> None:
    array = pa.array(values, pa.binary())[skip:]
    hashes = xxh64(array)
    assert hashes.dtype == np.uint64
    for value, hashed in zip(array.to_pylist(), hashes.tolist(), strict=True):
        assert value is None or hashed == reference(value)


def test_xxh64_is_right_for_every_length() -> None:
    rng = random.Random(3)
    values = [rng.randbytes(n) for n in range(140)]
    rng.shuffle(values)
    assert xxh64(pa.array(values)).tolist() == [reference(v) for v in values]


def test_hashing_does_not_read_past_the_end_of_the_buffer() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 1, 3], dtype=np.int32)), pa.py_buffer(b"abc")]
    values = pa.Array.from_buffers(pa.binary(), 2, buffers)
    assert xxh64(values).tolist() == [reference(b"a"), reference(b"bc")]


def filter_of(column: pa.Array, ndv: int, fpp: float = 0.01, **options: object) -> bytes:
    if not abilities_of_pyarrow().filters:
        pytest.skip("this pyarrow writes no Bloom filters")
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"key": column}),
        sink,
        bloom_filter_options={"key": {"ndv": ndv, "fpp": fpp}},
        **options,
    )
    written = sink.getvalue()
    length = int.from_bytes(written[-8:-4], "little")
    start, size = filter_places(written[-8 - length :])[ChunkId(0, 0)]
    return written[start : start + size]


def probe(filter_bytes: bytes, column: pa.Array) -> np.ndarray:
    plain = plain_bytes(column)
    assert plain is not None
    plain.validate(full=True)
    return may_contain(filter_bytes, xxh64(plain))


_N = 5000


def distinct_values(kind: pa.DataType, count: int) -> pa.Array:
    rng = random.Random(11)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(count)]
        return pa.array([text[: rng.randint(16, 36)] for text in texts], kind)
    bound = 2 ** (min(kind.bit_width, 50) - 2)
    return pa.array(rng.sample(range(-bound, bound), count), kind)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.binary(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
    ],
    ids=str,
)
def test_filters_written_by_pyarrow_can_be_read(kind: pa.DataType) -> None:
    column = distinct_values(kind, 2 * _N)
    written, absent = column[:_N], column[_N:]
    for filter_bytes in (
        filter_of(written, _N),
        filter_of(written, _N, use_dictionary=False, data_page_version="2.0"),
    ):
        assert probe(filter_bytes, written).all()
        assert probe(filter_bytes, absent).mean() < 0.02


KEYS = [
    pa.string(),
    pa.binary(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
]


@pytest.mark.parametrize("count", [0, 1, 30, 3000])
@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_our_filters_are_those_of_pyarrow(kind: pa.DataType, count: int) -> None:
    """Bit by bit, in as many bytes, also if values repeat or are null."""
    some = distinct_values(kind, count)
    column = pa.concat_arrays([some, pa.nulls(2, kind), some])
    made = make_filter([column[:count], column[count:]], 0.01)
    assert made == filter_of(column, max(1, len(column)))


@pytest.mark.parametrize("kind", KEYS, ids=str)
def test_our_filters_can_be_read(kind: pa.DataType) -> None:
    column = distinct_values(kind, 2 * _N)
    made = make_filter([column[:100], column[100:_N]], 0.01)
    assert made is not None
    assert probe(made, column[:_N]).all()
    assert probe(made, column[_N:]).mean() < 0.02


def test_no_filter_of_very_long_keys() -> None:
    assert make_filter([pa.array([b"x" * 16_384])], 0.01) is not None
    assert make_filter([pa.array([b"a"]), pa.array([b"x" * 16_385])], 0.01) is None


@pytest.mark.parametrize("count", [1, 10, 100, 3000, 6500, 131_072])
def test_filter_size_is_predicted(count: int) -> None:
    """But for a byte or two that its header needs less to say a smaller number."""
    made = len(filter_of(pa.array(np.arange(count) * 7919), count))
    assert made <= bloom.filter_bytes(count, 0.01) <= made + 2


def test_false_positive_rate_is_the_requested_one() -> None:
    """With as many values as the filter is sized for, it neither misses nor says yes too often."""
    count = 20_000
    column = pa.array(np.arange(12 * count) * 7919)
    for fpp in (0.1, 0.01):
        filter_bytes = filter_of(column[:count], count, fpp)
        assert probe(filter_bytes, column[:count]).all()
        assert 0 < probe(filter_bytes, column[count:]).mean() < 1.5 * fpp


def test_all_bytes_of_int8() -> None:
    column = pa.array(range(-128, 128), pa.int8())
    filter_bytes = filter_of(column[:128], 128)
    assert probe(filter_bytes, column[:128]).all()
    assert not probe(filter_bytes, column[128:]).all()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64(), pa.timestamp("us")], ids=str)
def test_plain_bytes_of_a_slice_with_nulls(kind: pa.DataType) -> None:
    width = 8 if kind in (pa.int64(), pa.timestamp("us")) else 4
    plain = plain_bytes(pa.array([9, 1, None, -2], kind)[1:])
    assert plain is not None
    plain.validate(full=True)
    assert plain.to_pylist() == [
        (1).to_bytes(width, "little"),
        None,
        (-2).to_bytes(width, "little", signed=True),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.int8(), pa.int32(), pa.int64()], ids=str)
def test_no_hashes_give_no_answers(kind: pa.DataType) -> None:
    filter_bytes = filter_of(pa.array(["k"]), 10)
    assert probe(filter_bytes, pa.array([], kind)).shape == (0,)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True]),
        pa.array([Decimal("1.5")], pa.decimal128(10, 2)),
        pa.array([1.5]),
        pa.array([1], pa.uint32()),
        pa.array([1], pa.timestamp("ms")),
        pa.array([1], pa.timestamp("ns")),
        pa.array(["a"], pa.large_string()),
    ],
    ids=lambda column: str(column.type),
)
def test_uncertain_types_are_not_probed(column: pa.Array) -> None:
    assert plain_bytes(column) is None


_HEADER = bytes.fromhex("15401c1c00001c1c00001c1c000000")


def test_header_written_by_pyarrow_is_understood() -> None:
    """The cases below vary this header, so it has to be the real one."""
    assert filter_of(pa.array(["k"]), 10)[: len(_HEADER)] == _HEADER
    assert not may_contain(_HEADER + bytes(32), xxh64(pa.array([b"k"]))).any()


@pytest.mark.parametrize(
    "header",
    [
        "15400c041c00000c061c00000c081c000000",  # long-form field ids
        "15401c1c00001c1c00001c1c0000150200",  # a field of the future
    ],
)
def test_other_encodings_of_the_same_header_are_understood(header: str) -> None:
    assert not may_contain(bytes.fromhex(header) + bytes(32), xxh64(pa.array([b"k"]))).any()


@pytest.mark.parametrize(
    "filter_bytes",
    [
        b"",
        _HEADER,
        _HEADER + bytes(31),
        _HEADER[:9],
        bytes.fromhex("15401c2c00001c1c00001c1c000000") + bytes(32),
        bytes.fromhex("15401c1c00001c2c00001c1c000000") + bytes(32),
        bytes.fromhex("15401c1c00001c1c00001c2c000000") + bytes(32),
        bytes.fromhex("15401c1c00001c1c000000") + bytes(32),
        bytes.fromhex("1c1c00001c1c00001c1c000000") + bytes(32),
        bytes.fromhex("15001c1c00001c1c00001c1c000000") + bytes(32),
        bytes.fromhex("153f1c1c00001c1c00001c1c000000") + bytes(32),
        bytes.fromhex("15421c1c00001c1c00001c1c000000") + bytes(64),
        bytes.fromhex("18401c1c00001c1c00001c1c000000") + bytes(32),
        b"\xff" * 100,
        b"\x15" + b"\xff" * 100_000,
        b"\x1c" * 100_000,
    ],
    ids=[
        "nothing",
        "no bitset",
        "short bitset",
        "cut header",
        "algorithm",
        "hash",
        "compression",
        "no compression field",
        "no size",
        "size 0",
        "negative size",
        "size not of blocks",
        "not an i32",
        "noise",
        "endless number",
        "endless nesting",
    ],
)
def test_unknown_filter_may_contain_everything(filter_bytes: bytes) -> None:
    assert may_contain(filter_bytes, xxh64(pa.array([b"k", b"l"]))).tolist() == [True, True]
