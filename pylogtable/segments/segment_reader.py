"""One open Parquet file of a segment. What is read is what the entry says, or an error
[SEG-2], [SEG-3], [SEG-5], [SEG-11]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pylogtable.errors import CorruptTopicError, LogTableError, SegmentGoneError, StorageError
from pylogtable.format.footer_checks import (
    Bounds,
    GroupFacts,
    check_footer,
    check_footer_columns,
    check_footer_offsets,
    check_times,
)
from pylogtable.format.footer_filters import ChunkId
from pylogtable.format.json_bytes import checksum
from pylogtable.format.model import Segment
from pylogtable.format.schema import OFFSET, TIMESTAMP
from pylogtable.lazy_arrow import pc, pq
from pylogtable.segments.bounded_decode import GroupPlan, unfold
from pylogtable.segments.footer import read_footer
from pylogtable.segments.inline_reader import InlineReader
from pylogtable.storage.base import ObjectMissingError, ObjectStore

SMALL_BYTES = 64 << 10


class SegmentReader:
    """One open file of a live segment. Opening reads its footer and compares it with the entry."""

    def __init__(self, store: ObjectStore, segment: Segment) -> None:
        self.segment = segment
        self._limits = store.limits
        with segment_errors(segment.path):
            self._input = store.open_input(segment.path, segment.size_bytes)
            self._footer = read_footer(self._input, segment, store.limits.footer_bytes)
            self.metadata = self._footer.metadata
            self._files: dict[tuple[str, ...], Any] = {}
            self.schema: pa.Schema = self._file([]).schema_arrow.remove_metadata()
            check_footer_columns(segment.path, self.schema)
            self.groups = self._facts()
            check_footer(segment, self.metadata.num_rows, self.groups)

    @property
    def group_bytes(self) -> list[int]:
        """The bytes of each row group, compressed."""
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        columns = range(self.metadata.num_columns)
        return [sum(group.column(c).total_compressed_size for c in columns) for group in groups]

    def column_index(self, name: str) -> int | None:
        """The index of a top-level column without children among the file's leaf columns."""
        for index in range(self.metadata.num_columns):
            if self.metadata.schema.column(index).path == name:
                return index
        return None

    def statistics(self, group: int, column: int) -> Any:
        """The statistics of a column chunk; None if it has none."""
        with segment_errors(self.segment.path):
            chunk = self.metadata.row_group(group).column(column)
            return self._statistics(group, chunk, column)

    def _statistics(self, group: int, chunk: Any, column: int) -> Any:
        # If these differ, pyarrow ends the process when it is asked for statistics.
        wanted = self.metadata.schema.column(column).physical_type
        if chunk.physical_type != wanted:
            detail = f"a column is {chunk.physical_type} in row group {group}, not {wanted}"
            raise CorruptTopicError(self.segment.path, "SEG-2", detail)
        return chunk.statistics

    def has_filter(self, group: int, column: int) -> bool:
        """True if a column chunk has a Bloom filter."""
        with segment_errors(self.segment.path):
            return ChunkId(group, column) in self._footer.filters

    def read_filter(self, group: int, column: int) -> bytes | None:
        """The Bloom filter of a column chunk. None if there is none, or if it is damaged: a filter
        only saves work, and must not hide a key [SUM-3]."""
        chunk = ChunkId(group, column)
        with segment_errors(self.segment.path):
            place = self._footer.filters.get(chunk)
            if place is None:
                return None
            data = self._footer.at_hand(place)
            if data is None:
                self._input.seek(place.offset)
                data = self._input.read(place.length)
        sums = self.filter_checksums
        if sums is not None and sums.get(chunk) != checksum(data):
            return None
        return data

    @property
    def filter_checksums(self) -> dict[ChunkId, str] | None:
        """The checksum of each Bloom filter; None if there are none."""
        with segment_errors(self.segment.path):
            return self._footer.filter_checksums

    def batches(
        self, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, as they are stored. One row group is in memory at a
        time; columns that lie side by side are fetched in one request."""
        for group in row_groups:
            with segment_errors(self.segment.path):
                yield from self._proven(group, list(columns))

    def _proven(self, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The batches of a row group. Offsets and times that are read are compared with the entry.
        Offsets are also read if the footer does not prove them [SEG-11]."""
        facts = self.groups[group]
        is_hidden = OFFSET not in columns and facts.offsets is None
        last: int | None = None
        rows = 0
        names = [*columns, OFFSET] if is_hidden else columns
        plan = GroupPlan(self.segment.path, self.metadata, group, names, self._limits)
        for batch in self._file(plan.dictionaries).iter_batches(
            batch_size=plan.rows,
            row_groups=[group],
            columns=names,
            # Decoding a small file in threads takes longer than decoding it.
            use_threads=self.segment.size_bytes > SMALL_BYTES,
        ):
            if not batch.num_rows:
                continue
            at = batch.schema.get_field_index(OFFSET)
            if at >= 0:
                offsets = batch.column(at).to_numpy()
                last = check_footer_offsets(self.segment, group, offsets, last)
            at = batch.schema.get_field_index(TIMESTAMP)
            if at >= 0:
                check_times(self.segment, batch.column(at).view(pa.int64()).to_numpy())
            rows += batch.num_rows
            if is_hidden:
                batch = batch.drop_columns([OFFSET])
            yield from unfold(self.segment.path, batch, self._limits)
        if rows != facts.rows:
            raise CorruptTopicError(
                self.segment.path,
                "SEG-2",
                f"{rows} rows can be read from row group {group}; the footer says {facts.rows}",
            )

    def _file(self, dictionaries: list[str]) -> Any:
        """The open file, which gives these columns as dictionaries. Opening it again costs nothing,
        since its footer is known."""
        key = tuple(dictionaries)
        if key not in self._files:
            self._files[key] = pq.ParquetFile(
                self._input,
                metadata=self.metadata,
                pre_buffer=True,
                read_dictionary=dictionaries,
                page_checksum_verification=True,
            )
        return self._files[key]

    def true_offsets(self, batch: pa.RecordBatch) -> pa.Array:
        """The offsets of the records [LOG-1]."""
        stored = batch.column(OFFSET)
        return pc.add(stored, self.segment.shift) if self.segment.shift else stored

    def _facts(self) -> list[GroupFacts]:
        offset, timestamp = self.column_index(OFFSET), self.column_index(TIMESTAMP)
        assert offset is not None
        assert timestamp is not None
        groups = []
        for number in range(self.metadata.num_row_groups):
            group = self.metadata.row_group(number)
            offsets = _bounds(self._statistics(number, group.column(offset), offset))
            times = _bounds(self._statistics(number, group.column(timestamp), timestamp))
            groups.append(GroupFacts(group.num_rows, offsets, times))
        return groups


def _bounds(statistics: Any) -> Bounds | None:
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min_raw, statistics.max_raw


class segment_errors:
    """Turns errors of Parquet and of the store into errors that name this file. Damaged bytes make
    pyarrow raise almost anything, also a failed allocation of an absurd size."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, ObjectMissingError):
            raise SegmentGoneError(self._path, str(error)) from error
        if isinstance(error, LogTableError):
            return
        # Parquet's own complaints are an OSError without a number.
        if type(error) is OSError and error.errno is None:
            raise CorruptTopicError(self._path, "SEG-2", str(error)) from error
        if isinstance(error, OSError):
            raise StorageError(f"cannot read {self._path}: {error}") from error
        if isinstance(error, _DAMAGE):
            detail = f"{type(error).__name__}: {error}"
            raise CorruptTopicError(self._path, "SEG-2", detail) from error


_DAMAGE = (
    pa.ArrowException,
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    NotImplementedError,
    MemoryError,
    SystemError,
)


#: What reads records: both have the same methods.
Records = SegmentReader | InlineReader


def open_segment(store: ObjectStore, segment: Segment, *, bypass_cache: bool = False) -> Records:
    """The records of a live segment: in its file, or in its commit [INL-1]. Rows of a commit that
    are still in memory are used, unless `bypass_cache`."""
    if segment.is_inline:
        return InlineReader(store, segment, bypass_cache=bypass_cache)
    return SegmentReader(store, segment)
