"""Values of records that are sent one by one, checked where Arrow would change them in silence.

Arrow leaves out a field that a struct does not have, takes a number for a time in the column's own
unit, and cuts off fractions inside of a list. `Topic.append` refuses such columns. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.times import as_datetime

Convert = Callable[[Any], Any]


def converters(fields: list[pa.Field]) -> dict[str, Convert]:
    """By column, how its values are checked; columns that Arrow treats well are missing."""
    found = {}
    for field in fields:
        # The numbers of a column are checked in bulk.
        convert = None if pa.types.is_integer(field.type) else _converter(field.type)
        if convert is not None:
            found[field.name] = _of_column(field, convert)
    return found


def _of_column(field: pa.Field, convert: Convert) -> Convert:
    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, InvalidRequestError) as error:
            raise SchemaMismatchError(
                f"column {field.name!r} is {field.type}, and the value {value!r:.80} does not "
                f"fit: {error}"
            ) from None

    return converted


def _converter(kind: pa.DataType) -> Convert | None:
    """None if every value is as Arrow takes it."""
    types = pa.types
    if types.is_integer(kind):
        return _whole
    if types.is_timestamp(kind):
        return _instant if kind.tz else _wall_time
    if types.is_date(kind):
        return _date
    if types.is_map(kind):
        return _map_of(_converter(kind.key_type), _converter(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_of(_converter(kind.value_type))
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return _struct_of({field.name: _converter(field.type) for field in fields})
    return None


def _struct_of(fields: Mapping[str, Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r:.80} is not a dict of its fields")
        for name in value:
            if name not in fields:
                raise ValueError(f"it has no field {name!r}; it has {', '.join(fields)}")
        return {name: _one(fields[name], item) for name, item in value.items()}

    return convert


def _list_of(convert_item: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, str | bytes | bytearray | memoryview):
            raise ValueError(f"{value!r:.80} is not a list")  # Arrow makes a list of its letters
        if convert_item is None or isinstance(value, Mapping) or not hasattr(value, "__iter__"):
            return value
        return [_one(convert_item, item) for item in value]

    return convert


def _map_of(convert_key: Convert | None, convert_item: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            items = [(key, item) for key, item in pairs]
        except (TypeError, ValueError):
            raise ValueError(f"{value!r:.80} is not a dict, nor a list of pairs") from None
        return [(_one(convert_key, key), _one(convert_item, item)) for key, item in items]

    return convert


def _one(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _whole(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _instant(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone; add one, such as timezone.utc")
        return value
    return _time(value)


def _wall_time(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise ValueError(
                f"{value!r} has a time zone, and the column has none; give "
                "value.replace(tzinfo=None)"
            )
        return value
    return _time(value)


def _time(value: Any) -> Any:
    """A number is in milliseconds, as the record's own timestamp."""
    if isinstance(value, bool | float):
        raise ValueError(f"{value!r} is not a time: give a datetime or milliseconds")
    return as_datetime(value) if isinstance(value, int) else value


def _date(value: Any) -> Any:
    is_time = isinstance(value, datetime)
    if is_time or not isinstance(value, date | np.datetime64):
        advice = "value.date()" if is_time else "a datetime.date"
        raise ValueError(f"{value!r} is not a date: give {advice}")
    return value
