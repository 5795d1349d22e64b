"""One Parquet segment file: write rows with predicted offsets, read a range of true ones.

The only room that knows how records lie in Parquet [SEG-2..5].
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylogtable.config import parse_config
from pylogtable.errors import CorruptTopicError
from pylogtable.model import Segment, StagedSegment, TopicInfo
from pylogtable.paths import segment_path
from pylogtable.plan.read import ReadTask, task_for
from pylogtable.rows import count_keyless, count_tombstones
from pylogtable.schema import OFFSET, PARTITION, TIMESTAMP, file_schema
from pylogtable.storage.base import ObjectStore

ROW_GROUP_ROWS = 131_072
BATCH_ROWS = 131_072
BLOOM_FPP = 0.01
SAMPLE_ROWS = 4096

_WITHOUT_FILE = frozenset({PARTITION, OFFSET, "topic", "timestampType"})
_CAN_WRITE_BLOOM = "bloom_filter_options" in inspect.signature(pq.ParquetWriter).parameters


class SegmentWriter:
    """Writes one file, row group by row group; the file appears in the store when it is closed."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        partition: int,
        predicted_base: int,
        file_id: str,
        topic: TopicInfo,
        like: pa.Table,
    ) -> None:
        """`like` is the first row group to come; the encoding is chosen by it."""
        schema = file_schema(topic.fields)
        config = parse_config(topic.config)
        self.partition = partition
        self.predicted_base = predicted_base
        self.path = segment_path(partition, predicted_base, file_id)
        self.records = 0
        self._topic = topic
        self._append_time = config.uses_append_time
        self._tombstones = 0
        self._null_keys = 0
        self._schema = schema
        self._row_groups: list[int] = []
        self._timestamps: list[int] = []
        self._open = ExitStack()
        self._sink = self._open.enter_context(store.open_output(self.path))
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=config.parquet_codec,
            version="2.6",
            use_dictionary=_leaf_paths(schema, _repetitive_columns(like)) or False,
            column_encoding=dict.fromkeys([OFFSET, TIMESTAMP], "DELTA_BINARY_PACKED"),
            write_statistics=_bounded_columns(schema, topic.key),
            store_schema=False,
            **_bloom_options(schema, topic.key, like.num_rows),
        )

    @property
    def size_bytes(self) -> int:
        """What has been written so far, without the footer."""
        return int(self._sink.tell())

    def write_row_group(self, rows: pa.Table) -> None:
        """Add rows (`timestamp` and the topic's columns) as one row group; offsets count on."""
        first = self.predicted_base + self.records
        offsets = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
        times = pc.min_max(rows[TIMESTAMP].cast(pa.int64()))
        self._timestamps += [times["min"].as_py(), times["max"].as_py()]
        self._tombstones += count_tombstones(rows, self._topic)
        self._null_keys += count_keyless(rows, self._topic)
        self._row_groups.append(self.records)
        self.records += rows.num_rows
        table = pa.Table.from_arrays([offsets, *rows.columns], schema=self._schema)
        self._writer.write_table(table, row_group_size=max(1, rows.num_rows))

    def close(self, *, hashed: bool) -> StagedSegment:
        """Publish the file; `hashed` says that keys alone decided what is in it."""
        self._writer.close()
        size = self.size_bytes
        self._open.close()
        return StagedSegment(
            partition=self.partition,
            predicted_base=self.predicted_base,
            records=self.records,
            size_bytes=size,
            min_timestamp_us=min(self._timestamps),
            max_timestamp_us=max(self._timestamps),
            path=self.path,
            row_groups=tuple(self._row_groups),
            tombstones=self._tombstones,
            null_keys=self._null_keys,
            hashed_over=self._topic.partitions if hashed else None,
            append_time=self._append_time,
        )

    def abandon(self, error: BaseException) -> None:
        """Give the file up, so that nothing of it appears in the store."""
        self._writer.is_open = False
        self._open.__exit__(type(error), error, error.__traceback__)


