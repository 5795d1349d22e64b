"""Reading what a plan says: all records of its tasks, or those of some keys. To find all records of
some keys, few others are read [READ-7]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pylogtable.lazy_arrow import pc
from pylogtable.segments.key_filter import Mask, WantedKeys
from pylogtable.segments.projection import Projection
from pylogtable.segments.read_segment import read_open, read_task
from pylogtable.segments.read_task import ReadTask, one_group_each
from pylogtable.segments.segment_prefetch import tasks_ahead
from pylogtable.segments.segment_reader import Records, open_segment
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.head_start import with_head_start


def read_tasks(
    store: ObjectStore, tasks: Iterable[ReadTask], columns: Projection, wanted: WantedKeys | None
) -> Iterator[pa.RecordBatch]:
    """The records of the tasks with these columns, in the order of the tasks and in offset order:
    all, or those that have one of the keys."""
    if wanted is not None:
        yield from _read_keys(store, tasks, columns, wanted)
        return
    for task, fetched in tasks_ahead(store, tasks, columns):
        yield from read_task(fetched, task, columns)


def _read_keys(
    store: ObjectStore, tasks: Iterable[ReadTask], columns: Projection, wanted: WantedKeys
) -> Iterator[pa.RecordBatch]:
    """Several segments are searched at once, if requests take a while."""
    needed = columns.with_columns(wanted.names)

    def of_task(pair: tuple[ReadTask, ObjectStore]) -> Iterator[pa.RecordBatch]:
        task, fetched = pair
        for batch in _of_segment(fetched, task, wanted, needed):
            yield batch if needed is columns else batch.select(columns.schema.names)

    yield from with_head_start(store, tasks_ahead(store, tasks, needed), of_task)


def _of_segment(
    store: ObjectStore, task: ReadTask, wanted: WantedKeys, needed: Projection
) -> Iterator[pa.RecordBatch]:
    candidates = wanted.in_segment(task.segment)
    if not task.row_groups or not candidates.any():
        return
    reader = open_segment(store, task.segment)
    needed.stored_names(reader)  # a column of another type has no statistics for these keys
    for part in one_group_each(task):
        (group,) = part.row_groups
        possible = wanted.in_row_group(reader, group, candidates)
        if not possible.any():
            continue
        # Without a filter most row groups may have the key, and few do.
        if not wanted.is_filtered(reader, group) and not _has_one(reader, group, wanted, possible):
            continue
        for batch in read_open(reader, part, needed):
            found = wanted.matches([batch.column(name) for name in wanted.names], possible)
            if pc.any(found).as_py():
                yield batch.filter(found)


def _has_one(reader: Records, group: int, wanted: WantedKeys, possible: Mask) -> bool:
    """True if the row group has one of the keys. Only key columns are read."""
    return any(
        pc.any(wanted.matches([batch.column(name) for name in wanted.names], possible)).as_py()
        for batch in reader.batches([group], wanted.names)
    )
