"""One open Parquet file of a segment. What is read is what the entry says, or an error
[SEG-2], [SEG-3], [SEG-5], [SEG-11]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pylogtable.errors import CorruptTopicError, LogTableError, SegmentGoneError, StorageError
from pylogtable.format.agreement import (
    Bounds,
    GroupFacts,
    check_footer,
    check_log_columns,
    check_offsets,
)
from pylogtable.format.model import Segment
from pylogtable.format.schema import OFFSET, TIMESTAMP
from pylogtable.lazy_arrow import pc, pq
from pylogtable.storage.base import ObjectMissingError, ObjectStore

BATCH_ROWS = 131_072
SMALL_BYTES = 64 << 10


class SegmentReader:
    """One open file of a live segment. Opening reads its footer and compares it with the entry."""

    def __init__(self, store: ObjectStore, segment: Segment) -> None:
        self.segment = segment
        with errors_naming(segment.path):
            self._input = store.open_input(segment.path, segment.size_bytes)
            self._file = pq.ParquetFile(self._input, pre_buffer=True)
            self.metadata = self._file.metadata
            self.schema: pa.Schema = self._file.schema_arrow
            check_log_columns(segment.path, self.schema)
            self.groups = self._facts()
            check_footer(segment, self.metadata.num_rows, self.groups)

    def column_index(self, name: str) -> int | None:
        """The index of a top-level column without children among the file's leaf columns."""
        for index in range(self.metadata.num_columns):
            if self.metadata.schema.column(index).path == name:
                return index
        return None

    def statistics(self, group: int, column: int) -> Any:
        """The statistics of a column chunk; None if it has none."""
        with errors_naming(self.segment.path):
            chunk = self.metadata.row_group(group).column(column)
            # If these differ, pyarrow ends the process when it is asked for statistics.
            wanted = self.metadata.schema.column(column).physical_type
            if chunk.physical_type != wanted:
                detail = f"a column is {chunk.physical_type} in row group {group}, not {wanted}"
                raise CorruptTopicError(self.segment.path, "SEG-2", detail)
            return chunk.statistics

    def read_bytes(self, offset: int, length: int) -> bytes:
        with errors_naming(self.segment.path):
            self._input.seek(offset)
            data: bytes = self._input.read(length)
        return data

    def batches(
        self, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, as they are stored. One row group is in memory at a
        time; columns that lie side by side are fetched in one request."""
        for group in row_groups:
            with errors_naming(self.segment.path):
                yield from self._proven(group, list(columns))

    def _proven(self, group: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The batches of a row group. Offsets that are read are compared with the entry. They are
        also read if the footer does not prove them [SEG-11]."""
        facts = self.groups[group]
        is_hidden = OFFSET not in columns and facts.offsets is None
        last: int | None = None
        rows = 0
        for batch in self._file.iter_batches(
            batch_size=BATCH_ROWS,
            row_groups=[group],
            columns=[*columns, OFFSET] if is_hidden else columns,
            # Decoding a small file in threads takes longer than decoding it.
            use_threads=self.segment.size_bytes > SMALL_BYTES,
        ):
            if not batch.num_rows:
                continue
            at = batch.schema.get_field_index(OFFSET)
            if at >= 0:
                offsets = batch.column(at).to_numpy()
                last = check_offsets(self.segment, group, offsets, last)
            rows += batch.num_rows
            yield batch.drop_columns([OFFSET]) if is_hidden else batch
        if rows != facts.rows:
            raise CorruptTopicError(
                self.segment.path,
                "SEG-2",
                f"{rows} rows can be read from row group {group}; the footer says {facts.rows}",
            )

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
            offsets = _bounds(self.statistics(number, offset))
            times = _bounds(self.statistics(number, timestamp))
            rows = self.metadata.row_group(number).num_rows
            groups.append(GroupFacts(rows, offsets, times))
        return groups


def _bounds(statistics: Any) -> Bounds | None:
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min_raw, statistics.max_raw


@contextmanager
def errors_naming(path: str) -> Iterator[None]:
    """Turn errors of Parquet and of the store into errors that name this file. Damaged bytes make
    pyarrow raise almost anything, also a failed allocation of an absurd size."""
    try:
        yield
    except ObjectMissingError as error:
        raise SegmentGoneError(path, str(error)) from error
    except LogTableError:
        raise
    except OSError as error:
        # Parquet's own complaints are an OSError without a number.
        if type(error) is OSError and error.errno is None:
            raise CorruptTopicError(path, "SEG-2", str(error)) from error
        raise StorageError(f"cannot read {path}: {error}") from error
    except _DAMAGE as error:
        detail = f"{type(error).__name__}: {error}"
        raise CorruptTopicError(path, "SEG-2", detail) from error


_DAMAGE = (
    pa.ArrowException,
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    NotImplementedError,
    MemoryError,
)
