"""Spark's store assignment for rows that Spark does not cast: `df.write`, streams and appends.

Spark casts the rows of an `INSERT` by its ANSI policy before a sink sees them, but no rows of other
writes. The same rules hold here for them, as far as Spark's session is not needed: numbers
fit into every numeric column if their values do, and whole numbers and booleans into text. Spark
drops the fraction of a number in an integer column, and rounds it half up in a decimal column. All
other types are left to the library, which takes a type only if each of its values fits.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable import SchemaMismatchError

#: Columns of a topic's schema whose types the library alone decides.
LOG_COLUMNS = ("partition", "offset", "timestamp")

#: As many digits as Arrow can hold: no step between two decimals overflows.
_WIDE = 76
_LONG_DIGITS = 19
_MOST_SCALE = 38


def assigned_columns(given: pa.Schema, topic: pa.Schema) -> pa.Schema:
    """The columns of rows with the columns `given` after `assign`."""
    wanted = {field.name: field.type for field in topic if field.name not in LOG_COLUMNS}
    return pa.schema(
        [
            column.with_type(wanted[column.name])
            if _is_assigned(column.type, wanted.get(column.name))
            else column
            for column in given
        ]
    )


def assign(rows: pa.RecordBatch, topic: pa.Schema) -> pa.RecordBatch:
    """The rows with the types of the topic, where Spark's rules cast. Raises if a value does not
    fit."""
    schema = assigned_columns(rows.schema, topic)
    if schema.equals(rows.schema):
        return rows
    columns = [
        column if column.type == field.type else _assigned(field.name, column, field.type)
        for field, column in zip(schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_assigned(given: pa.DataType, wanted: pa.DataType | None) -> bool:
    if wanted is None or given == wanted:
        return False
    if _is_number(given):
        return _is_number(wanted) or (pa.types.is_integer(given) and pa.types.is_string(wanted))
    return bool(pa.types.is_boolean(given) and pa.types.is_string(wanted))


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _assigned(name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return _cast(column, wanted)
    except pa.ArrowInvalid:
        value = _first_that_fails(column, wanted)
        widen = (
            ", or widen the topic's column with topic.alter(widen_columns=...)"
            if pa.types.is_integer(column.type) and pa.types.is_integer(wanted)
            else ""
        )
        raise SchemaMismatchError(
            f"column {name!r}: the value {value} ({column.type}) does not fit into {wanted}, the "
            f"type of the topic's column. Nothing was appended. Leave such rows out{widen}"
        ) from None


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    given, types = column.type, pa.types
    if types.is_decimal(wanted):
        return _rounded(column, wanted.scale).cast(wanted)
    if types.is_integer(wanted):
        if types.is_floating(given):
            column = pc.trunc(column)
        options = pc.CastOptions(target_type=wanted, allow_decimal_truncate=True)
        return pc.cast(column, options=options)
    # A float takes the nearest value, however large the number is.
    return column.cast(wanted, safe=not types.is_floating(wanted))


def _rounded(column: pa.Array, scale: int) -> pa.Array:
    """The numbers, rounded half up to `scale` digits, in a type that Arrow casts to decimals."""
    given, half_up = column.type, "half_towards_infinity"
    if pa.types.is_integer(given):
        return column.cast(pa.decimal256(_LONG_DIGITS + _MOST_SCALE, _MOST_SCALE))
    if pa.types.is_floating(given):
        return pc.round(column.cast(pa.float64()), scale, round_mode=half_up)
    wide = column.cast(pa.decimal256(_WIDE, given.scale))
    return pc.round(wide, scale, round_mode=half_up) if scale < given.scale else wide


def _first_that_fails(column: pa.Array, wanted: pa.DataType) -> pa.Scalar:
    """The first value that cannot be cast. Only used when one is known to be there."""
    while len(column) > 1:
        half = len(column) // 2
        try:
            _cast(column[:half], wanted)
        except pa.ArrowInvalid:
            column = column[:half]
        else:
            column = column[half:]
    return column[0]
