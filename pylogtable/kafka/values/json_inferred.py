"""Values in JSON without a schema: the columns are what the values of a batch have.

An integer is a long, unless others have a fraction there; any other number is a double, an object a
struct, and a text stays a text, also if it looks like a time. Values that do not go together, such
as a number where others have a text, are groups of their own: whoever takes them decides. A field
that is null in the whole batch is left out, since nothing says its type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pylogtable.format.json_bytes import is_nested_deeper
from pylogtable.kafka.values.batches import BATCH, Found, Part, convert_all, together
from pylogtable.kafka.values.nesting_plan import MAX_LEVELS, alike_fields

_REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
_EMPTY = pa.struct([])


@dataclass
class _Group:
    """Objects whose types go together, by their rows."""

    kind: pa.DataType
    rows: list[int] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)


class InferredJson:
    """Decodes values of any type."""

    #: Nothing says it before there are values.
    type = None

    def __init__(self) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

    def decode(self, bodies: pa.LargeBinaryArray, header_rest: bytes | None) -> Found:
        groups: list[_Group] = []
        failures: list[tuple[int, str]] = []
        rows, objects = self._read(bodies, failures)
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            _sort_into(groups, rows[part], objects[part], failures)
        found = [_columns(group) for group in groups]
        parts = [part for each in found for part in each.parts]
        failures += [failure for each in found for failure in each.failures]
        return Found(parts, sorted(failures))

    def _read(
        self, bodies: pa.LargeBinaryArray, failures: list[tuple[int, str]]
    ) -> tuple[list[int], list[Any]]:
        rows, objects = [], []
        for row, body in enumerate(bodies.to_pylist()):
            if is_nested_deeper(MAX_LEVELS + 1, body):
                reason = f"it is nested more than {MAX_LEVELS} levels deep, and no column can be"
                failures.append((row, reason))
                continue
            try:
                objects.append(self._decoder.decode(body))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                failures.append((row, str(error)))
            else:
                rows.append(row)
        return rows, objects


def _sort_into(
    groups: list[_Group], rows: list[int], objects: list[Any], failures: list[tuple[int, str]]
) -> None:
    """All at once if they go together, which is likely; otherwise one by one."""
    try:
        kind = pa.array(objects).type
        if len(objects) > 1 and _has_alike(kind):
            raise pa.ArrowTypeError("fields that differ only in case")
    except _REFUSED as error:
        if len(objects) == 1:
            failures.append((rows[0], str(error)))
            return
        for row, value in zip(rows, objects, strict=True):
            _sort_into(groups, [row], [value], failures)
        return
    for group in groups:
        joined = _joined(group.kind, kind)
        if joined is None or (joined != group.kind and _has_alike(joined)):
            continue
        group.kind = joined
        group.rows += rows
        group.objects += objects
        return
    groups.append(_Group(kind, rows, objects))


def _joined(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for values of both; None if there is none."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        element = _joined(one.value_type, other.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        kinds = {part.name: part.type for part in one}
        for part in other:
            kinds[part.name] = _joined(kinds.get(part.name, pa.null()), part.type)
        return None if None in kinds.values() else pa.struct(list(kinds.items()))
    return None


def _has_alike(kind: pa.DataType) -> bool:
    """Whether fields differ only in case inside of one field: no column could have them all."""
    fields = [part.type for part in kind] if pa.types.is_struct(kind) else [kind]
    return any(alike_fields(field) is not None for field in fields)


def _columns(group: _Group) -> Found:
    kind = _column(group.kind) or _EMPTY

    def convert(start: int, end: int) -> pa.Array:
        return pa.array(group.objects[start:end], kind)

    found = convert_all(len(group.objects), convert, pa.types.is_struct(kind))
    alone = [_alone(row, group.objects[row], reason) for row, reason in found.failures]
    return together([Found(found.parts, []), *alone]).at(np.array(group.rows, np.int64))


def _alone(row: int, value: Any, reason: str) -> Found:
    """A whole number that no double expresses, where others have a fraction: its own type does."""
    try:
        kind = _column(pa.array([value]).type) or _EMPTY
        part = Part(np.array([row]), pa.array([value], kind), pa.types.is_struct(kind))
    except _REFUSED:
        return Found([], [(row, reason)])
    return Found([part], [])


def _column(kind: pa.DataType) -> pa.DataType | None:
    """The type of a column; None if nothing says what it is."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        # An empty list is something, so it is kept.
        return pa.list_(pa.field("element", _column(kind.value_type) or pa.string()))
    if pa.types.is_struct(kind):
        fields = [(part.name, _column(part.type)) for part in kind]
        known = [(name, column) for name, column in fields if column is not None]
        return pa.struct(known) if known else None
    return kind
