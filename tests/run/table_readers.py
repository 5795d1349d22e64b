"""Readers of published tables that follow them from version to version, as files in a store.

They read what an engine reads, and know nothing of the topic but its name.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import ManifestContent, ManifestFile, read_manifest_list

from pylogtable.storage.base import ObjectStore
from tests.publish.plain_delta import actions, hidden, shown_version

COLUMNS = ["partition", "offset", "timestamp", "key", "value"]
ORDER = [("partition", "ascending"), ("offset", "ascending")]
#: The files of a version of a table by path, and the rows that are hidden in each.
Files = Mapping[str, Sequence[int]]


@dataclass
class DataFiles:
    """The data files of a table. None changes, so each is read once."""

    folder: ObjectStore
    _known: dict[str, pa.Table] = field(default_factory=dict)

    def rows(self, files: Files) -> pa.Table:
        """The rows of these files in order, without those that are hidden."""
        left = [self._left(path, hidden) for path, hidden in files.items()]
        return pa.concat_tables([self._empty, *left]).sort_by(ORDER)

    def _left(self, path: str, hidden: Sequence[int]) -> pa.Table:
        rows = self._read(path)
        mask = np.ones(rows.num_rows, dtype=np.bool_)
        mask[list(hidden)] = False
        return rows if mask.all() else rows.filter(pa.array(mask))

    @property
    def _empty(self) -> pa.Table:
        return shown_columns(pa.table({name: [] for name in COLUMNS}))

    def _read(self, path: str) -> pa.Table:
        if path not in self._known:
            data = self.folder.read(path)
            assert data is not None, f"{path} is shown, but it is not there"
            found = pq.ParquetFile(pa.BufferReader(data)).read(COLUMNS[1:])
            partition = int(path.split("/")[0].partition("=")[2])
            numbers = pa.array([partition] * found.num_rows, pa.int32())
            self._known[path] = shown_columns(found.append_column("partition", numbers))
        return self._known[path]


def shown_columns(table: pa.Table) -> pa.Table:
    """These columns, with types that do not depend on who reads them."""
    stamps = pa.timestamp("us", tz="UTC")
    types = [pa.int32(), pa.int64(), stamps, pa.binary(), pa.binary()]
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    return table.select(COLUMNS).cast(schema).combine_chunks()


class Follower(Protocol):
    """Follows a table. `shown` has the files that the last version showed."""

    shown: Files

    def news(self) -> Iterator[tuple[int, Files]]:
        """For each new version of the table, the version of the topic that it shows, and its
        files."""


class DeltaFollower:
    def __init__(self, folder: ObjectStore) -> None:
        self._folder = folder
        self._number = 0
        self.shown: Files = {}

    def news(self) -> Iterator[tuple[int, Files]]:
        while (data := self._folder.read(f"_delta_log/{self._number:020d}.json")) is not None:
            entry = [json.loads(line) for line in data.splitlines()]
            gone = {action["path"] for action in actions(entry, "remove")}
            assert gone <= {*self.shown}, "a file is removed that was not there"
            kept = {path: rows for path, rows in self.shown.items() if path not in gone}
            added = {
                one["path"]: hidden(self._folder, one.get("deletionVector"))
                for one in actions(entry, "add")
            }
            assert not kept.keys() & added.keys(), "a file is shown twice"
            self.shown = kept | added
            self._number += 1
            yield shown_version(entry), self.shown


class IcebergFollower:
    def __init__(self, folder: ObjectStore) -> None:
        self._folder = folder
        self._io = _Files(folder)
        self._entries: dict[str, list[str]] = {}
        self._number = 1
        self.shown: Files = {}

    def news(self) -> Iterator[tuple[int, Files]]:
        while (data := self._folder.read(f"metadata/v{self._number}.metadata.json")) is not None:
            body = json.loads(data)
            snapshots = {one["snapshot-id"]: one for one in body["snapshots"]}
            newest = snapshots[body["current-snapshot-id"]]
            state = json.loads(newest["summary"]["pylogtable.state"])
            listed = [*read_manifest_list(self._io.new_input(newest["manifest-list"]))]
            of_data = [one for one in listed if one.content == ManifestContent.DATA]
            paths = [path for manifest in of_data for path in self._live(manifest)]
            assert len(paths) == len({*paths}), "a file is shown twice"
            shown: dict[str, list[int]] = {path: [] for path in paths}
            for manifest in listed:
                if manifest.content == ManifestContent.DELETES:
                    for path in self._live(manifest):
                        self._hide(path, shown)
            self.shown = shown
            self._number += 1
            yield int(state["version"]), self.shown

    def _hide(self, deletes: str, shown: dict[str, list[int]]) -> None:
        """Hide the rows that a file of position deletes names."""
        data = self._folder.read(deletes)
        assert data is not None, f"{deletes} is named, but it is not there"
        for row in pq.read_table(pa.BufferReader(data)).to_pylist():
            path = self._io.key_of(row["file_path"])
            if path in shown:
                shown[path].append(row["pos"])

    def _live(self, manifest: ManifestFile) -> list[str]:
        """The paths in a manifest. None of them changes."""
        path = manifest.manifest_path
        if path not in self._entries:
            found = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            self._entries[path] = [self._io.key_of(one.data_file.file_path) for one in found]
        return self._entries[path]


class _Files(FileIO):
    """The objects of a store, for pyiceberg."""

    def __init__(self, folder: ObjectStore) -> None:
        super().__init__()
        self._folder = folder

    def key_of(self, location: str) -> str:
        return location.removeprefix(f"{self._folder.url}/")

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._folder.read(self.key_of(location)))

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: Any) -> None:
        raise NotImplementedError


class _Input(InputFile):
    def __init__(self, location: str, data: bytes | None) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data or b"")

    def exists(self) -> bool:
        return self._data is not None

    def open(self, seekable: bool = True) -> Any:
        assert self._data is not None, f"{self.location} is named, but it is not there"
        return io.BytesIO(self._data)


FOLLOWERS: dict[str, type[DeltaFollower] | type[IcebergFollower]] = {
    "delta": DeltaFollower,
    "iceberg": IcebergFollower,
}
