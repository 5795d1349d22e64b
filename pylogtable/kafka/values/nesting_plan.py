"""Types that values have and no column can have: what is nested too deep, and structs with fields
that differ only in case."""

from __future__ import annotations

import pyarrow as pa

#: How many types a column may have inside of each other. A struct takes three levels of the JSON of
#: a commit, which may have 100 [COMMIT-1].
MAX_LEVELS = 30


def why_no_column(kind: pa.DataType) -> str | None:
    """Why there is no column for values of this type; None if there may be one."""
    if _is_deeper(kind, MAX_LEVELS):
        return f"nested more than {MAX_LEVELS} levels deep"
    alike = alike_fields(kind)
    if alike is not None:
        one, other = alike
        return f"with a struct whose fields {one!r} and {other!r} differ only in case"
    return None


def alike_fields(kind: pa.DataType) -> tuple[str, str] | None:
    """Two fields of a struct in this type that differ only in case, which no column may have
    [TYPE-5]."""
    if pa.types.is_struct(kind):
        seen: dict[str, str] = {}
        for field in kind:
            other = seen.setdefault(field.name.lower(), field.name)
            if other != field.name:
                return other, field.name
    found = (alike_fields(inner) for inner in _inside(kind))
    return next((pair for pair in found if pair is not None), None)


def _is_deeper(kind: pa.DataType, levels: int) -> bool:
    inside = _inside(kind)
    return bool(inside) and (levels == 0 or any(_is_deeper(one, levels - 1) for one in inside))


def _inside(kind: pa.DataType) -> list[pa.DataType]:
    types = pa.types
    if types.is_struct(kind):
        return [field.type for field in kind]
    if types.is_map(kind):
        return [kind.key_type, kind.item_type]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [kind.value_type]
    return []
