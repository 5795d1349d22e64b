"""Staging: from a stream of rows to data files that no commit names yet, in bounded memory.

Rows are gathered into chunks that fit the CPU's caches, shaped, and split by partition. Each
partition has a lane, a `RollingWriter`. Encoding runs in other threads than shaping. All files
are closed when too many are open.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from pylogtable.append.explicit_offsets import RisingOffsets
from pylogtable.append.inline_rows import part_of
from pylogtable.append.shaping import Int32s, RowShaper, Share, check_values
from pylogtable.arguments import check_number
from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.format.inline_parts import MAX_RATIO, pack_parts
from pylogtable.format.model import StagedSegment, TopicInfo
from pylogtable.format.schema import OFFSET
from pylogtable.format.snapshot import Snapshot
from pylogtable.limits import Limits
from pylogtable.operation import Threads
from pylogtable.runtime import Runtime
from pylogtable.segments.file_layout import FileLayout
from pylogtable.segments.rolling_writer import Output, RollingWriter
from pylogtable.storage.base import ObjectStore

CLOSERS = 16


@dataclass(frozen=True)
class Staged:
    """Data files that wait for their commit. Plain data that pickles, so that one process can
    stage files and another can commit them. `rows` are the records of those of `files` that have
    no file: they go into the commit itself."""

    files: tuple[StagedSegment, ...]
    staged_at_ms: int
    topic_id: str
    rows: bytes | None = None


@dataclass(frozen=True)
class Target:
    """The topic that rows are staged for, as one version has it. Plain data that pickles: whoever
    has it opens nothing. `ends` are the end offsets, by which offsets are predicted. With
    `keep_offsets`, rows bring their partition and their offset."""

    name: str
    store: ObjectStore
    runtime: Runtime
    version: int
    topic_id: str
    info: TopicInfo
    ends: dict[int, int] = field(repr=False)
    inline_limit: int
    keep_offsets: bool

    @staticmethod
    def fields_of(snapshot: Snapshot) -> dict[str, Any]:
        """The fields that come from a version of the topic."""
        return {
            "version": snapshot.version,
            "topic_id": snapshot.topic_id,
            "info": snapshot.info,
            "ends": snapshot.end_offsets,
            "inline_limit": snapshot.inline_limit,
        }


class Stager:
    """Writes the data files of one append, whose commit comes later. A context manager: leaving it
    with an exception removes the files.

    >>> with plan.begin(task) as stager:
    ...     for batch in batches:
    ...         stager.add(batch)
    ...     staged = stager.finish()
    """

    def __init__(
        self,
        target: Target,
        task: int | None = None,
        encoders: Executor | None = None,
        *,
        temporary: bool = False,
    ) -> None:
        """`encoders` is a thread pool to use instead of a new one. `temporary` files are to be
        joined before the commit."""
        if task is not None:
            check_number("task", task)
        self._target = target
        self._limits = limits = target.store.limits
        self._layout = FileLayout(target.info, temporary=temporary)
        self._began_ms = target.runtime.clock()
        self._shaper = RowShaper(
            target.info,
            self._began_ms * 1000,
            target.version if task is None else task,
            keep_offsets=target.keep_offsets,
        )
        self._given = RisingOffsets() if target.keep_offsets else None
        self._chunks = _Chunks(self._shaper.check_columns, limits)
        self._row_group_bytes = min(limits.row_group_bytes, self._shaper.config.segment_bytes)
        self._lanes: dict[int, RollingWriter] = {}
        self._with_open_file: set[int] = set()
        self._pool = encoders
        self._own_pool: Threads | None = None
        self._encoding: deque[tuple[Future[None], int]] = deque()
        self._encoding_bytes = 0

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._abandon(error)

    @property
    def waiting_bytes(self) -> int:
        """Bytes held in memory because they do not make a row group yet; `flush` writes them."""
        return self._chunks.size + sum(lane.waiting_bytes for lane in self._lanes.values())

    def remember_partitions(self) -> None:
        """Keep the partition of each row that is added, for `row_partitions`."""
        self._shaper.placed = []

    def row_partitions(self) -> Int32s:
        """The partition of each row that was added, in order, after `finish`."""
        placed = self._shaper.placed
        return np.concatenate(placed) if placed else np.empty(0, np.int32)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take all rows of `batch`."""
        for chunk in self._chunks.add(batch):
            self._add_chunk(chunk)

    def flush(self) -> None:
        """Write the waiting rows now, even if their row groups are small."""
        for chunk in self._chunks.rest():
            self._add_chunk(chunk)
        for number in self._lanes:
            self._start_encoding(number)

    def finish(self) -> Staged:
        """Write the rest and close all files. Few rows go into no file, but into the commit.
        Returns what is to be committed, in partition and offset order."""
        for chunk in self._chunks.rest():
            self._add_chunk(chunk)
        inline = self._inline()
        if inline is not None:
            entries, rows = inline
            return Staged(entries, self._began_ms, self._target.topic_id, rows)
        self.flush()
        self._close_files()
        self._end_encoders()
        lanes = [lane for _, lane in sorted(self._lanes.items())]
        files = tuple(file for lane in lanes for file in lane.files)
        return Staged(files, self._began_ms, self._target.topic_id)

    def _inline(self) -> tuple[tuple[StagedSegment, ...], bytes] | None:
        """All rows as rows of the commit; None if they are too many [INL-1]."""
        is_file = self._layout.is_temporary or self._given is not None  # [INL-1] counts offsets
        limit = 0 if is_file else self._target.inline_limit
        lanes = [(number, lane) for number, lane in sorted(self._lanes.items())]
        waiting = sum(lane.waiting_bytes for _, lane in lanes)
        if waiting > limit * MAX_RATIO or any(lane.has_written for _, lane in lanes):
            return None
        parts = [
            part_of(number, lane.waiting, self._layout, hashed=lane.hashed)
            for number, lane in lanes
        ]
        return pack_parts(parts, limit)

    def _abandon(self, error: BaseException) -> None:
        wait([encoding for encoding, _ in self._encoding if not encoding.cancel()])
        self._end_encoders()
        for lane in self._lanes.values():
            lane.abandon(error)

    def _end_encoders(self) -> None:
        if self._own_pool is not None:
            self._own_pool.shutdown()

    def _add_chunk(self, chunk: pa.RecordBatch) -> None:
        for share in self._shaper.shares(chunk):
            self._lane(share).add(share.rows, hashed=share.hashed)
        waiting = sum(lane.waiting_bytes for lane in self._lanes.values())
        for number, lane in self._lanes.items():
            if waiting > self._limits.waiting_bytes or lane.is_due:
                self._start_encoding(number, keep_rest=True)

    def _lane(self, share: Share) -> RollingWriter:
        partition = share.partition
        first_offset = self._target.ends.get(partition, 0)
        if self._given is not None:
            offsets = share.rows.column(OFFSET).to_numpy()
            self._given.check(partition, offsets)
            first_offset = int(offsets[0])
        if partition not in self._lanes:
            new_id = self._target.runtime.new_id
            output = Output(self._target.store, self._layout, partition, new_id)
            self._lanes[partition] = RollingWriter(output, first_offset, self._row_group_bytes)
        return self._lanes[partition]

    def _start_encoding(self, partition: int, *, keep_rest: bool = False) -> None:
        """Pass the waiting rows of a lane to an encoder. A lane is encoded in order."""
        writer = self._lanes[partition]
        if not writer.has_waiting:
            return
        writer.wait_for_encoding()
        if (
            partition not in self._with_open_file
            and len(self._with_open_file) >= self._limits.open_files
        ):
            self._close_files()
        self._with_open_file.add(partition)
        while self._encoding and self._encoding_bytes > self._limits.encoding_bytes:
            encoding, size = self._encoding.popleft()
            self._encoding_bytes -= size
            encoding.result()
        if self._pool is None:  # rows for a commit need no threads
            self._pool = self._own_pool = Threads(_encoders())
        if (started := writer.start_encoding(self._pool, keep_rest=keep_rest)) is not None:
            self._encoding.append(started)
            self._encoding_bytes += started[1]

    def _close_files(self) -> None:
        """Close every file that may be open. Closing waits for the store and takes no CPU, so more
        threads do it than there are cores."""
        writers = [self._lanes[number] for number in self._with_open_file]
        for writer in writers:
            writer.wait_for_encoding()
        closers = min(len(writers) or 1, CLOSERS)
        with Threads(closers) as pool:
            # A task of its own for each file would cost more than closing a small one.
            for closed in [pool.submit(_close, writers[at::closers]) for at in range(closers)]:
                closed.result()
        self._with_open_file.clear()


