"""Reads and writes the manifests and manifest lists of an Iceberg table, with pyiceberg's own Avro
code. Only this module, `avro_records` and the catalog's import pyiceberg, and only when they are
used."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.model import Segment
from pylogtable.publish.iceberg.bounds import Metrics
from pylogtable.publish.iceberg.schema import PARTITION_SPEC, Json
from pylogtable.publish.table import damaged
from pylogtable.storage.base import ObjectStore, check_key
from pylogtable.storage.object_cache import Recent
from pylogtable.storage.threads import borrowed_pool, map_parallel

_MAGIC = b"Obj\x01"
_MARKER_SIZE = 16


def is_complete(data: bytes) -> bool:
    """True if header and blocks are complete, and nothing comes after them."""
    try:
        at = _after_header(data)
        marker = data[at : at + _MARKER_SIZE]
        at += _MARKER_SIZE
        while at < len(data):
            _, at = _long(data, at)  # how many records
            size, at = _long(data, at)
            at += _positive(size)
            if data[at : at + _MARKER_SIZE] != marker:
                return False
            at += _MARKER_SIZE
    except (IndexError, ValueError):
        return False
    return at == len(data)


def _after_header(data: bytes) -> int:
    """Where the marker of the header begins."""
    if not data.startswith(_MAGIC):
        raise ValueError
    count, at = _long(data, len(_MAGIC))
    while count:
        if count < 0:  # then the size of these entries follows
            _, at = _long(data, at)
        for _ in range(2 * abs(count)):  # names and values
            if at >= len(data):
                raise ValueError
            size, at = _long(data, at)
            at += _positive(size)
        count, at = _long(data, at)
    return at


def _positive(size: int) -> int:
    if size < 0:
        raise ValueError
    return size


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


METADATA_DIR = "metadata/"

#: An entry of a manifest, and a manifest as its list describes it: objects of pyiceberg.
Entry = Any
Manifest = Any

_CODEC = "deflate"
_T = TypeVar("_T")


def need_pyiceberg() -> None:
    """Raise if pyiceberg is not installed."""
    try:
        import pyiceberg.manifest  # noqa: F401
    except ImportError as error:
        raise InvalidRequestError(
            "to publish a topic as an Iceberg table, or to vacuum one that is published so, "
            "pyiceberg is needed: pip install 'pylogtable[iceberg]'"
        ) from error


class ManifestFiles:
    """The manifests of the table of the topic at the root of `store`. `location` is the address
    that the table has for it. What is written waits for `flush`; some of it is kept in memory."""

    def __init__(self, store: ObjectStore, location: str) -> None:
        self.limits = store.limits
        self._store = store
        self._location = location
        self._waiting: dict[str, bytes] = {}
        self._recent: Recent[bytes] = Recent()

    def listed(self, place: str) -> list[Manifest]:
        """The manifests in a manifest list."""
        from pylogtable.publish.iceberg.avro_records import manifests_in

        data = self._read(place)
        return _decoded(self.key(place), lambda: manifests_in(data))

    def entries(self, manifest: Manifest) -> list[Entry]:
        """All entries of a manifest, deleted ones too."""
        from pylogtable.publish.iceberg.avro_records import entries_in

        place = manifest.manifest_path
        data = self._read(place)
        return _decoded(self.key(place), lambda: _placed(entries_in(data, manifest)))

    def each(self, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest, list[Entry]]]:
        """Manifests with their entries, one after the other. Where requests are slow, some are sent
        at once."""
        workers = max(1, min(self._store.concurrency, len(manifests)))
        with borrowed_pool(workers) as pool:
            for start in range(0, len(manifests), workers):
                wave = manifests[start : start + workers]
                yield from zip(wave, pool.map(self.entries, wave), strict=True)

    def live_entries(self, manifests: Sequence[Manifest]) -> list[Entry]:
        """The entries of files that the table shows, in partition and offset order."""
        found = [e for _, entries in self.each(manifests) for e in entries if is_live(e)]
        return sorted(found, key=lambda e: (e.data_file.partition[0], e.data_file.file_path))

    def deleted_entries(self, place: str, snapshot_id: int) -> list[Entry]:
        """The entries of the files that a snapshot removed, by its manifest list."""
        mine = [
            manifest
            for manifest in self.listed(place)
            if manifest.added_snapshot_id == snapshot_id and manifest.deleted_files_count
        ]
        return [e for _, entries in self.each(mine) for e in entries if not is_live(e)]

    def write(
        self,
        name: str,
        snapshot_id: int,
        schema: Json,
        entries: Iterable[Entry],
        *,
        of_deletes: bool = False,
    ) -> Manifest:
        """Write a manifest, of data files or of delete files. There is at least one entry."""
        from pyiceberg.manifest import write_manifest
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.schema import Schema

        spec = PartitionSpec.model_validate(PARTITION_SPEC)
        target = _Output(self.place(f"{METADATA_DIR}{name}"))
        columns = Schema.model_validate(schema)
        made = (spec, columns, target, snapshot_id, _CODEC)
        with _delete_writer(*made) if of_deletes else write_manifest(2, *made) as writer:
            for entry in entries:
                writer.add_entry(entry)
        self._waiting[f"{METADATA_DIR}{name}"] = target.data
        return writer.to_manifest_file()

    def write_list(
        self,
        name: str,
        snapshot_id: int,
        parent_id: int | None,
        sequence_number: int,
        manifests: Sequence[Manifest],
    ) -> str:
        """Write a manifest list. Returns its place."""
        from pyiceberg.manifest import write_manifest_list

        target = _Output(self.place(f"{METADATA_DIR}{name}"))
        ids = (snapshot_id, parent_id, sequence_number)
        with write_manifest_list(2, target, *ids, _CODEC) as writer:
            if manifests:
                writer.add_manifests([*manifests])
        self._waiting[f"{METADATA_DIR}{name}"] = target.data
        return target.location

    def flush(self) -> None:
        """Write to the store what waits, side by side."""
        map_parallel(self._store, lambda one: self._store.write(*one), [*self._waiting.items()])
        for key, data in self._waiting.items():
            self._recent.keep(key, data, len(data))
        self._waiting.clear()

    def forget_waiting(self) -> None:
        """Forget what an earlier publication, which failed, has not written."""
        self._waiting.clear()

    def place(self, key: str) -> str:
        """The address of an object, as the table has it."""
        return f"{self._location}/{key}"

    def key(self, place: str) -> str:
        """The key in the store of a place in the table. Raises if it is elsewhere."""
        prefix = f"{self._location}/"
        if not place.startswith(prefix):
            raise damaged(place, f"it is not below {prefix}")
        try:
            return check_key(place[len(prefix) :])
        except InvalidRequestError as error:
            raise damaged(place, "it is no name of an object") from error

    def _read(self, place: str) -> bytes:
        key = self.key(place)
        data = self._waiting.get(key) or self._recent.find(key) or self._store.read(key)
        if data is None:
            raise damaged(self.key(place), "it is missing")
        if not is_complete(data):
            raise damaged(self.key(place), f"it is not a whole Avro file ({len(data)} bytes)")
        return data


def added_entry(place: str, file: Segment, metrics: Metrics, snapshot_id: int) -> Entry:
    """The entry of a new file at this place. Its sequence numbers are those of its snapshot."""
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        FileFormat,
        ManifestEntry,
        ManifestEntryStatus,
    )
    from pyiceberg.typedef import Record

    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(file.partition),
        record_count=file.records,
        file_size_in_bytes=file.size_bytes,
        value_counts=metrics.values,
        null_value_counts=metrics.nulls,
        lower_bounds=metrics.lower,
        upper_bounds=metrics.upper,
    )
    status = ManifestEntryStatus.ADDED
    return ManifestEntry.from_args(status=status, snapshot_id=snapshot_id, data_file=data_file)


def is_deletes(manifest: Manifest) -> bool:
    """True if a manifest has delete files, and not data files."""
    from pyiceberg.manifest import ManifestContent

    return bool(manifest.content == ManifestContent.DELETES)


def is_live(entry: Entry) -> bool:
    """True if the table shows the file."""
    from pyiceberg.manifest import ManifestEntryStatus

    return bool(entry.status != ManifestEntryStatus.DELETED)


def kept_entry(entry: Entry) -> Entry:
    """The entry of a file that an earlier snapshot added."""
    from pyiceberg.manifest import ManifestEntryStatus

    entry.status = ManifestEntryStatus.EXISTING
    return entry


def deleted_entry(entry: Entry, snapshot_id: int) -> Entry:
    """The entry of a file that this snapshot removes."""
    from pyiceberg.manifest import ManifestEntryStatus

    entry.status = ManifestEntryStatus.DELETED
    entry.snapshot_id = snapshot_id
    return entry


def partitions_in(manifest: Manifest) -> range | None:
    """The partitions from which a manifest has files; None if it does not say."""
    summary = manifest.partitions
    if not summary or summary[0].lower_bound is None or summary[0].upper_bound is None:
        return None
    low, high = (
        int.from_bytes(bound, "little", signed=True)
        for bound in (summary[0].lower_bound, summary[0].upper_bound)
    )
    return range(low, high + 1)


def _placed(entries: list[Entry]) -> list[Entry]:
    """The same entries. Raises if one has no partition."""
    if not all(isinstance(entry.data_file.partition[0], int) for entry in entries):
        raise ValueError("an entry has no partition")
    return entries


def _decoded(key: str, decode: Callable[[], list[_T]]) -> list[_T]:
    try:
        return decode()
    except LogTableError:
        raise
    except Exception as error:  # damaged bytes give errors of zlib and of pyiceberg
        raise damaged(key, f"it cannot be decoded: {error}") from error


def _delete_writer(*args: Any) -> Any:
    """pyiceberg's writer of a manifest, for one of delete files: it has only one for data files."""
    from pyiceberg.manifest import ManifestContent, ManifestWriterV2

    class _Writer(ManifestWriterV2):  # type: ignore[misc]  # pyiceberg is Any here
        def content(self) -> Any:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    return _Writer(*args)


class _Output:
    """A new file, in memory, as pyiceberg's writers want it."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._sink = io.BytesIO()
        self.data = b""

    def create(self, overwrite: bool = False) -> _Output:
        return self

    def write(self, data: bytes) -> int:
        return self._sink.write(data)

    def tell(self) -> int:
        return self._sink.tell()

    def close(self) -> None:
        self.data = self._sink.getvalue()

    def __len__(self) -> int:
        return len(self.data)
