"""The hash of content: the same for the same values however they are cut, another for others."""

from __future__ import annotations

import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogtable.check.content_hash import (
    ContentHash,
    RangeContent,
    RangeHash,
    first_different_block,
)

UTC = timezone.utc
MOMENTS = [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 5, 1, 3, tzinfo=UTC)]
# Few values of each type, so that two drawn tables are often almost equal.
PLAIN: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [0, 1, -1],
    pa.int64(): [0, 1, 256, -(2**63)],
    pa.float64(): [0.0, -0.0, float("nan"), 1.5],
    pa.float32(): [0.0, -0.0, 2.0],
    pa.string(): ["", "a", "ab", "b", "ä"],
    pa.binary(): [b"", b"a", b"\0", b"\0\0"],
    pa.date32(): [date(1970, 1, 1), date(2024, 5, 1)],
    pa.timestamp("us", tz="UTC"): MOMENTS,
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-1.50"), Decimal("1.50")],
}


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{n}", kind) for n, kind in enumerate(kinds)])
        ),
    )


kinds = st.recursive(st.sampled_from(list(PLAIN)), nested, max_leaves=4)


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        some: st.SearchStrategy[Any] = st.lists(values(kind.value_type), max_size=2)
    elif pa.types.is_map(kind):
        entry = st.tuples(st.sampled_from(["", "k", "kk"]), values(kind.item_type))
        some = st.lists(entry, max_size=2)
    elif pa.types.is_struct(kind):
        some = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    else:
        some = st.sampled_from(PLAIN[kind])
    return st.one_of(st.none(), some, some)


