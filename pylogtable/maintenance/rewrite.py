"""Writing the records of some segments anew, from an offset on or the survivors, as sealed ones.

One row group is read, filtered and handed on while the one before is being encoded, so memory is
bound by a few row groups whatever the size of the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.format.config import parse_config
from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.schema import OFFSET, file_schema
from pylogtable.plan.read import task_for
from pylogtable.segments.reader import Mask, read_masked, read_task
from pylogtable.segments.writer import ROW_GROUP_ROWS, SegmentWriter, WrittenFile
from pylogtable.storage.base import ObjectStore

ROW_GROUP_BYTES = 16 << 20


def rewrite(
    store: ObjectStore,
    topic: TopicInfo,
    inputs: Sequence[Segment],
    keep: int | Sequence[Mask],
    new_id: Callable[[], str],
    *,
    delete_horizon_ms: int | None = None,
) -> tuple[Segment, ...]:
    """Neighbouring segments as sealed ones that tile the same range; if this fails, nothing is left
    behind. `keep` is the first offset whose record is kept, or a mask for each input."""
    writing = _Output(store, topic, inputs, new_id, delete_horizon_ms)
    try:
        for rows in _row_groups(_batches(store, topic, inputs, keep)):
            writing.add(rows)
        return writing.finish()
    except BaseException as error:
        writing.abandon(error)
        raise


def _batches(
    store: ObjectStore,
    topic: TopicInfo,
    inputs: Sequence[Segment],
    keep: int | Sequence[Mask],
) -> Iterator[pa.RecordBatch]:
    schema = file_schema(topic.fields)
    if isinstance(keep, int):
        for segment in inputs:
            yield from read_task(store, task_for(segment, keep, segment.end_offset), schema, "")
    else:
        for segment, mask in zip(inputs, keep, strict=True):
            yield from read_masked(store, segment, mask, schema, "")


def _row_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth a row group."""
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for at in range(0, batch.num_rows, ROW_GROUP_ROWS):
            piece = batch.slice(at, ROW_GROUP_ROWS)
            if gathered and (
                rows + piece.num_rows > ROW_GROUP_ROWS or size + piece.nbytes > ROW_GROUP_BYTES
            ):
                yield pa.Table.from_batches(gathered)
                gathered, rows, size = [], 0, 0
            gathered.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)


class _Output:
    """The new segments of one range. A file is closed when the next row group would overfill it,
    and claims all offsets up to the first of the next."""

    def __init__(
        self,
        store: ObjectStore,
        topic: TopicInfo,
        inputs: Sequence[Segment],
        new_id: Callable[[], str],
        delete_horizon_ms: int | None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._inputs = inputs
        self._new_id = new_id
        self._horizon = delete_horizon_ms
        self._limit = parse_config(topic.config).segment_bytes
        self._start = inputs[0].base_offset
        self._writer: SegmentWriter | None = None
        self._raw_bytes = 0
        self._done: list[tuple[int, WrittenFile]] = []
        self._pool = ThreadPoolExecutor(1)
        self._encoding: Future[None] | None = None

    def add(self, rows: pa.Table) -> None:
        self._settle()
        self._encoding = self._pool.submit(self._encode, rows)

    def finish(self) -> tuple[Segment, ...]:
        self._settle()
        if self._writer is None and not self._done:
            self._writer = self._new_writer(file_schema(self._topic.fields).empty_table())
        self._close()
        self._pool.shutdown()
        ends = [start for start, _ in self._done[1:]] + [self._inputs[-1].end_offset]
        return tuple(
            self._segment(start, end, file)
            for (start, file), end in zip(self._done, ends, strict=True)
        )

    def abandon(self, error: BaseException) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._writer is not None:
            with suppress(StorageError):
                self._writer.abandon(error)
        for _, file in self._done:
            with suppress(StorageError):
                self._store.delete(file.path)

    def _settle(self) -> None:
        if self._encoding is not None:
            encoding, self._encoding = self._encoding, None
            encoding.result()

    def _encode(self, rows: pa.Table) -> None:
        offsets = rows[OFFSET].to_numpy()
        raw = rows.nbytes
        if self._writer is not None:
            size = self._writer.size_bytes
            if size + raw * size / max(1, self._raw_bytes) > self._limit:
                self._close()
                self._start = int(offsets[0])
        if self._writer is None:
            self._writer = self._new_writer(rows)
        self._writer.write_row_group(rows.drop_columns([OFFSET]), offsets)
        self._raw_bytes += raw

    def _new_writer(self, like: pa.Table) -> SegmentWriter:
        self._raw_bytes = 0
        return SegmentWriter(
            self._store,
            partition=self._inputs[0].partition,
            floor=self._start,
            file_id=self._new_id(),
            topic=self._topic,
            like=like.drop_columns([OFFSET]),
        )

    def _close(self) -> None:
        if self._writer is not None:
            self._done.append((self._start, self._writer.close()))
            self._writer = None

    def _segment(self, start: int, end: int, file: WrittenFile) -> Segment:
        first = self._inputs[0]
        hashed = {segment.hashed_over for segment in self._inputs}
        return Segment(
            partition=first.partition,
            base_offset=start,
            end_offset=end,
            records=file.records,
            size_bytes=file.size_bytes,
            min_timestamp_us=file.min_timestamp_us,
            max_timestamp_us=file.max_timestamp_us,
            path=file.path,
            row_groups=tuple(first_offset - start for first_offset in file.firsts),
            tombstones=file.tombstones,
            delete_horizon_ms=self._horizon if file.tombstones else None,
            hashed_over=first.hashed_over if len(hashed) == 1 else None,
            append_time=first.append_time,
        )
