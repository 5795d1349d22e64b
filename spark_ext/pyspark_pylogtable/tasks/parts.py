"""Ranges of offsets, cut into parts for Spark's tasks, and the records of a part."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import pyarrow as pa

from pylogtable import SchemaMismatchError, SegmentGoneError, StorageError, View
from pylogtable.engine import PartReader, ReadPart, ReadTask, Scan, share_tasks
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.ranges import Ranges
from pyspark_pylogtable.tasks.driver import check_shared


def plan_tasks(
    options: Options, views: Mapping[str, View], ranges: Ranges
) -> list[list[tuple[str, ReadPart]]]:
    """The ranges cut into parts, each with the name of its topic: a list for each task. Small parts
    share a task, unless the user asks for a number of tasks or limits their size."""
    parts = _parts(options, views, ranges)
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        return [[part] for part in parts]
    return [*share_tasks((named, named[1].totals) for named in parts)]


def _parts(
    options: Options, views: Mapping[str, View], ranges: Ranges
) -> Iterator[tuple[str, ReadPart]]:
    total = sum(map(_offsets_in, ranges.values()))
    for topic, spans in ranges.items():
        for part in Scan(views[topic], options.keys).parts(
            spans,
            max_records=options.max_records_per_partition,
            min_parts=_min_parts(options.min_partitions, _offsets_in(spans), total),
        ):
            yield topic, part


def read_records(
    reader: PartReader, part: ReadPart, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a part. A segment whose file is gone is an error, or is skipped with a
    warning."""
    for task in part.tasks:
        yield from _read_segment(reader, part, task, fail_on_data_loss)


def check_nulls(batch: pa.RecordBatch) -> None:
    """Raise for a null in a column that the user's schema calls NOT NULL: Spark trusts the schema
    and would give wrong results."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise SchemaMismatchError(
                f"column {field.name!r} was requested as NOT NULL, but it has nulls; request it as "
                "nullable"
            )


def _read_segment(
    reader: PartReader, part: ReadPart, task: ReadTask, fail: bool
) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader.read(ReadPart((task,)))
    except SegmentGoneError as error:
        check_shared(reader.store.url)
        lost = (
            f"[DATA_LOSS] {reader.topic}-{part.partition}: offsets {task.start} to "
            f"{task.end - 1} cannot be read any more: {error}"
        )
        if fail:
            raise StorageError(f"{lost}. failOnDataLoss=false skips these offsets") from error
        warnings.warn(lost, stacklevel=2)


def _offsets_in(spans: Mapping[int, tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans.values())


def _min_parts(min_partitions: int | None, offsets: int, total: int) -> int | None:
    """A topic's part of `minPartitions`, in proportion to its number of offsets."""
    if min_partitions is None or not total:
        return None
    return max(1, -(-min_partitions * offsets // total))
