"""From a stream of rows to staged segment files, in bounded memory.

Rows are gathered into chunks that fit the CPU's caches, shaped and split by partition, and wait in
their partition's lane until they make a row group. Row groups are encoded beside the shaping, in
the order of their lane. A lane's file is closed when the next row group would take it over
`segment.bytes`, or when too many files are open.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.format.model import StagedSegment, TopicInfo
from pylogtable.format.schema import is_keys_only
from pylogtable.format.shaping import Int32s, RowShaper, Share
from pylogtable.segments.writer import ROW_GROUP_ROWS, SegmentWriter
from pylogtable.storage.base import ObjectStore

CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 16 << 20
ROW_GROUP_BYTES = 16 << 20
WAITING_BYTES = 128 << 20
ENCODING_BYTES = 64 << 20
OPEN_FILES = 128
CLOSERS = 16


class _Lane:
    """One partition's waiting rows, its open file, and the files it has finished."""

    def __init__(self, partition: int, next_offset: int) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = 0
        self.waiting_bytes = 0
        self.writer: SegmentWriter | None = None
        self.done: list[StagedSegment] = []
        self.raw_bytes = 0
        self.hashed = True
        self.encoding: Future[None] | None = None

    def put(self, share: Share) -> None:
        self.waiting.append(share.rows)
        self.waiting_rows += share.rows.num_rows
        self.waiting_bytes += share.rows.nbytes
        self.hashed &= share.hashed

    def take(self, whole_of: int | None) -> tuple[pa.Table, int]:
        """What waits, and its bytes. With `whole_of` rows that do not make a whole number of such
        groups are left waiting, if there is one at least."""
        rows, size = pa.Table.from_batches(self.waiting), self.waiting_bytes
        wanted = rows.num_rows
        if whole_of is not None and wanted >= whole_of:
            wanted -= wanted % whole_of
        taken = size * wanted // rows.num_rows
        self.waiting = rows.slice(wanted).to_batches()
        self.waiting_rows -= wanted
        self.waiting_bytes -= taken
        return rows.slice(0, wanted), taken

    def settle(self) -> None:
        """Wait until nothing of this lane is being encoded; its failure is raised here."""
        if self.encoding is not None:
            encoding, self.encoding = self.encoding, None
            encoding.result()


