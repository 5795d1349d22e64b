"""Reading one segment: records by offset, offsets by time, counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.model import Segment
from pylogtable.format.schema import OFFSET, TIMESTAMP
from pylogtable.segments.projection import Projection
from pylogtable.segments.read_task import ReadTask, task_for
from pylogtable.segments.segment_reader import Records, open_segment
from pylogtable.storage.base import ObjectStore

Mask = npt.NDArray[np.bool_]


def read_task(store: ObjectStore, task: ReadTask, columns: Projection) -> Iterator[pa.RecordBatch]:
    """The task's records with these columns, in offset order [READ-3]."""
    segment = task.segment
    if segment.is_dense and not columns.needs_file:
        size = store.limits.batch_rows
        for start in range(task.start, task.end, size):
            stop = min(task.end, start + size)
            offsets = pa.array(np.arange(start, stop, dtype=np.int64))
            stored = pa.RecordBatch.from_arrays([offsets], names=[OFFSET])
            yield columns.shape(stored, offsets, segment)
        return
    if task.row_groups:
        yield from read_open(open_segment(store, segment), task, columns)


def read_open(reader: Records, task: ReadTask, columns: Projection) -> Iterator[pa.RecordBatch]:
    """Like `read_task`, from an open file. `task` must have a row group."""
    segment = task.segment
    stored_names = columns.stored_names(reader)
    cuts_holes = not segment.is_dense and (task.start, task.end) != (
        segment.base_offset,
        segment.end_offset,
    )
    if OFFSET not in stored_names and (cuts_holes or not stored_names):
        stored_names.append(OFFSET)
    skip = task.start - segment.base_offset - segment.row_groups[task.row_groups.start]
    left = task.end - task.start
    for batch in reader.batches(task.row_groups, stored_names):
        offsets = reader.true_offsets(batch) if columns.has_offsets or cuts_holes else None
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
        yield columns.shape(batch, offsets, segment)


def read_masked(
    store: ObjectStore, segment: Segment, mask: Mask, columns: Projection
) -> Iterator[pa.RecordBatch]:
    """The records that `mask` selects, in offset order, with these columns. `offset` must be among
    them. Row groups without a selected record are not read."""
    if not mask.any():
        return
    reader = open_segment(store, segment)
    stored_names = columns.stored_names(reader)
    at = 0
    for group, rows in enumerate(facts.rows for facts in reader.groups):
        if not mask[at : at + rows].any():
            at += rows
            continue
        for batch in reader.batches([group], stored_names):
            mine = mask[at : at + batch.num_rows]
            at += batch.num_rows
            shaped = columns.shape(batch, reader.true_offsets(batch), segment)
            if mine.all():
                yield shaped
            elif mine.any():
                yield shaped.filter(pa.array(mine))


def first_offset_at_time(
    store: ObjectStore, segment: Segment, timestamp_us: int, log_start: int
) -> int | None:
    """The first offset at or above `log_start` whose timestamp is at least `timestamp_us`. Reads
    timestamps only of the first row group that reaches it, and of the one that `log_start` cuts."""
    reader = open_segment(store, segment)
    wanted = task_for(segment, max(log_start, segment.base_offset), segment.end_offset)
    for group in wanted.row_groups:
        times_us = reader.groups[group].times_us
        if times_us is not None and times_us[1] < timestamp_us:
            continue
        for batch in reader.batches([group], [OFFSET, TIMESTAMP]):
            times = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy()
            offsets = reader.true_offsets(batch).to_numpy()
            found = np.flatnonzero((times >= timestamp_us) & (offsets >= log_start))
            if found.size:
                return int(offsets[found[0]])
    return None


def count_from(store: ObjectStore, segment: Segment, log_start: int) -> int:
    """How many of the segment's records have an offset of at least `log_start`."""
    if segment.is_dense:
        return segment.end_offset - max(log_start, segment.base_offset)
    if not segment.records:
        return 0
    # The file proves where its row groups begin: the entry might hide records below the log start.
    reader = open_segment(store, segment)
    wanted = task_for(segment, log_start, segment.end_offset)
    if not wanted.row_groups:
        return 0
    first = wanted.row_groups[0]
    below = sum(facts.rows for facts in reader.groups[:first])
    for batch in reader.batches([first], [OFFSET]):
        below += int(np.searchsorted(reader.true_offsets(batch).to_numpy(), log_start))
    return segment.records - int(below)


def end_of_records(store: ObjectStore, segment: Segment, start: int, records: int) -> int:
    """The offset after the first `records` records from `start` on. The segment must have that
    many."""
    if segment.is_dense:
        return start + records
    wanted = task_for(segment, start, segment.end_offset)
    reader = open_segment(store, segment)
    for batch in reader.batches(wanted.row_groups, [OFFSET]):
        offsets = reader.true_offsets(batch).to_numpy()
        low = int(np.searchsorted(offsets, start))
        if len(offsets) - low >= records:
            return int(offsets[low + records - 1]) + 1
        records -= len(offsets) - low
    return segment.end_offset
