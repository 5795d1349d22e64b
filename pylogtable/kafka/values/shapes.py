"""From objects of Python to columns, and back.

Decoders give plain objects (integers for times, bytes for decimals), which `pa.array` makes columns
of. Whole columns are then turned into what they mean; encoders go the other way. A value that does
not fit raises, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Turn = Callable[[pa.Array], pa.Array]

TIMESTAMP = pa.timestamp("us", tz="UTC")
_TIMESTAMP_NTZ = pa.timestamp("us")
#: The years 1 to 9999, in which Python, Spark and Delta agree: the first and the last day.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_EXACT = Context(prec=76)
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@dataclass(frozen=True)
class Shape:
    """`raw` is the type that `pa.array` gives the objects. `finish` makes `final` of that, and
    `start` is the way back; None: it is that already. All fields, elements and values of maps may
    be null: a later schema may allow it, and the column should stay what it is."""

    raw: pa.DataType
    final: pa.DataType
    finish: Turn | None = None
    start: Turn | None = None

    def array(self, objects: Sequence[object]) -> pa.Array:
        return self.array_of(pa.array(objects, self.raw))

    def array_of(self, raw: pa.Array) -> pa.Array:
        return raw if self.finish is None else self.finish(raw)

    def raw_of(self, column: pa.Array) -> pa.Array:
        """Of a column whose type fits into `final`."""
        final = column if column.type == self.final else column.cast(self.final)
        return final if self.start is None else self.start(_compact(final))


def plain(arrow: pa.DataType) -> Shape:
    return Shape(arrow, arrow)


def struct(fields: Sequence[tuple[str, Shape]]) -> Shape:
    raw = pa.struct([pa.field(name, shape.raw) for name, shape in fields])
    final = pa.struct([pa.field(name, shape.final) for name, shape in fields])
    shapes = [shape for _, shape in fields]

    def finish(array: pa.StructArray) -> pa.StructArray:
        children = [shape.array_of(array.field(number)) for number, shape in enumerate(shapes)]
        return _like(array, final, 1, children)

    def start(array: pa.StructArray) -> pa.StructArray:
        children = [shape.raw_of(array.field(number)) for number, shape in enumerate(shapes)]
        return _like(array, raw, 1, children)

    if not any(shape.finish for shape in shapes):
        return Shape(raw, final)
    return Shape(raw, final, finish, start)


def list_of(element: Shape) -> Shape:
    raw = pa.list_(pa.field("element", element.raw))
    final = pa.list_(pa.field("element", element.final))

    def finish(array: pa.ListArray) -> pa.ListArray:
        return _like(array, final, 2, [element.array_of(array.values)])

    def start(array: pa.ListArray) -> pa.ListArray:
        return _like(array, raw, 2, [element.raw_of(array.values)])

    return Shape(raw, final, finish, start) if element.finish else Shape(raw, final)


def map_of(key: Shape, value: Shape) -> Shape:
    """Of objects that are lists of `{"key": …, "value": …}`."""
    entry = pa.struct([pa.field("key", key.raw), pa.field("value", value.raw)])
    raw = pa.list_(pa.field("element", entry))
    final = pa.map_(key.final, pa.field("value", value.final))

    def finish(array: pa.ListArray) -> pa.MapArray:
        keys, values = array.values.field(0), array.values.field(1)
        _check_keys(array, keys)
        entries = pa.StructArray.from_arrays(
            [key.array_of(keys), value.array_of(values)],
            fields=[final.key_field, final.item_field],
        )
        return _like(array, final, 2, [entries])

    def start(array: pa.MapArray) -> pa.ListArray:
        parts = [key.raw_of(array.keys), value.raw_of(array.items)]
        return _like(array, raw, 2, [pa.StructArray.from_arrays(parts, fields=list(entry))])

    return Shape(raw, final, finish, start)


def map_of_dicts(key: Shape, value: Shape) -> Shape:
    """Of objects that are dicts."""
    raw = pa.map_(key.raw, pa.field("value", value.raw))
    final = pa.map_(key.final, pa.field("value", value.final))

    def finish(array: pa.MapArray) -> pa.MapArray:
        entries = pa.StructArray.from_arrays(
            [key.array_of(array.keys), value.array_of(array.items)],
            fields=[final.key_field, final.item_field],
        )
        return _like(array, final, 2, [entries])

    return Shape(raw, final, finish if key.finish or value.finish else None)


def date() -> Shape:
    """Of days since 1970."""

    def finish(array: pa.Array) -> pa.Array:
        _check_range(array, _FIRST_DAY, _LAST_DAY, "date")
        return array.cast(pa.date32())

    return Shape(pa.int32(), pa.date32(), finish, lambda array: array.cast(pa.int32()))


def timestamp(unit: str, has_zone: bool = True) -> Shape:
    """Of milliseconds, microseconds or nanoseconds since 1970. Nanoseconds are cut off."""
    final = TIMESTAMP if has_zone else _TIMESTAMP_NTZ
    per_day = _PER_DAY[unit]
    # 64 bits of nanoseconds end in the year 2262.
    first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1

    def finish(array: pa.Array) -> pa.Array:
        if unit != "ns":
            _check_range(array, first, last, "timestamp")
            return array.cast(pa.timestamp(unit)).cast(pa.timestamp("us")).cast(final)
        values = pc.fill_null(array, 0).to_numpy() // 1000
        return pa.array(values, mask=_nulls(array)).cast(final)

    def start(array: pa.Array) -> pa.Array:
        # Arrow refuses to lose digits, such as microseconds of a timestamp-millis.
        return array.cast(pa.timestamp(unit, final.tz)).cast(pa.int64())

    return Shape(pa.int64(), final, finish, start)


def decimal(precision: int, scale: int, size: int | None = None) -> Shape:
    """Of bytes: the unscaled value, big-endian in two's complement; as many as `size`, or as few as
    it takes."""
    final = pa.decimal128(precision, scale)

    def finish(array: pa.BinaryArray) -> pa.Array:
        words = _sixteen_bytes(array)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(words[:, ::-1]))]
        made = pa.Array.from_buffers(final, len(array), buffers)
        made.validate(full=True)  # that the digits fit into the precision
        return pc.if_else(array.is_valid(), made, None)

    def start(array: pa.Array) -> pa.BinaryArray:
        numbers = (
            None if each is None else int(each.scaleb(scale, _EXACT)) for each in array.to_pylist()
        )
        return pa.array(
            [None if n is None else _twos_complement(n, size) for n in numbers], pa.binary()
        )

    return Shape(pa.binary(), final, finish, start)


def uuid() -> Shape:
    """Of 16 bytes."""

    def finish(array: pa.BinaryArray) -> pa.Array:
        digits = np.frombuffer(b"0123456789abcdef", np.uint8)
        words = _sixteen_bytes(array)
        text = np.full((len(array), 36), ord("-"), np.uint8)
        at = [place for place in range(36) if place not in (8, 13, 18, 23)]
        text[:, at[0::2]], text[:, at[1::2]] = digits[words >> 4], digits[words & 15]
        offsets = pa.py_buffer(np.arange(len(array) + 1, dtype=np.int32) * 36)
        made = pa.Array.from_buffers(
            pa.string(), len(array), [None, offsets, pa.py_buffer(text.reshape(-1))]
        )
        return pc.if_else(array.is_valid(), made, None)

    def start(array: pa.StringArray) -> pa.BinaryArray:
        texts = pc.replace_substring(array, "-", "").to_pylist()
        return pa.array([None if each is None else bytes.fromhex(each) for each in texts])

    return Shape(pa.binary(), pa.string(), finish, start)


def _like(raw: pa.Array, final: pa.DataType, buffers: int, children: list[pa.Array]) -> pa.Array:
    """A nested array with the nulls and the lengths of `raw`, which `pa.array` has made."""
    assert raw.offset == 0
    return pa.Array.from_buffers(final, len(raw), raw.buffers()[:buffers], children=children)


def _compact(array: pa.Array) -> pa.Array:
    """A nested array that begins at the beginning, as `_like` needs it."""
    if not pa.types.is_nested(array.type) or array.offset == 0:
        return array
    return array.take(pa.array(np.arange(len(array))))


def _twos_complement(number: int, size: int | None) -> bytes:
    fewest = (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(fewest if size is None else size, "big", signed=True)


def _check_range(array: pa.Array, first: int, last: int, what: str) -> None:
    ends = pc.min_max(array).as_py()
    if ends["min"] is not None and not (first <= ends["min"] and ends["max"] <= last):
        outside = ends["min"] if ends["min"] < first else ends["max"]
        raise ValueError(f"a {what} is outside of the years 1 to 9999: {outside}")


def _check_keys(array: pa.ListArray, keys: pa.Array) -> None:
    """Arrow does not see whether a map has a key twice. Spark does, and then reads nothing."""
    if keys.null_count:
        raise ValueError("a map has a null key")
    encoded = keys.dictionary_encode()
    rows = pc.list_parent_indices(array).to_numpy().astype(np.int64)
    pairs = rows * len(encoded.dictionary) + encoded.indices.to_numpy()
    if len(np.unique(pairs)) != len(pairs):
        raise ValueError("a map has a key twice")


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _sixteen_bytes(array: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The last 16 bytes of each value, those that are missing filled with its sign."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    source = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    words = np.zeros((len(array), 16), np.uint8)
    for length in np.unique(lengths):
        if length == 0:
            continue
        here = np.flatnonzero(lengths == length)
        values = source[starts[here][:, None] + np.arange(length)]
        kept = values[:, max(0, length - 16) :]
        sign = np.where(kept[:, :1] >= 128, 255, 0).astype(np.uint8)
        if length > 16 and (values[:, : length - 16] != sign).any():
            raise ValueError(f"a decimal of {length} bytes does not fit into 38 digits")
        words[here] = sign
        words[here, 16 - kept.shape[1] :] = kept
    return words
