"""The files that a Delta table shows, and the checkpoint that lists them. Pure.

A checkpoint is a Parquet file with one action a row, so that a reader need not read every entry of
the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from pylogtable.format.schema import PARTITION
from pylogtable.lazy_arrow import pc
from pylogtable.publish.delta.actions import Action
from pylogtable.publish.delta.schema import DELETION_VECTORS
from pylogtable.publish.plan import TableFile

#: The actions of which only the newest counts.
_ONCE = ("protocol", "metaData", "txn")
_TEXTS = pa.map_(pa.string(), pa.string())
VECTOR = "deletionVector"
_VECTOR = pa.field(
    VECTOR,
    pa.struct(
        [
            ("storageType", pa.string()),
            ("pathOrInlineDv", pa.string()),
            ("offset", pa.int32()),
            ("sizeInBytes", pa.int32()),
            ("cardinality", pa.int64()),
        ]
    ),
)
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        _VECTOR,
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        _VECTOR,
    ]
)
_FORMAT = pa.struct([("provider", pa.string()), ("options", _TEXTS)])
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", _FORMAT),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _TEXTS),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
CHECKPOINT_SCHEMA = pa.schema(
    [
        ("txn", _TXN),
        ("add", _ADD),
        ("remove", _REMOVE),
        ("metaData", _METADATA),
        ("protocol", _PROTOCOL),
    ]
)
#: The schema of a table that never had a vector.
PLAIN_SCHEMA = pa.schema(
    [
        column.with_type(pa.struct([part for part in column.type if part.name != VECTOR]))
        if column.name in ("add", "remove")
        else column
        for column in CHECKPOINT_SCHEMA
    ]
)


@dataclass(frozen=True)
class TableState:
    """A table at one version. `adds` are the files it shows, `removes` those it showed before."""

    adds: pa.Array
    removes: pa.Array
    single: dict[str, Action] = field(default_factory=dict)

    @property
    def paths(self) -> pa.Array:
        """The paths of the files that the table shows."""
        return pc.struct_field(self.adds, "path")

    @property
    def _columns(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Path, partition and size of the files that the table shows."""
        values = pc.struct_field(self.adds, "partitionValues")
        partitions = pc.map_lookup(values, PARTITION, "first").cast("int32")
        return self.paths, partitions, pc.struct_field(self.adds, "size")

    def check(self) -> None:
        """Raise `KeyError` or `ValueError` if this is no whole table."""
        for name in _ONCE:
            if not isinstance(self.single[name], dict):
                raise ValueError(f"{name} is {self.single[name]!r}")
        if any(column.null_count for column in self._columns):
            raise ValueError("a file has no path, partition or size")

    def files(self) -> dict[str, TableFile]:
        """The files that the table shows, by path."""
        rows = zip(*(column.to_pylist() for column in self._columns), strict=True)
        return {path: TableFile(path, partition, size) for path, partition, size in rows}

    def removed_since(self, when_ms: int) -> pa.Array:
        """The paths of the files that it no longer shows, but showed at this time."""
        return pc.struct_field(self.forgetting(when_ms).removes, "path")

    def added(self, paths: Iterable[str]) -> dict[str, Action]:
        """The actions that have added these files, by path, for those that are there."""
        wanted = pa.array([*paths], pa.string())
        rows = self.adds.filter(pc.is_in(self.paths, value_set=wanted))
        return {row["path"]: _as_json(row) for row in rows.to_pylist()}

    def vectors(self) -> list[Action]:
        """The deletion vectors of the files that the table shows."""
        found = pc.struct_field(self.adds, VECTOR).drop_null()
        return [_as_json(row) for row in found.to_pylist()]

    def after(self, actions: Iterable[Action]) -> TableState:
        """The state after the actions of the next entries. Files that a prompt entry removes are
        not remembered: a vacuum keeps them without [PUB-7]. Nor are those that are shown again,
        with another vector: they were never gone."""
        single = dict(self.single)
        adds: dict[str, Action] = {}
        removes: dict[str, Action] = {}
        gone: set[str] = set()
        is_prompt = False
        for action in actions:
            for name, body in action.items():
                if name == "commitInfo":
                    is_prompt = bool(body.get("pylogtable", {}).get("prompt"))
                elif name == "add":
                    adds[body["path"]] = body
                    removes.pop(body["path"], None)
                elif name == "remove":
                    adds.pop(body["path"], None)
                    gone.add(body["path"])
                    if not is_prompt:
                        removes[body["path"]] = body
                elif name in _ONCE:
                    single[name] = body
        changed = pa.array([*{*adds, *gone}], pa.string())
        return TableState(
            _joined(_without(self.adds, changed), adds.values(), _ADD),
            _joined(_without(self.removes, changed), removes.values(), _REMOVE),
            single,
        )

    def forgetting(self, before_ms: int) -> TableState:
        """The same without the files that were removed before this time."""
        late = pc.greater_equal(pc.struct_field(self.removes, "deletionTimestamp"), before_ms)
        return replace(self, removes=self.removes.filter(late))

    def checkpoint(self) -> pa.Table:
        """The rows of a checkpoint: the newest of each action that there is once, all files, and
        the removed files that are remembered."""
        parts = [
            ("protocol", _array([self.single["protocol"]], _PROTOCOL)),
            ("metaData", _array([self.single["metaData"]], _METADATA)),
            ("txn", _array([self.single["txn"]], _TXN)),
            ("add", self.adds),
            ("remove", self.removes),
        ]
        tables = [
            pa.table(
                [
                    rows if column.name == name else pa.nulls(len(rows), column.type)
                    for column in CHECKPOINT_SCHEMA
                ],
                schema=CHECKPOINT_SCHEMA,
            )
            for name, rows in parts
        ]
        made = pa.concat_tables(tables)
        return made if self._has_vectors else _reshaped(made, PLAIN_SCHEMA)

    @property
    def _has_vectors(self) -> bool:
        """True if the table names the feature. Other checkpoints are as they always were."""
        return DELETION_VECTORS in (self.single["protocol"].get("readerFeatures") or ())