class SegmentReader:
    """One open file of a live segment. Opening reads its footer and checks it [SEG-5]."""

    def __init__(self, store: ObjectStore, segment: Segment) -> None:
        self.segment = segment
        self._input = store.open_input(segment.path, segment.size_bytes)
        with _naming(segment.path):
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
        """The position of a top-level column without children among the file's leaf columns."""
        for index in range(self.metadata.num_columns):
            if self.metadata.schema.column(index).path == name:
                return index
        return None

    def read_bytes(self, offset: int, length: int) -> bytes:
        self._input.seek(offset)
        data: bytes = self._input.read(length)
        return data

    def batches(
        self, row_groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The columns of these row groups, as they are stored; one row group is in memory at a
        time, fetched in as few requests as its columns lie apart."""
        with _naming(self.segment.path):
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
    if not task.row_groups:
        return
    reader = SegmentReader(store, segment)
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


def first_offset_at_time(
    store: ObjectStore, segment: Segment, timestamp_us: int, log_start: int
) -> int | None:
    """The first offset at or above `log_start` whose timestamp is at least `timestamp_us`; reads
    the timestamps of the first row group that reaches it, and of the one `log_start` cuts."""
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
    if segment.is_dense:
        return segment.end_offset - max(log_start, segment.base_offset)
    wanted = task_for(segment, log_start, segment.end_offset)
    if not wanted.row_groups:
        return 0
    reader = SegmentReader(store, segment)
    first = wanted.row_groups[0]
    below = sum(reader.metadata.row_group(group).num_rows for group in range(first))
    for batch in reader.batches([first], [OFFSET]):
        below += int(np.searchsorted(reader.true_offsets(batch).to_numpy(), log_start))
    return segment.records - int(below)


def _shape(
    batch: pa.RecordBatch,
    offsets: pa.Array | None,
    segment: Segment,
    schema: pa.Schema,
    topic: str,
) -> pa.RecordBatch:
    """Exactly the columns asked for: the log's own computed, absent ones null, old ones widened."""
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if field.name == OFFSET:
            column = offsets
        elif field.name == PARTITION:
            column = pa.array(np.full(batch.num_rows, segment.partition, dtype=np.int32))
        elif field.name == "topic":
            column = pa.repeat(pa.scalar(topic), batch.num_rows)
        elif field.name == "timestampType":
            column = pa.repeat(pa.scalar(int(segment.append_time), pa.int32()), batch.num_rows)
        elif index < 0:
            column = pa.nulls(batch.num_rows, field.type)
        else:
            column = batch.column(index)
            if column.type != field.type:
                column = column.cast(field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _bounded_columns(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The columns that get statistics: not payloads, whose bounds cost much and tell nothing."""
    names = [f.name for f in schema if f.name in key or not pa.types.is_binary(f.type)]
    return _leaf_paths(schema, names)


def _repetitive_columns(rows: pa.Table) -> list[str]:
    """The columns worth a dictionary: building one for values that hardly repeat is lost work.
    In a sample of 4,096 even 40,000 distinct values leave a twentieth of repeats."""
    every = pa.array(np.linspace(0, rows.num_rows - 1, min(SAMPLE_ROWS, rows.num_rows), dtype=int))
    sample = rows.drop_columns([TIMESTAMP]).take(every)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if pa.types.is_nested(column.type)
        or pc.count_distinct(column).as_py() <= 0.95 * sample.num_rows
    ]


def _leaf_paths(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """The Parquet paths of the leaf columns under these top-level columns."""
    return [path for name in names for path in _paths_below(name, schema.field(name).type)]


def _paths_below(path: str, arrow: pa.DataType) -> list[str]:
    if pa.types.is_list(arrow):
        return _paths_below(f"{path}.list.element", arrow.value_type)
    if pa.types.is_map(arrow):
        return [
            *_paths_below(f"{path}.key_value.key", arrow.key_type),
            *_paths_below(f"{path}.key_value.value", arrow.item_type),
        ]
    if pa.types.is_struct(arrow):
        children = (arrow.field(index) for index in range(arrow.num_fields))
        return [
            below
            for child in children
            for below in _paths_below(f"{path}.{child.name}", child.type)
        ]
    return [path]


def _bloom_options(schema: pa.Schema, key: Sequence[str], rows: int) -> dict[str, object]:
    """A Bloom filter on each key column that can have one, where pyarrow can write it [SEG-4]."""
    named = [name for name in key if not pa.types.is_boolean(schema.field(name).type)]
    if not named or not _CAN_WRITE_BLOOM:
        return {}
    return {"bloom_filter_options": {name: {"ndv": rows, "fpp": BLOOM_FPP} for name in named}}


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Parquet's own complaints, as a complaint about this file."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CorruptTopicError(path, "SEG-2", str(error)) from error
    except OSError as error:
        if type(error) is not OSError or error.errno is not None:
            raise
        raise CorruptTopicError(path, "SEG-2", str(error)) from error
