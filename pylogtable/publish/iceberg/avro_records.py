"""Decodes the records of manifests and manifest lists with pyiceberg's readers, but not with its
compiled decoder: that one trusts every count, and damaged bytes can end the process. Modules import
this one only when they use it, as pyiceberg itself."""

from __future__ import annotations

from typing import Any

from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import AvroFile, Block
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)


def manifests_in(data: bytes) -> list[Any]:
    """The manifests in a manifest list."""
    types = {-1: ManifestFile, 508: PartitionFieldSummary}
    enums = {517: ManifestContent}
    return _records(data, MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION], types, enums)


def entries_in(data: bytes, manifest: Any) -> list[Any]:
    """All entries of a manifest, deleted ones too. What an entry leaves out, the manifest says, as
    Iceberg's specification has it."""
    types = {-1: ManifestEntry, 2: DataFile}
    enums = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    entries = _records(data, MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION], types, enums)
    for entry in entries:
        _inherit(entry, manifest)
    return entries


def _inherit(entry: Any, manifest: Any) -> None:
    if entry.snapshot_id is None:
        entry.snapshot_id = manifest.added_snapshot_id
    if manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id


def _records(data: bytes, schema: Any, types: dict[int, Any], enums: dict[int, Any]) -> list[Any]:
    with _CheckedFile(data, schema, types, enums) as records:
        return [*records]


class _CheckedFile(AvroFile[Any]):  # type: ignore[misc]  # pyiceberg is Any here
    """An Avro file whose decoder notices where the bytes end."""

    def __init__(
        self, data: bytes, schema: Any, types: dict[int, Any], enums: dict[int, Any]
    ) -> None:
        super().__init__(None, schema, types, enums)  # its bytes are here already
        self._data = data
        self.block: Block[Any] | None = None

    def __enter__(self) -> _CheckedFile:
        self.decoder = StreamingBinaryDecoder(self._data)
        self.header = self._read_header()
        self.schema = self.header.get_schema()
        self.reader = resolve_reader(
            self.schema, self.read_schema, self.read_types, self.read_enums
        )
        return self

    def _read_block(self) -> int:
        if self.block:
            self.decoder.skip(16)  # the marker: the frame was checked already
        records, data = self.decoder.read_int(), self.decoder.read_bytes()
        if codec := self.header.compression_codec():
            data = codec.decompress(data)
        self.block = Block(self.reader, records, StreamingBinaryDecoder(data))
        return int(records)
