"""Reading one Parquet segment file: records by offset, offsets by time [SEG-2..5]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import CorruptTopicError, SchemaMismatchError, SegmentGoneError
from pylogtable.format.model import Segment
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP
from pylogtable.lazy_arrow import pc, pq
from pylogtable.plan.read import ReadTask, task_for
from pylogtable.storage.base import ObjectMissingError, ObjectStore

BATCH_ROWS = 131_072

Mask = npt.NDArray[np.bool_]

_WITHOUT_FILE = frozenset({PARTITION, OFFSET, "topic", "timestampType"})


class SegmentReader:
    """One open file of a live segment. Opening reads its footer and checks it [SEG-5]."""

    def __init__(self, store: ObjectStore, segment: Segment) -> None:
        self.segment = segment
        with _errors_naming(segment.path):
            self._input = store.open_input(segment.path, segment.size_bytes)
            self._file = pq.ParquetFile(self._input, pre_buffer=True)
        self.metadata = self._file.metadata
        if self.metadata.num_rows != segment.records:
            raise CorruptTopicError(
                segment.path,
                "SEG-5",
                f"it has {self.metadata.num_rows} records where the manifest says "
                f"{segment.records}",
            )
        if self.metadata.num_row_groups != len(segment.row_groups):
            raise CorruptTopicError(
                segment.path,
                "SEG-5",
                f"it has {self.metadata.num_row_groups} row groups where "
                f"the manifest says {len(segment.row_groups)}",
            )

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema_arrow

    def column_index(self, name: str) -> int | None:
        """The index of a top-level column without children among the file's leaf columns."""
        for index in range(self.metadata.num_columns):
            if self.metadata.schema.column(index).path == name:
                return index
        return None

    def read_bytes(self, offset: int, length: int) -> bytes:
        with _errors_naming(self.segment.path):
            self._input.seek(offset)
            data: bytes = self._input.read(length)
        return data

    def batches(
        self, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, as they are stored. One row group is in memory at a
        time; columns that lie side by side are fetched in one request."""
        with _errors_naming(self.segment.path):
            for group in row_groups:
                yield from self._file.iter_batches(
                    batch_size=BATCH_ROWS, row_groups=[group], columns=list(columns)
                )

    def true_offsets(self, batch: pa.RecordBatch) -> pa.Array:
        """The offsets of the records [LOG-1]."""
        stored = batch.column(OFFSET)
        return pc.add(stored, self.segment.shift) if self.segment.shift else stored


def read_task(
    store: ObjectStore, task: ReadTask, schema: pa.Schema, topic: str
) -> Iterator[pa.RecordBatch]:
    """The task's records with the columns of `schema`, in offset order [READ-3]."""
    segment = task.segment
    if segment.is_dense and _WITHOUT_FILE.issuperset(schema.names):
        for start in range(task.start, task.end, BATCH_ROWS):
            stop = min(task.end, start + BATCH_ROWS)
            offsets = pa.array(np.arange(start, stop, dtype=np.int64))
            stored = pa.RecordBatch.from_arrays([offsets], names=[OFFSET])
            yield _shape(stored, offsets, segment, schema, topic)
        return
    if task.row_groups:
        yield from read_open(SegmentReader(store, segment), task, schema, topic)


def read_open(
    reader: SegmentReader, task: ReadTask, schema: pa.Schema, topic: str
) -> Iterator[pa.RecordBatch]:
    """Like `read_task`, from an open file. `task` must have a row group."""
    segment = task.segment
    stored_names = [name for name in reader.schema.names if name in schema.names]
    cuts_holes = not segment.is_dense and (task.start, task.end) != (
        segment.base_offset,
        segment.end_offset,
    )
    if OFFSET not in stored_names and (cuts_holes or not stored_names):
        stored_names.append(OFFSET)
    wants_offsets = OFFSET in schema.names
    skip = task.start - segment.base_offset - segment.row_groups[task.row_groups.start]
    left = task.end - task.start
    for batch in reader.batches(task.row_groups, stored_names):
        offsets = reader.true_offsets(batch) if wants_offsets or cuts_holes else None
        if cuts_holes and offsets is not None:
            low, high = np.searchsorted(offsets.to_numpy(), [task.start, task.end])
            low, length = int(low), int(high - low)
        elif segment.is_dense:
            low = min(skip, batch.num_rows)
            length = min(batch.num_rows - low, left)
            skip, left = skip - low, left - length
        else:
            low, length = 0, batch.num_rows
        if length == 0:
            continue
        if length != batch.num_rows:
            batch = batch.slice(low, length)
            offsets = offsets.slice(low, length) if offsets is not None else None
        yield _shape(batch, offsets, segment, schema, topic)


def read_masked(
    store: ObjectStore, segment: Segment, mask: Mask, schema: pa.Schema, topic: str
) -> Iterator[pa.RecordBatch]:
    """The records that `mask` selects, in offset order, with the columns of `schema`. `schema` must
    have `offset`. Row groups without a selected record are not read."""
    if not mask.any():
        return
    reader = SegmentReader(store, segment)
    stored_names = [name for name in reader.schema.names if name in schema.names]
    at = 0
    for group in range(reader.metadata.num_row_groups):
        rows = reader.metadata.row_group(group).num_rows
        if not mask[at : at + rows].any():
            at += rows
            continue
        for batch in reader.batches([group], stored_names):
            mine = mask[at : at + batch.num_rows]
            at += batch.num_rows
            shaped = _shape(batch, reader.true_offsets(batch), segment, schema, topic)
            if mine.all():
                yield shaped
            elif mine.any():
                yield shaped.filter(pa.array(mine))


def first_offset_at_time(
    store: ObjectStore, segment: Segment, timestamp_us: int, log_start: int
) -> int | None:
    """The first offset at or above `log_start` whose timestamp is at least `timestamp_us`. Reads
    timestamps only of the first row group that reaches it, and of the one that `log_start` cuts."""
    reader = SegmentReader(store, segment)
    column = reader.column_index(TIMESTAMP)
    assert column is not None
    columns = [TIMESTAMP] if segment.is_dense else [OFFSET, TIMESTAMP]
    wanted = task_for(segment, max(log_start, segment.base_offset), segment.end_offset)
    for group in wanted.row_groups:
        statistics = reader.metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.max_raw < timestamp_us:
            continue
        at = segment.base_offset + segment.row_groups[group]
        for batch in reader.batches([group], columns):
            times = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy()
            if segment.is_dense:
                offsets = np.arange(at, at + batch.num_rows)
                at += batch.num_rows
            else:
                offsets = reader.true_offsets(batch).to_numpy()
            found = np.flatnonzero((times >= timestamp_us) & (offsets >= log_start))
            if found.size:
                return int(offsets[found[0]])
    return None


def count_from(store: ObjectStore, segment: Segment, log_start: int) -> int:
    """How many of the segment's records have an offset of at least `log_start`."""
    if not segment.has_below(log_start):
        return segment.records
    if segment.is_dense:
        return segment.end_offset - log_start
    wanted = task_for(segment, log_start, segment.end_offset)
    if not wanted.row_groups:
        return 0
    reader = SegmentReader(store, segment)
    first = wanted.row_groups[0]
    below = sum(reader.metadata.row_group(group).num_rows for group in range(first))
    for batch in reader.batches([first], [OFFSET]):
        below += int(np.searchsorted(reader.true_offsets(batch).to_numpy(), log_start))
    return segment.records - int(below)


def end_of_records(store: ObjectStore, segment: Segment, start: int, records: int) -> int:
    """The offset after the first `records` records from `start` on. The segment must have that
    many."""
    if segment.is_dense:
        return start + records
    wanted = task_for(segment, start, segment.end_offset)
    reader = SegmentReader(store, segment)
    for batch in reader.batches(wanted.row_groups, [OFFSET]):
        offsets = reader.true_offsets(batch).to_numpy()
        low = int(np.searchsorted(offsets, start))
        if len(offsets) - low >= records:
            return int(offsets[low + records - 1]) + 1
        records -= len(offsets) - low
    return segment.end_offset


def _shape(
    batch: pa.RecordBatch,
    offsets: pa.Array | None,
    segment: Segment,
    schema: pa.Schema,
    topic: str,
) -> pa.RecordBatch:
    """Exactly the columns of `schema`: the log's own are computed, missing ones are null, and old
    ones are widened."""
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if field.name == OFFSET:
            column = offsets
        elif field.name == PARTITION:
            column = pa.array(np.full(batch.num_rows, segment.partition, dtype=np.int32))
        elif field.name == "topic":
            column = pa.repeat(pa.scalar(topic), batch.num_rows)
        elif field.name == "timestampType":  # [SEG-9]
            column = pa.repeat(pa.scalar(int(segment.append_time), pa.int32()), batch.num_rows)
        elif index < 0:
            column = pa.nulls(batch.num_rows, field.type)
        else:
            column = batch.column(index)
            if column.type != field.type:
                column = _cast(column, field, topic)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field, topic: str) -> pa.Array:
    """The column with the type that the reader expects. That type is narrower than the file's only
    if the read began before the column was widened."""
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"column {field.name!r} of topic {topic!r} was {field.type} when this read began. It "
            f"is {column.type} now and has values that do not fit: {error}. Start the read, or the "
            "query, again to see the new type"
        ) from error


@contextmanager
def _errors_naming(path: str) -> Iterator[None]:
    """Turn errors of Parquet and of the store into errors that name this file."""
    try:
        yield
    except ObjectMissingError as error:
        raise SegmentGoneError(path, str(error)) from error
    except pa.ArrowInvalid as error:
        raise CorruptTopicError(path, "SEG-2", str(error)) from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        raise CorruptTopicError(path, "SEG-2", str(error)) from error
