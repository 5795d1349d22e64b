"""Values as the type of their column, without losing anything: what the type cannot express is
told, row by row. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import SchemaMismatchError
from pylogtable.format.schema import fits, from_arrow, nulls
from pylogtable.lazy_arrow import pc

Mask = npt.NDArray[np.bool_]

_LONGS_END = 2.0**63


def fitted(given: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    """The values as `wanted`, the type of a column, and the rows that have something that it cannot
    express: a value of a type that does not fit, or a field inside of it that the column does not
    have. A null, or a field that is null, fits everywhere."""
    if given.type.equals(wanted):
        return given, np.zeros(len(given), np.bool_)
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    if pa.types.is_struct(wanted) and pa.types.is_struct(given.type):
        return _fitted_struct(given, wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(given.type):
        return _fitted_map(given, wanted)
    if pa.types.is_list(wanted) and _is_list(given.type):
        return _fitted_list(given, wanted)
    return _fitted_plain(given, wanted)


def valid(column: pa.Array) -> Mask:
    """Which rows are not null."""
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    is_any = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_any)


def _fitted_plain(given: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    there = valid(given)
    try:
        kinds = from_arrow(given.type), from_arrow(wanted)
        if fits(*kinds):
            return given.cast(wanted), np.zeros(len(given), np.bool_)
    except (SchemaMismatchError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return nulls(len(given), wanted), there
    if pa.types.is_integer(given.type) and pa.types.is_integer(wanted):
        # Most numbers of a wider type fit, and a column inside of another cannot be widened.
        cast = given.cast(wanted, safe=False)
        is_same = pc.fill_null(pc.equal(cast.cast(given.type), given), True)
        return cast, ~is_same.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(given.type) and pa.types.is_floating(wanted):
        return _fitted_into_floats(given, wanted)
    if pa.types.is_floating(given.type) and pa.types.is_integer(wanted):
        whole, lost = _fitted_into_longs(given)
        narrow, too_large = fitted(whole, wanted)
        return narrow, lost | too_large
    return nulls(len(given), wanted), there


def _fitted_into_floats(given: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    """JSON writes 2.0 as 2. A whole number that a float cannot express exactly is lost."""
    there = valid(given)
    numbers = given.fill_null(0).to_numpy()
    floats = numbers.astype(wanted.to_pandas_dtype())
    is_long = floats < _LONGS_END
    same = is_long & (np.where(is_long, floats, 0).astype(np.int64) == numbers)
    return pa.array(floats, wanted, mask=~there), there & ~same


def _fitted_into_longs(given: pa.Array) -> tuple[pa.Array, Mask]:
    """The same the other way: 2.0 fits, and 2.5 does not."""
    there = valid(given)
    floats = given.fill_null(0).to_numpy().astype(np.float64)
    same = (floats == np.trunc(floats)) & (floats >= -_LONGS_END) & (floats < _LONGS_END)
    longs = np.where(same, floats, 0).astype(np.int64)
    return pa.array(longs, mask=~there), there & ~same


def _fitted_struct(given: pa.StructArray, wanted: pa.StructType) -> tuple[pa.Array, Mask]:
    there, count = valid(given), len(given)
    lost = np.zeros(count, np.bool_)
    inside = []
    for field in wanted:
        at = given.type.get_field_index(field.name)
        if at < 0:
            inside.append(nulls(count, field.type))
            continue
        values, lost_inside = fitted(given.field(at), field.type)
        inside.append(values)
        lost |= lost_inside
    for at, field in enumerate(given.type):
        if wanted.get_field_index(field.name) < 0:
            lost |= valid(given.field(at))
    made = pa.StructArray.from_arrays(inside, fields=list(wanted), mask=pa.array(~there))
    return made, lost & there


def _fitted_list(given: pa.Array, wanted: pa.ListType) -> tuple[pa.Array, Mask]:
    counts = pc.list_value_length(given).fill_null(0).to_numpy(zero_copy_only=False)
    values, lost_inside = fitted(given.flatten(), wanted.value_type)
    made = pa.ListArray.from_arrays(
        _offsets(counts), values, type=wanted, mask=pa.array(~valid(given))
    )
    return made, _rows_of(lost_inside, counts)


def _fitted_map(given: pa.MapArray, wanted: pa.MapType) -> tuple[pa.Array, Mask]:
    there = valid(given)
    starts = given.offsets.to_numpy(zero_copy_only=False)
    counts = np.where(there, np.diff(starts), 0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    # A null map may have entries below it, which nobody sees.
    places = np.arange(offsets[-1]) + np.repeat(starts[:-1] - offsets[:-1], counts)
    taken = pa.array(places, pa.int64())
    keys, lost_keys = fitted(given.keys.take(taken), wanted.key_type)
    items, lost_items = fitted(given.items.take(taken), wanted.item_type)
    lost = _rows_of(lost_keys | lost_items, counts)
    # A key that was lost is null, which no map may have; its row is left out anyway.
    kept = np.repeat(~lost, counts)
    counts = np.where(lost, 0, counts)
    entries = pa.array(kept)
    made = pa.MapArray.from_arrays(
        _offsets(counts), keys.filter(entries), items.filter(entries), mask=pa.array(~there)
    )
    return made.cast(wanted), lost


def _offsets(counts: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())


def _rows_of(inside: Mask, counts: npt.NDArray[np.int64]) -> Mask:
    """The rows that have one of these values inside of them."""
    lost = np.zeros(len(counts), np.bool_)
    lost[np.repeat(np.arange(len(counts)), counts)[inside]] = True
    return lost