def _close(writers: Iterable[RollingWriter]) -> None:
    for writer in writers:
        writer.close_file()


def discard(store: ObjectStore, staged: Iterable[StagedSegment]) -> None:
    """Remove files that no commit can name. What cannot be removed is left to vacuum."""
    for file in staged:
        if not file.is_inline:
            with suppress(StorageError):
                store.delete(file.path)


class _Chunks:
    """Joins small batches and cuts large ones, so that each chunk has a useful size."""

    def __init__(self, check: Callable[[pa.Schema], None], limits: Limits) -> None:
        self._check = check
        self._limits = limits
        self._schema: pa.Schema | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._rows = 0
        self.size = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self._schema is None or not batch.schema.equals(self._schema):
            self._check(batch.schema)
            yield from self.rest()
            self._schema = batch.schema
        check_values(batch)
        limits = self._limits
        for part in _cut(batch, limits):
            _check_records(part, limits.max_record_bytes)
            self._gathered.append(part)
            self._rows += part.num_rows
            self.size += _bytes_of(part)
            if self._rows >= limits.chunk_rows or self.size >= limits.chunk_bytes:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        gathered, rows = self._gathered, self._rows
        self._gathered, self._rows, self.size = [], 0, 0
        if rows:
            yield _join(gathered)


def _cut(batch: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    rows, size = batch.num_rows, _bytes_of(batch)
    parts = max(-(-rows // limits.chunk_rows), -(-size // limits.chunk_bytes))
    step = -(-rows // min(parts, rows))
    for at in range(0, rows, step):
        yield batch.slice(at, step)


def _check_records(batch: pa.RecordBatch, max_bytes: int) -> None:
    """Raise if a record is larger than a reader has to accept [SEG-12]."""
    size = _bytes_of(batch)
    if size <= max_bytes:
        return
    if batch.num_rows == 1:
        raise InvalidRequestError(
            f"a record has {size} bytes, and the most that a record may have is "
            f"{max_bytes}; store large values elsewhere, and append where they are"
        )
    half = batch.num_rows // 2
    _check_records(batch.slice(0, half), max_bytes)
    _check_records(batch.slice(half), max_bytes)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _encoders() -> int:
    """Number of encoder threads: one for each core, but not more than writing files can use."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(4, cores)


def _bytes_of(batch: pa.RecordBatch) -> int:
    """Older pyarrow cannot size a slice of views; then the size of the whole buffers is used."""
    try:
        return int(batch.nbytes)
    except pa.ArrowTypeError:
        return int(batch.get_total_buffer_size())
