"""Writing one partition's records as a sequence of segment files of at most `segment.bytes` each.

Records wait until they make a row group. A background thread encodes row groups in order. When the
next row group would overfill the file, the file is closed and a new one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.format.model import StagedSegment
from pylogtable.format.schema import OFFSET, file_schema
from pylogtable.segments.file_layout import FileLayout
from pylogtable.segments.writer import SegmentWriter
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class Output:
    """Where a rolling writer writes: the files of one partition of one topic."""

    store: ObjectStore
    layout: FileLayout
    partition: int
    new_id: Callable[[], str]


class RollingWriter:
    """Writes records from `first_offset` on. `files` has the finished files, in order. `hashed` is
    true as long as keys alone decided that records belong to this partition.

    Batches may carry an `offset` column; without one, offsets count up. One thread adds and
    starts the encoding, and at most one encoding runs at a time.
    """

    def __init__(
        self,
        output: Output,
        first_offset: int,
        row_group_bytes: int | None = None,
    ) -> None:
        self.files: list[StagedSegment] = []
        self.hashed = True
        self.waiting_bytes = 0
        self._output = output
        self._segment_bytes = output.layout.segment_bytes
        limits = output.store.limits
        self._row_group_rows = limits.row_group_rows
        self._row_group_bytes = row_group_bytes or limits.row_group_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_records = 0
        self._writer: SegmentWriter | None = None
        self._file_start = first_offset
        self._next_offset = first_offset
        self._raw_bytes = 0
        self._encoding: Future[None] | None = None

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def is_due(self) -> bool:
        """True if the waiting records make a row group."""
        return (
            self._waiting_records >= self._row_group_rows
            or self.waiting_bytes >= self._row_group_bytes
        )

    def add(self, batch: pa.RecordBatch, *, hashed: bool = True) -> None:
        """Hold these records until `start_encoding`."""
        self.hashed &= hashed
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_records += batch.num_rows
        self.waiting_bytes += batch.nbytes

    @property
    def has_written(self) -> bool:
        """True if some of its records are in a file, or on their way."""
        return bool(self.files) or self._writer is not None or self._encoding is not None

    @property
    def waiting(self) -> pa.Table:
        """The records that are held."""
        return pa.Table.from_batches(self._waiting)

    def encode_waiting(self) -> None:
        """Encode the waiting records in this thread."""
        if self._waiting:
            self._encode(*self._take(keep_rest=False))

    def start_encoding(
        self, encoder: Executor, *, keep_rest: bool = False
    ) -> tuple[Future[None], int] | None:
        """Encode the waiting records on `encoder`. Returns the future and their bytes, or None if
        nothing waits. With `keep_rest`, records beyond whole row groups keep waiting."""
        if not self._waiting:
            return None
        self.wait_for_encoding()
        records, size = self._take(keep_rest)
        self._encoding = encoder.submit(self._encode, records, size)
        return self._encoding, size

    def wait_for_encoding(self) -> None:
        """Wait until nothing is being encoded; raises what went wrong."""
        if self._encoding is not None:
            encoding, self._encoding = self._encoding, None
            encoding.result()

    def close_file(self) -> None:
        """Close the open file, if there is one."""
        if self._writer is None:
            return
        self.files.append(self._writer.close(hashed=self.hashed))
        self._writer = None
        self._file_start = self._next_offset

    def write_empty_file(self) -> None:
        """Write a file without records."""
        columns = file_schema(self._output.layout.topic.fields)
        self._open_file(columns.empty_table().drop_columns([OFFSET]))
        self.close_file()

    def abandon(self, error: BaseException) -> None:
        """Remove every file, since no commit will name them. No encoding may be running."""
        if self._writer is not None:
            with suppress(StorageError):
                self._writer.abandon(error)
        for file in self.files:
            with suppress(StorageError):
                self._output.store.delete(file.path)

    def _take(self, keep_rest: bool) -> tuple[pa.Table, int]:
        records, size = pa.Table.from_batches(self._waiting), self.waiting_bytes
        wanted = records.num_rows
        if keep_rest and wanted >= self._row_group_rows:
            wanted -= wanted % self._row_group_rows
        taken_bytes = size * wanted // records.num_rows
        self._waiting = records.slice(wanted).to_batches()
        self._waiting_records -= wanted
        self.waiting_bytes -= taken_bytes
        return records.slice(0, wanted), taken_bytes

    def _encode(self, records: pa.Table, raw_bytes: int) -> None:
        bytes_per_record = raw_bytes / records.num_rows
        for group in self._row_groups(records, raw_bytes):
            offsets = None
            if OFFSET in group.column_names:
                offsets = group[OFFSET].to_numpy()
                group = group.drop_columns([OFFSET])
                self._next_offset = int(offsets[0])
            self._close_if_full(group.num_rows * bytes_per_record)
            if self._writer is None:
                self._writer = self._open_file(group)
            self._writer.write_row_group(group, offsets)
            self._raw_bytes += int(group.num_rows * bytes_per_record)
            after = self._next_offset + group.num_rows
            self._next_offset = after if offsets is None else int(offsets[-1]) + 1

    def _row_groups(self, records: pa.Table, raw_bytes: int) -> Iterator[pa.Table]:
        """The records in row groups of even size."""
        count = records.num_rows
        groups = max(-(-count // self._row_group_rows), -(-raw_bytes // self._row_group_bytes))
        size = -(-count // max(1, min(groups, count)))
        for at in range(0, count, size):
            yield records.slice(at, size)

    def _close_if_full(self, raw_bytes: float) -> None:
        """Close the file if the next row group, compressed like those before, would overfill it."""
        if self._writer is not None:
            size = self._writer.size_bytes
            if size + raw_bytes * size / max(1, self._raw_bytes) > self._segment_bytes:
                self.close_file()

    def _open_file(self, first_group: pa.Table) -> SegmentWriter:
        self._raw_bytes = 0
        self._writer = SegmentWriter(
            self._output.store,
            partition=self._output.partition,
            floor=self._file_start,
            file_id=self._output.new_id(),
            layout=self._output.layout,
            like=first_group,
        )
        return self._writer