def bits(value: Any) -> Any:
    """A value that is equal to another one only if they have the same bits."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {name: bits(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [bits(part) for part in value]
    return value


def table(rows: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"n": pa.array(range(len(rows)), pa.int64()), "value": pa.array(rows, kind)})


def digest(batches: pa.Table | list[pa.RecordBatch]) -> bytes:
    content = ContentHash()
    for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
        content.add(batch)
    return content.digest()


def large(kind: pa.DataType) -> pa.DataType:
    """The type with large offsets where it has offsets."""
    if pa.types.is_string(kind):
        return pa.large_string()
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_list(kind):
        return pa.large_list(large(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, large(field.type)) for field in kind])
    return kind


@given(st.data())
def test_cuts_slices_and_offset_widths_do_not_matter(data: st.DataObject) -> None:
    kind = data.draw(kinds)
    rows = data.draw(st.lists(values(kind), max_size=20))
    before, after = (data.draw(st.lists(values(kind), max_size=9)) for _ in range(2))
    whole = table(rows, kind)
    expected = digest(whole)
    surrounded = pa.array([*before, *rows, *after], kind).slice(len(before), len(rows))
    sliced = pa.RecordBatch.from_arrays(
        [whole["n"].combine_chunks(), surrounded], whole.schema.names
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    edges = [0, *cuts, len(rows)]
    pieces = [sliced.slice(a, b - a) for a, b in pairwise(edges)]
    assert digest(pieces) == expected
    apart = [table(rows[a:b], kind)["value"].combine_chunks() for a, b in pairwise(edges)]
    built = [
        pa.RecordBatch.from_arrays([piece.column(0), column], piece.schema.names)
        for piece, column in zip(pieces, apart, strict=True)
    ]
    assert digest(built) == expected
    wide = pa.table({"n": whole["n"], "value": pa.array(rows, large(kind))})
    assert digest(wide) == expected


@given(st.data())
def test_hashes_are_equal_only_for_equal_values(data: st.DataObject) -> None:
    kind = data.draw(kinds)
    rows = data.draw(st.lists(values(kind), min_size=1, max_size=8))
    changed = list(rows)
    at = data.draw(st.integers(0, len(rows) - 1))
    how = data.draw(st.sampled_from(["replace", "swap", "insert", "remove"]))
    if how == "replace":
        changed[at] = data.draw(values(kind))
    elif how == "swap":
        changed[at], changed[0] = changed[0], changed[at]
    elif how == "insert":
        changed.insert(at, data.draw(values(kind)))
    else:
        del changed[at]
    one, other = (pa.array(some, kind) for some in (rows, changed))
    same = bits(one.to_pylist()) == bits(other.to_pylist())
    hashes = {digest([pa.record_batch({"value": array})]) for array in (one, other)}
    assert (len(hashes) == 1) is same


GARBAGE = pa.array([True, False, True, False])


def garbage(kind: pa.DataType, rows: list[Any]) -> pa.Array:
    """The rows, of which the second and the fourth are null and keep their values underneath."""
    full = pa.array(rows, kind)
    mask = pa.array([False, True, False, True])
    if pa.types.is_struct(kind):
        parts = [full.field(n) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(full.offsets, full.keys, full.items, kind, mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(full.offsets, full.values, kind, mask=mask)
    return pa.Array.from_buffers(kind, len(full), [GARBAGE.buffers()[1], *full.buffers()[1:]])


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (pa.int64(), [1, 2, 3, 4]),
        (pa.bool_(), [True, True, False, True]),
        (pa.binary(), [b"a", b"bb", b"ccc", b"d"]),
        (pa.list_(pa.string()), [["a"], ["b", "c"], [], ["d"]]),
        (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [("b", 2)], [], [("c", 3)]]),
        (pa.struct({"x": pa.int32(), "y": pa.string()}), [{"x": n, "y": str(n)} for n in range(4)]),
    ],
    ids=str,
)
def test_what_is_under_a_null_does_not_matter(kind: pa.DataType, rows: list[Any]) -> None:
    dirty = garbage(kind, rows)
    clean = pa.array([rows[0], None, rows[2], None], kind)
    assert dirty.to_pylist() == clean.to_pylist()
    hashes = {digest([pa.record_batch({"value": array})]) for array in (dirty, clean)}
    assert len(hashes) == 1


def test_nothing_and_null_differ_at_every_depth() -> None:
    lists = pa.list_(pa.list_(pa.int32()))
    shapes: list[Any] = [None, [], [None], [[]], [[None]], [[], []], [None, None], [[None, None]]]
    assert len({digest(table([shape], lists)) for shape in shapes}) == len(shapes)
    structs = pa.struct({"a": pa.int32(), "b": pa.string()})
    found = [None, {"a": None, "b": None}, {"a": None, "b": ""}, {"a": 0, "b": None}]
    assert len({digest(table([shape], structs)) for shape in found}) == len(found)


def test_values_do_not_move_between_rows_or_columns() -> None:
    pairs = [(b"ab", b"c"), (b"a", b"bc"), (b"", b"abc"), (b"abc", b"")]
    across = {
        digest([pa.record_batch({"key": pa.array([one]), "value": pa.array([two])})])
        for one, two in pairs
    }
    down = {digest([pa.record_batch({"value": pa.array(pair)})]) for pair in pairs}
    assert len(across) == len(down) == 4
    assert not across & down


def content(offsets: list[int], values: list[int], cuts: list[int] | None = None) -> RangeContent:
    batch = pa.record_batch({"offset": pa.array(offsets, pa.int64()), "v": pa.array(values)})
    edges = [0, *(cuts or []), len(offsets)]
    hashed = RangeHash(10)
    for start, end in pairwise(edges):
        hashed.add(batch.slice(start, end - start))
    return hashed.finish()


def test_blocks_are_cut_by_offset_and_name_the_first_difference() -> None:
    offsets = [3, 9, 10, 19, 20, 45]
    one = content(offsets, [0] * 6)
    assert sorted(one.blocks) == [0, 1, 2, 4]
    assert one == content(offsets, [0] * 6, cuts=[0, 1, 3, 3, 5])
    assert one.records == 6
    assert first_different_block(one, one) is None
    other = content(offsets, [0, 0, 0, 7, 0, 7])
    assert first_different_block(one, other) == 1
    assert one.digest != other.digest
    shorter = content(offsets[:5], [0] * 5)
    assert first_different_block(one, shorter) == 4
    assert one.digest != content([*offsets[:5], 46], [0] * 6).digest


def test_no_records_have_a_digest_too() -> None:
    assert RangeHash(10).finish() == content([], [])
    assert RangeHash(10).finish().digest != content([1], [1]).digest


def test_the_digest_stays_as_it_is() -> None:
    """Digests of different runs and machines can be compared. This is how one is made by hand."""
    table = pa.table(
        {
            "offset": pa.array([1, 2], pa.int64()),
            "value": pa.array([b"x", None], pa.binary()),
            "tags": pa.array([[], ["a"]], pa.list_(pa.string())),
        }
    )
    hashed = RangeHash(10)
    for batch in table.to_batches():
        hashed.add(batch)
    streams = {
        "0": struct.pack("<qq", 1, 2),
        "1": b"x",
        "1.lengths": struct.pack("<I", 1),
        "1.nulls": struct.pack("<q", 1),
        "2.0": b"a",
        "2.0.lengths": struct.pack("<I", 1),
        "2.lengths": struct.pack("<II", 0, 1),
    }
    block = sha256(b"2")
    for name, data in streams.items():
        block.update(name.encode() + b"\0" + sha256(data).digest())
    assert hashed.finish().digest == sha256(bytes(8) + block.digest()).hexdigest()


def test_hashed_bytes_are_counted() -> None:
    hashed = ContentHash()
    hashed.add(pa.record_batch({"n": pa.array(np.arange(10, dtype=np.int64))}))
    assert (hashed.records, hashed.size_bytes) == (10, 80)