class Stager:
    """Writes the data files of one append. `finish()` gives them in partition and offset order;
    after an exception `abandon()` removes what no commit will ever name."""

    def __init__(
        self,
        store: ObjectStore,
        topic: TopicInfo,
        ends: Mapping[int, int],
        *,
        now_us: int,
        first_sticky: int,
        new_id: Callable[[], str],
        encoders: Executor | None = None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._new_id = new_id
        self._shaper = RowShaper(topic, now_us, first_sticky)
        self._chunks = _Chunks(self._shaper.check_columns)
        self._lanes: dict[int, _Lane] = {}
        self._open: dict[int, _Lane] = {}
        self._pool = encoders or ThreadPoolExecutor(_encoders())
        self._owns_pool = encoders is None
        self._encoding: deque[tuple[Future[None], int]] = deque()
        self._encoding_bytes = 0
        self._ends = ends
        self._segment_bytes = self._shaper.config.segment_bytes
        self._row_group_bytes = min(ROW_GROUP_BYTES, self._segment_bytes)

    def note_placed(self) -> list[Int32s]:
        """A list that will have the partition of every row, in the order of the rows."""
        self._shaper.placed = []
        return self._shaper.placed

    @property
    def waiting_bytes(self) -> int:
        """What is held in memory because it does not make a row group yet."""
        return self._chunks.size + sum(lane.waiting_bytes for lane in self._lanes.values())

    def write(self, batch: pa.RecordBatch) -> None:
        """Take all rows of `batch`."""
        for chunk in self._chunks.add(batch):
            self._put(chunk)

    def flush(self) -> None:
        """Let go of what waits, as row groups smaller than they could be."""
        for chunk in self._chunks.rest():
            self._put(chunk)
        for lane in self._lanes.values():
            self._start_encoding(lane)

    def finish(self) -> tuple[StagedSegment, ...]:
        self.flush()
        lanes = [lane for _, lane in sorted(self._lanes.items())]
        self._close_files()
        if self._owns_pool:
            self._pool.shutdown()
        return tuple(staged for lane in lanes for staged in lane.done)

    def abandon(self, error: BaseException) -> None:
        wait([handed for handed, _ in self._encoding if not handed.cancel()])
        if self._owns_pool:
            self._pool.shutdown()
        for lane in self._lanes.values():
            if lane.writer is not None:
                with suppress(StorageError):
                    lane.writer.abandon(error)
            discard(self._store, lane.done)

    def _put(self, chunk: pa.RecordBatch) -> None:
        for share in self._shaper.shares(chunk):
            self._lane(share.partition).put(share)
        waiting = sum(lane.waiting_bytes for lane in self._lanes.values())
        for lane in self._lanes.values():
            if waiting > WAITING_BYTES or self._is_due(lane):
                self._start_encoding(lane, whole_of=ROW_GROUP_ROWS)

    def _lane(self, partition: int) -> _Lane:
        if partition not in self._lanes:
            self._lanes[partition] = _Lane(partition, self._ends.get(partition, 0))
        return self._lanes[partition]

    def _is_due(self, lane: _Lane) -> bool:
        return lane.waiting_rows >= ROW_GROUP_ROWS or lane.waiting_bytes >= self._row_group_bytes

    def _start_encoding(self, lane: _Lane, whole_of: int | None = None) -> None:
        """Hand what waits in the lane to an encoder, after what it was handed before."""
        if not lane.waiting:
            return
        lane.settle()
        if lane.partition not in self._open and len(self._open) >= OPEN_FILES:
            self._close_files()
        self._open[lane.partition] = lane
        while self._encoding and self._encoding_bytes > ENCODING_BYTES:
            handed, size = self._encoding.popleft()
            self._encoding_bytes -= size
            handed.result()
        rows, size = lane.take(whole_of)
        lane.encoding = self._pool.submit(self._encode, lane, rows, size)
        self._encoding.append((lane.encoding, size))
        self._encoding_bytes += size

    def _encode(self, lane: _Lane, rows: pa.Table, raw_bytes: int) -> None:
        """Write rows as row groups of like size, rolling to a new file where one is full."""
        groups = max(-(-rows.num_rows // ROW_GROUP_ROWS), -(-raw_bytes // self._row_group_bytes))
        size = -(-rows.num_rows // max(1, min(groups, rows.num_rows)))
        raw_per_row = raw_bytes / rows.num_rows
        for at in range(0, rows.num_rows, size):
            part = rows.slice(at, size)
            self._roll_if_full(lane, part.num_rows * raw_per_row)
            if lane.writer is None:
                lane.writer = self._new_writer(lane, part)
            lane.writer.write_row_group(part)
            lane.raw_bytes += int(part.num_rows * raw_per_row)
            lane.next_offset += part.num_rows

    def _roll_if_full(self, lane: _Lane, raw_bytes: float) -> None:
        """Close the file if the next row group, at the ratio seen so far, would overfill it."""
        if lane.writer is None:
            return
        size = lane.writer.size_bytes
        if size + raw_bytes * size / max(1, lane.raw_bytes) > self._segment_bytes:
            self._close(lane)

    def _new_writer(self, lane: _Lane, rows: pa.Table) -> SegmentWriter:
        lane.raw_bytes = 0
        return SegmentWriter(
            self._store,
            partition=lane.partition,
            floor=lane.next_offset,
            file_id=self._new_id(),
            topic=self._topic,
            like=rows,
        )

    def _close(self, lane: _Lane) -> None:
        if lane.writer is None:
            return
        written = lane.writer.close()
        lane.writer = None
        base = lane.next_offset - written.records
        lane.done.append(
            StagedSegment(
                partition=lane.partition,
                predicted_base=base,
                records=written.records,
                size_bytes=written.size_bytes,
                min_timestamp_us=written.min_timestamp_us,
                max_timestamp_us=written.max_timestamp_us,
                path=written.path,
                row_groups=tuple(first - base for first in written.firsts),
                tombstones=written.tombstones,
                null_keys=written.null_keys,
                keys_only=is_keys_only(self._topic),
                hashed_over=self._topic.partitions if lane.hashed else None,
                append_time=self._shaper.config.uses_append_time,
            )
        )

    def _close_files(self) -> None:
        """Close every file that may be open. That is waiting for the store and not work, so more of
        them at once than there are cores."""
        for lane in self._open.values():
            lane.settle()
        with ThreadPoolExecutor(min(len(self._open) or 1, CLOSERS)) as pool:
            for closed in [pool.submit(self._close, lane) for lane in self._open.values()]:
                closed.result()
        self._open.clear()


def discard(store: ObjectStore, staged: Iterable[StagedSegment]) -> None:
    """Remove files that are proven to be in no commit; what stays behind is vacuum's."""
    for file in staged:
        with suppress(StorageError):
            store.delete(file.path)


class _Chunks:
    """The same rows in batches of a useful size: small ones joined, large ones cut."""

    def __init__(self, check: Callable[[pa.Schema], None]) -> None:
        self._check = check
        self._schema: pa.Schema | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self.size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._schema is None or not batch.schema.equals(self._schema):
            self._check(batch.schema)
            yield from self.rest()
            self._schema = batch.schema
        for piece in _cut(batch):
            self._gathered.append(piece)
            self._rows += piece.num_rows
            self.size += _bytes_of(piece)
            if self._rows >= CHUNK_ROWS or self.size >= CHUNK_BYTES:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        gathered, rows = self._gathered, self._rows
        self._gathered, self._rows, self.size = [], 0, 0
        if rows:
            yield _join(gathered)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    pieces = max(-(-batch.num_rows // CHUNK_ROWS), -(-_bytes_of(batch) // CHUNK_BYTES))
    size = -(-batch.num_rows // min(pieces, batch.num_rows))
    for at in range(0, batch.num_rows, size):
        yield batch.slice(at, size)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _encoders() -> int:
    """As many as there are cores to run on; beyond a few, writing the files is what takes long."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(4, cores)


def _bytes_of(batch: pa.RecordBatch) -> int:
    """Older pyarrow cannot size a slice of views; the whole of its buffers is then the answer."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())
