"""Nulls inside of nulls. Pure.

Arrow lets the fields of a null struct be null, also fields that must not be: nobody sees them.
Spark sends such rows. But casts and the Parquet writer refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa


def _relaxed(kind: pa.DataType) -> pa.DataType:
    """The type with nullable fields inside. The keys of a map stay as they are."""
    if pa.types.is_struct(kind):
        return pa.struct([_relaxed_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _relaxed_field(kind.item_field), kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(_relaxed_field(kind.value_field))
    return kind


def _relaxed_field(field: pa.Field) -> pa.Field:
    return field.with_nullable(True).with_type(_relaxed(field.type))


def without_hidden_nulls(column: pa.Array) -> pa.Array:
    """The same values. Where a struct, list or map is null, required fields inside of it are not.
    The column has a type of a topic."""
    return column if null_field(column) is None else _settled(column, column.type)


def cast_without_hidden_nulls(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The column cast to a type of a topic. Hidden nulls are no obstacle, others raise
    `ArrowInvalid`."""
    if column.type != wanted:
        try:
            column = column.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # before pyarrow 20 such types never fit
            if (loose := _relaxed(wanted)) == wanted:
                raise
            column = _settled(column.cast(loose), wanted)
    column = without_hidden_nulls(column)
    if (name := null_field(column)) is not None:
        raise pa.ArrowInvalid(f"field {name!r} must not be null, and has nulls")
    return column


def null_field(column: pa.Array) -> str | None:
    """The name of a required field that has nulls inside of this column, hidden or not; None if
    there is none."""
    for field, values in _inside(column):
        if not field.nullable and values.null_count:
            return str(field.name)
        if (found := null_field(values)) is not None:
            return found
    return None


def _inside(
    column: pa.Array, kind: pa.DataType | None = None
) -> Iterator[tuple[pa.Field, pa.Array]]:
    """What is inside of a nested column, with the fields of its type, or of `kind`."""
    kind = column.type if kind is None else kind
    if pa.types.is_struct(kind):
        yield from ((field, column.field(at)) for at, field in enumerate(kind))
    elif pa.types.is_map(kind):
        yield kind.key_field, column.keys
        yield kind.item_field, column.items
    elif pa.types.is_list(kind):
        yield kind.value_field, column.values


def _settled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column without hidden nulls, as `kind`, which differs in what may be null at most."""
    if not (pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_list(kind)):
        return column
    column = _with_plain_nulls(column)
    inside = [_settled(values, field.type) for field, values in _inside(column, kind)]
    buffers = column.buffers()
    if pa.types.is_struct(kind):
        return pa.Array.from_buffers(kind, len(column), buffers[:1], children=inside)
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        inside = [pa.StructArray.from_arrays(inside, fields=fields)]
    return pa.Array.from_buffers(kind, len(column), buffers[:2], children=inside)


def _with_plain_nulls(column: pa.Array) -> pa.Array:
    """A copy whose nulls are those that Arrow makes of None: with empty values inside."""
    count = len(column)
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.where(is_valid, np.arange(count), count))
    return pa.concat_arrays([column, pa.array([None], column.type)]).take(places)
