"""Rows of Kafka as rows of a typed topic, and those that cannot be one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import from_arrow, nulls, to_arrow, type_text
from pylogtable.kafka.typed.columns_plan import (
    KEY,
    RAW_KEY,
    RAW_VALUE,
    VALUE,
    VALUE_SCHEMA_ID,
    ValueNames,
    key_names,
    stored_type,
)
from pylogtable.kafka.typed.fitting import fitted, valid
from pylogtable.kafka.values.nesting_plan import why_no_column

#: The id of a schema that comes from a file.
NO_ID = 0

Rows = npt.NDArray[np.int64]


class Group(Protocol):
    """The values of one schema."""

    @property
    def schema_id(self) -> int | None: ...
    @property
    def rows(self) -> Rows: ...
    @property
    def values(self) -> pa.Array: ...
    @property
    def is_record(self) -> bool: ...


class Failed(Protocol):
    """A value that does not decode."""

    @property
    def row(self) -> int: ...
    @property
    def schema_id(self) -> int | None: ...
    @property
    def reason(self) -> str: ...


class Values(Protocol):
    """The values, or the keys, of a batch of rows."""

    @property
    def groups(self) -> Sequence[Group]: ...
    @property
    def failures(self) -> Sequence[Failed]: ...


@dataclass(frozen=True, slots=True)
class Dead:
    """Why a row cannot be a row of the topic. `part` is key or value."""

    row: int
    part: str
    schema_id: int | None
    reason: str


@dataclass(frozen=True)
class TypedRows:
    """The rows that are rows of the topic, with the place of each in the batch, how many of them
    each schema has, and what is left."""

    rows: pa.RecordBatch
    places: Rows
    schema_ids: Mapping[int, int]
    dead: Sequence[Dead]


@dataclass(frozen=True)
class Named:
    """The values of one schema, as columns."""

    group: Group
    columns: Mapping[str, pa.Array]

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {name: column.type for name, column in self.columns.items()}

    def dead(self, reason: str) -> list[Dead]:
        """All of these values of the topic are dead."""
        return [Dead(int(row), VALUE, self.group.schema_id, reason) for row in self.group.rows]


def named_values(
    values: Values, info: TopicInfo, origins: dict[str, str]
) -> tuple[list[Named], list[Dead]]:
    """The columns of each schema, by its id, in a topic that has these columns. `origins` are those
    of `ValueNames`."""
    return _named(values, VALUE, ValueNames(info, origins).of)


def named_keys(keys: Values) -> tuple[list[Named], list[Dead]]:
    """The columns of each schema of keys."""
    return _named(keys, KEY, key_names)


def _named(
    values: Values, part: str, names_of: Callable[[Sequence[str]], Mapping[str, str]]
) -> tuple[list[Named], list[Dead]]:
    found: list[Named] = []
    dead = [Dead(one.row, part, one.schema_id, one.reason) for one in values.failures]
    # Of JSON without a schema, most values come first: they say what new columns are.
    for group in sorted(values.groups, key=lambda one: (one.schema_id or NO_ID, -len(one.rows))):
        if not group.is_record:
            # A plain value has a column of its own, beside those of records.
            found.append(Named(group, {part: group.values}))
            continue
        fields = [field.name for field in group.values.type]
        parts = group.values.flatten()  # null where the record is
        names = names_of(fields)
        columns = {names[name]: part for name, part in zip(fields, parts, strict=True)}
        found.append(Named(group, columns))
    return found, dead


def typed_rows(
    rows: pa.RecordBatch,
    values: Sequence[Named],
    keys: Sequence[Named] | None,
    dead: Iterable[Dead],
    info: TopicInfo,
    *,
    refuses_null_keys: bool,
) -> TypedRows:
    """The rows of Kafka as rows of a topic with these columns. `dead` are rows that cannot be any.
    Without `keys`, keys are bytes."""
    count = rows.num_rows
    left = {one.row: one for one in dead}
    types = {column.name: to_arrow(column.type) for column in info.fields}
    columns: dict[str, pa.Array] = {}
    for part, named in ((KEY, keys), (VALUE, values)):
        fields = [name for name in types if (name in info.key) == (part == KEY)]
        pieces: dict[str, list[tuple[Rows, pa.Array]]] = {}
        for one in named or ():
            for name, column in one.columns.items():
                if name not in fields:
                    lost, column = valid(column), None
                else:
                    column, lost = fitted(column, types[name])
                    pieces.setdefault(name, []).append((one.group.rows, column))
                if lost.any():
                    reason = _misfit(one, part, name, types.get(name))
                    for row in one.group.rows[lost]:
                        left.setdefault(int(row), Dead(int(row), part, one.group.schema_id, reason))
        columns |= {name: scattered(count, some, types[name]) for name, some in pieces.items()}
    if keys is None:
        columns[KEY] = rows["key"]
    for row in _without_key(rows["key"], [columns.get(name) for name in info.key]):
        left.setdefault(row, Dead(row, KEY, None, "all fields of its key are null"))
    if refuses_null_keys:
        reason = "a compacted topic cannot have a record without a key"
        for row in np.flatnonzero(~valid(rows["key"])):
            left.setdefault(int(row), Dead(int(row), KEY, None, reason))
    ids = np.zeros(count, np.int32)
    for one in values:
        ids[one.group.rows] = one.group.schema_id or NO_ID
    there = valid(rows["value"])
    columns[VALUE_SCHEMA_ID] = pa.array(ids, mask=~there)
    if RAW_VALUE in types:
        columns[RAW_VALUE] = rows["value"]
    if RAW_KEY in types:
        columns[RAW_KEY] = rows["key"]
    alive = np.ones(count, np.bool_)
    alive[list(left)] = False
    places = np.flatnonzero(alive)
    whole = {name: rows[name] for name in ("partition", "offset", "timestamp", "headers")}
    batch = pa.RecordBatch.from_pydict({**whole, **columns})
    if left:
        batch = batch.take(pa.array(places))
    found, counts = np.unique(ids[alive & there], return_counts=True)
    return TypedRows(
        batch,
        places,
        dict(zip(found.tolist(), counts.tolist(), strict=True)),
        [left[row] for row in sorted(left)],
    )


def scattered(count: int, pieces: Sequence[tuple[Rows, pa.Array]], kind: pa.DataType) -> pa.Array:
    """A column of so many rows, with these values at these rows, and null elsewhere."""
    if len(pieces) == 1 and len(pieces[0][0]) == count:
        return pieces[0][1]  # rows of a group rise, so these are all rows
    given = pa.concat_arrays([*(column for _, column in pieces), nulls(1, kind)])
    places = np.full(count, len(given) - 1, np.int64)
    at = 0
    for rows, column in pieces:
        places[rows] = np.arange(at, at + len(column))
        at += len(column)
    return given.take(pa.array(places))


def _without_key(key: pa.Array, columns: Sequence[pa.Array | None]) -> Iterator[int]:
    """The rows whose key is not null in Kafka, and would be null here [REC-4]."""
    there = valid(key)
    for column in columns:
        if column is not None:
            there &= ~valid(column)
    yield from np.flatnonzero(there).tolist()


def _misfit(one: Named, part: str, name: str, wanted: pa.DataType | None) -> str:
    """Why values of this column do not fit."""
    given = one.columns[name].type
    wire = stored_type(given)
    schema = (
        "its schema or JSON" if one.group.schema_id is None else f"schema {one.group.schema_id}"
    )
    if wire is None:
        what = why_no_column(given) or f"as {given}"
        return f"{schema} has {name!r} {what}, and no topic can have such a column"
    has = f"{schema} has {name!r} as {type_text(wire)}"
    advice = ""
    if one.group.schema_id is None:
        advice = (
            f". A column of JSON without a schema has the type of the first values: to choose it, "
            f"import under another --name with --{part}-schema ({part}_schema=)"
        )
    if wanted is None:
        return f"{has}, and the topic does not have it in its {part}, which never changes"
    kind = type_text(from_arrow(wanted))
    return (
        f"{has}, and the column of the topic is {kind}: it cannot be widened to that, and this "
        f"value would be cut{advice}"
    )


def first_dead(dead: Sequence[Dead], rows: pa.RecordBatch) -> str:
    """The first row that is no row of the topic, and why."""
    one = dead[0]
    place = f"partition {rows['partition'][one.row]}, offset {rows['offset'][one.row]}"
    schema = "" if one.schema_id is None else f" (schema {one.schema_id})"
    return f"the {one.part} of the record at {place}{schema}: {one.reason}"
