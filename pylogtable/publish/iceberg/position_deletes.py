"""Position deletes of an Iceberg table: which rows of a file a table hides.

A delete file adds to those before it, so a publication writes only what is hidden anew: one file
for each partition. When a partition has many, small ones are joined. They are written without the
rows that are shown again, and without rows of files that the table no longer shows.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pylogtable.lazy_arrow import pq
from pylogtable.publish.hidden_rows import HiddenRows, RowChange
from pylogtable.publish.iceberg.log import delete_file_name
from pylogtable.publish.iceberg.manifests import (
    METADATA_DIR,
    Entry,
    Manifest,
    ManifestFiles,
    deleted_entry,
    is_deletes,
    is_live,
    kept_entry,
)
from pylogtable.publish.plan import Shown, TableChange
from pylogtable.publish.roaring import Int64s, Numbers, numbers, sorted_array
from pylogtable.publish.table import damaged
from pylogtable.read.plan import Span
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.threads import map_parallel

#: A partition with more delete files gets some of them joined.
MOST_FILES = 10
#: The ids that Iceberg reserves for the columns of a delete file.
PATH_ID, ROW_ID = 2147483546, 2147483545
#: A path is in memory once for all of its rows. In the file it is a string.
_PATHS = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [
        pa.field("file_path", _PATHS, False, {b"PARQUET:field_id": b"%d" % PATH_ID}),
        pa.field("pos", pa.int64(), False, {b"PARQUET:field_id": b"%d" % ROW_ID}),
    ]
)

#: Rows by the place of their file.
Rows = dict[str, Numbers]


@dataclass(frozen=True)
class DeleteStep:
    """The delete files of a new snapshot: all that it has, and those that it adds and removes."""

    kept: Sequence[Entry] = ()
    added: Sequence[Entry] = ()
    removed: Sequence[Entry] = ()

    @property
    def entries(self) -> list[Entry]:
        """The entries of its manifest; none if nothing changes."""
        if not self.added and not self.removed:
            return []
        return [*self.added, *map(kept_entry, self.kept), *self.removed]


@dataclass(frozen=True)
class DeleteFiles:
    """Reads the delete files of the topic at the root of `store`."""

    store: ObjectStore
    manifests: ManifestFiles

    def live(self, listed: Iterable[Manifest]) -> list[Entry]:
        """The entries of the delete files among these manifests."""
        mine = [manifest for manifest in listed if is_deletes(manifest)]
        return [e for _, entries in self.manifests.each(mine) for e in entries if is_live(e)]

    def rows(self, entries: Sequence[Entry], places: Iterable[str]) -> Rows:
        """The rows that these delete files hide in files at these places."""
        wanted = {*places}
        some = [entry for entry in entries if _may_have(entry, wanted)]
        found: Rows = {}
        for of in map_parallel(self.store, lambda entry: self._read(entry, wanted), some):
            for place, rows in of.items():
                found[place] = found[place] | rows if place in found else rows
        return found

    def _read(self, entry: Entry, wanted: set[str]) -> Rows:
        key = self.manifests.key(entry.data_file.file_path)
        data = self.store.read(key)
        if data is None:
            raise damaged(key, "it is missing", "PUB-9")
        found: Rows = {}
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            if file.metadata.num_rows != entry.data_file.record_count:
                raise ValueError(f"it has {file.metadata.num_rows} rows")
            for batch in file.iter_batches(columns=_SCHEMA.names):
                for place, rows in _by_place(batch):
                    if place in wanted:
                        found[place] = found[place] | rows if place in found else rows
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise damaged(key, f"it cannot be read: {error}", "PUB-9") from error
        return found


@dataclass(frozen=True)
class DeletePlanner:
    """Plans and writes the delete files of one publication."""

    files: DeleteFiles
    hidden: HiddenRows
    wanted: Shown
    change: TableChange
    publish_id: str

    def step(self, listed: Iterable[Manifest], snapshot_id: int) -> DeleteStep:
        """What the snapshot changes, with the new delete files written."""
        live = self.files.live(listed)
        if not self.hidden.total:
            return DeleteStep(removed=[deleted_entry(entry, snapshot_id) for entry in live])
        there: dict[int, list[Entry]] = {}
        for entry in live:
            there.setdefault(entry.data_file.partition[0], []).append(entry)
        more: dict[int, list[RowChange]] = {}
        for one in self.hidden.changes.values():
            more.setdefault(one.file.partition, []).append(one)
        gone = {removed.file.partition for removed in self.change.removed if removed.is_data}
        kept: list[Entry] = []
        removed: list[Entry] = []
        new: dict[int, Rows] = {}
        for number in sorted({*there, *more}):
            changes, files = more.get(number, []), there.get(number, [])
            is_new = number in gone or any(one.shown for one in changes)
            replaced = files if is_new else _to_join(files, more=bool(changes))
            rows = self._rows(number, replaced)
            for one in changes:
                place = self.files.manifests.place(one.file.path)
                rows[place] = (rows.get(place, numbers()) | one.hidden) - one.shown
            new[number] = {place: of for place, of in rows.items() if of}
            taken = {entry.data_file.file_path for entry in replaced}
            kept += [entry for entry in files if entry.data_file.file_path not in taken]
            removed += [deleted_entry(entry, snapshot_id) for entry in replaced]
        return DeleteStep(kept, self._write(new, snapshot_id), removed)

    def _rows(self, number: int, files: Sequence[Entry]) -> Rows:
        """The rows of these delete files, in data files that the table shows before and after. What
        they say of a file that comes again was true of another version of the topic."""
        if not files:
            return {}
        added = {new.file.path for new in self.change.added}
        shown = self.wanted.files(Span(number, 0, self.wanted.snapshot.partitions[number].end))
        kept = [file.path for file in shown if file.path not in added]
        return self.files.rows(files, map(self.files.manifests.place, kept))

    def _write(self, new: Mapping[int, Rows], snapshot_id: int) -> list[Entry]:
        made = [(number, rows) for number, rows in new.items() if rows]

        def write(at: int) -> Entry:
            number, rows = made[at]
            name = f"{METADATA_DIR}{delete_file_name(self.publish_id, at)}"
            data = encode_rows(rows, self.files.store.limits.delete_rows)
            self.files.store.write(name, data)
            return _added_entry(
                self.files.manifests.place(name), number, rows, len(data), snapshot_id
            )

        return map_parallel(self.files.store, write, [*range(len(made))])


def _to_join(files: Sequence[Entry], *, more: bool) -> Sequence[Entry]:
    """The delete files of a partition to join with the next one: the smaller half of many."""
    if not more or len(files) < MOST_FILES:
        return ()
    ranked = sorted(files, key=lambda entry: entry.data_file.record_count)
    return ranked[: MOST_FILES // 2 + 1]


def _may_have(entry: Entry, places: set[str]) -> bool:
    """False if a delete file has certainly no row of a file at one of these places."""
    file = entry.data_file
    low, high = (file.lower_bounds or {}).get(PATH_ID), (file.upper_bounds or {}).get(PATH_ID)
    if low is None or high is None:
        return True
    return any(low <= place.encode() <= high for place in places)


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[str, Numbers]]:
    encoded = batch.column(0).dictionary_encode()
    codes, rows = encoded.indices.to_numpy(), batch.column(1).to_numpy()
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for mine in np.split(order, starts[1:]) if len(order) else ():
        yield encoded.dictionary[int(codes[mine[0]])].as_py(), numbers(rows[mine])


def encode_rows(rows: Rows, at_once: int) -> bytes:
    """A delete file, made of so many rows at a time: each row has the path of its file."""
    sink = io.BytesIO()
    options = {"compression": "zstd", "use_dictionary": ["file_path"], "store_schema": False}
    with pq.ParquetWriter(sink, _SCHEMA, **options) as writer:
        for batch in _batches(rows, at_once):
            writer.write_batch(batch)
    return sink.getvalue()


def _batches(rows: Rows, at_once: int) -> Iterator[pa.RecordBatch]:
    """The rows of a delete file: sorted by file and row, as Iceberg asks."""
    waiting: list[tuple[str, Int64s]] = []
    room = at_once
    for place in sorted(rows):
        found = rows[place]
        at = 0
        while at < len(found):
            part = sorted_array(found[at : at + room])
            waiting.append((place, part))
            at, room = at + len(part), room - len(part)
            if not room:
                yield _batch(waiting)
                waiting, room = [], at_once
    if waiting:
        yield _batch(waiting)


def _batch(parts: Sequence[tuple[str, Int64s]]) -> pa.RecordBatch:
    codes = np.repeat(np.arange(len(parts), dtype=np.int32), [len(of) for _, of in parts])
    paths = pa.DictionaryArray.from_arrays(codes, pa.array([place for place, _ in parts]))
    positions = np.concatenate([of for _, of in parts])
    return pa.record_batch([paths, pa.array(positions)], schema=_SCHEMA)


def _added_entry(
    place: str, partition: int, rows: Rows, size_bytes: int, snapshot_id: int
) -> Entry:
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
    )
    from pyiceberg.typedef import Record

    count = sum(map(len, rows.values()))
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=count,
        file_size_in_bytes=size_bytes,
        value_counts={PATH_ID: count, ROW_ID: count},
        null_value_counts={PATH_ID: 0, ROW_ID: 0},
        lower_bounds={PATH_ID: min(rows).encode()},
        upper_bounds={PATH_ID: max(rows).encode()},
    )
    status = ManifestEntryStatus.ADDED
    return ManifestEntry.from_args(status=status, snapshot_id=snapshot_id, data_file=file)
