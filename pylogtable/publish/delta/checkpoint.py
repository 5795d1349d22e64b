"""The files that a Delta table shows, and the checkpoint that lists them. Pure.

A checkpoint is a Parquet file with one action a row, so that a reader need not read every entry of
the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pylogtable.format.schema import PARTITION
from pylogtable.lazy_arrow import pc
from pylogtable.publish.delta.actions import Action
from pylogtable.publish.plan import TableFile

#: The actions of which only the newest counts.
_ONCE = ("protocol", "metaData", "txn")
_TEXTS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _TEXTS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
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
        late = pc.greater_equal(pc.struct_field(self.removes, "deletionTimestamp"), when_ms)
        return pc.struct_field(self.removes.filter(late), "path")

    def after(self, actions: Iterable[Action]) -> TableState:
        """The state after the actions of the next entries."""
        single = dict(self.single)
        adds: dict[str, Action] = {}
        removes: dict[str, Action] = {}
        for action in actions:
            for name, body in action.items():
                if name == "add":
                    adds[body["path"]] = body
                    removes.pop(body["path"], None)
                elif name == "remove":
                    removes[body["path"]] = body
                    adds.pop(body["path"], None)
                elif name in _ONCE:
                    single[name] = body
        changed = pa.array([*adds, *removes], pa.string())
        return TableState(
            _joined(_without(self.adds, changed), adds.values(), _ADD),
            _joined(_without(self.removes, changed), removes.values(), _REMOVE),
            single,
        )

    def checkpoint(self, removed_since_ms: int) -> pa.Table:
        """The rows of a checkpoint: the newest of each action that there is once, all files, and
        the files that were removed not long ago."""
        late = pc.greater_equal(
            pc.struct_field(self.removes, "deletionTimestamp"), removed_since_ms
        )
        parts = [
            ("protocol", _array([self.single["protocol"]], _PROTOCOL)),
            ("metaData", _array([self.single["metaData"]], _METADATA)),
            ("txn", _array([self.single["txn"]], _TXN)),
            ("add", self.adds),
            ("remove", self.removes.filter(late)),
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
        return pa.concat_tables(tables)


def empty_state() -> TableState:
    return TableState(pa.array([], _ADD), pa.array([], _REMOVE))


def state_in_checkpoint(checkpoint: pa.Table) -> TableState:
    """The state that a checkpoint of ours says."""
    checkpoint = checkpoint.cast(CHECKPOINT_SCHEMA)
    single: dict[str, Action] = {}
    for name in _ONCE:
        rows = checkpoint[name].drop_null().to_pylist()
        if rows:
            single[name] = _as_json(rows[-1])
    return TableState(_column(checkpoint, "add"), _column(checkpoint, "remove"), single)


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
        if name in ("configuration", "options"):
            made[name] = dict(value)
        elif name == "format":
            made[name] = _as_json(value)
        elif value is not None:
            made[name] = value
    return made