def empty_state() -> TableState:
    return TableState(pa.array([], _ADD), pa.array([], _REMOVE))


def state_in_checkpoint(checkpoint: pa.Table) -> TableState:
    """The state that a checkpoint of ours says."""
    checkpoint = _reshaped(checkpoint, CHECKPOINT_SCHEMA).cast(CHECKPOINT_SCHEMA)
    single: dict[str, Action] = {}
    for name in _ONCE:
        rows = checkpoint[name].drop_null().to_pylist()
        if rows:
            single[name] = _as_json(rows[-1])
    adds, removes = _column(checkpoint, "add"), _column(checkpoint, "remove")
    # Older ones name each vector that was replaced, of files that are still shown.
    return TableState(adds, _without(removes, pc.struct_field(adds, "path")), single)


def _reshaped(checkpoint: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows, whose files have a vector or have none, as in this schema."""
    columns = [
        _with_fields(checkpoint[column.name], column.type)
        if column.name in ("add", "remove")
        else checkpoint[column.name]
        for column in schema
    ]
    return pa.table(columns, names=schema.names)


def _with_fields(column: pa.ChunkedArray, kind: pa.StructType) -> pa.Array:
    """The structs with the fields of this type. Fields that are missing are null."""
    rows = column.combine_chunks()
    rows = rows if isinstance(rows, pa.Array) else pa.concat_arrays(rows.chunks)
    there = {field.name for field in rows.type}
    fields = [rows.type.field(f.name) if f.name in there else f for f in kind]
    values = [
        rows.field(f.name) if f.name in there else pa.nulls(len(rows), f.type) for f in fields
    ]
    return pa.StructArray.from_arrays(values, fields=fields, mask=rows.is_null())


def _column(checkpoint: pa.Table, name: str) -> pa.Array:
    rows = checkpoint[name].drop_null().combine_chunks()
    return rows if isinstance(rows, pa.Array) else pa.concat_arrays(rows.chunks)


def _without(rows: pa.Array, paths: pa.Array) -> pa.Array:
    return rows.filter(pc.invert(pc.is_in(pc.struct_field(rows, "path"), value_set=paths)))


def _joined(rows: pa.Array, more: Iterable[Action], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([rows, _array(more, kind)])


def _array(rows: Iterable[Action], kind: pa.DataType) -> pa.Array:
    return pa.array([_as_arrow(row) for row in rows], kind)


def _as_arrow(row: Action) -> dict[str, Any]:
    """The maps of an action as the pairs that Arrow wants."""
    made = dict(row)
    for name in ("partitionValues", "configuration", "options"):
        if isinstance(made.get(name), dict):
            made[name] = list(made[name].items())
    if isinstance(made.get("format"), dict):
        made["format"] = _as_arrow(made["format"])
    return made


def _as_json(row: dict[str, Any]) -> Action:
    """An action of a checkpoint as an entry has it: maps, and nothing that is null."""
    made: Action = {}
    for name, value in row.items():
        if name in ("configuration", "options", "partitionValues"):
            made[name] = dict(value)
        elif name in ("format", VECTOR) and value is not None:
            made[name] = _as_json(value)
        elif value is not None:
            made[name] = value
    return made
