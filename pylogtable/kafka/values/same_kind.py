"""Which columns a schema may have: Arrow's casts would also make a number of a text. Pure."""

from __future__ import annotations

import pyarrow as pa


def check_same_kind(given: pa.DataType, wanted: pa.DataType) -> None:
    """Raise ValueError if a cast changes what values are. Arrow notices itself which numbers are
    too large, and which times have too many digits; a double that becomes a float loses some in
    silence."""
    types = pa.types
    if types.is_null(given) or given == wanted:
        return
    if types.is_struct(given) and types.is_struct(wanted):
        for field in wanted:
            at = given.get_field_index(field.name)
            if at >= 0:
                check_same_kind(given.field(at).type, field.type)
        return
    if types.is_map(given) and types.is_map(wanted):
        check_same_kind(given.key_type, wanted.key_type)
        check_same_kind(given.item_type, wanted.item_type)
        return
    if types.is_list(given) and types.is_list(wanted):
        check_same_kind(given.value_type, wanted.value_type)
        return
    is_cut = types.is_float64(given) and types.is_float32(wanted)
    if _kind(given) != _kind(wanted) or is_cut:
        raise ValueError(f"the column is {given}, and the schema has {wanted}")


def _kind(arrow: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow):
        return "number"
    for is_text in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary):
        if is_text(arrow):
            return "text"
    if types.is_fixed_size_binary(arrow):
        return "text"
    if types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp without a zone"
    return str(arrow) if not types.is_nested(arrow) else type(arrow).__name__
