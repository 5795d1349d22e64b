"""Maintenance and mirrors as Spark jobs: `Topic` works with threads, this works on executors.

Little work is done in the driver, because a Spark job takes longer to start. Otherwise each unit of
work is a task. Tasks write files and return what is to be committed; the caller's
process commits. A task that is retried writes new files; vacuum removes those of the first try.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from pylogtable import Topic
from pylogtable.engine import (
    Copied,
    CopyTask,
    Rewritten,
    RunTasks,
    RunUnits,
    Worker,
    in_threads,
    limits_of,
)
from pyspark_pylogtable.table.arrow_tasks import send_to_tasks
from pyspark_pylogtable.tasks.driver import Driver

Unit = TypeVar("Unit")
Result = TypeVar("Result")

#: So many segments whose records are in commits count as one file.
INLINE_PER_FILE = 16

_DRIVER_THREADS = 4
_UNITS = pa.schema({"task": pa.int32(), "unit": pa.binary()})


def where_it_pays(spark: SparkSession) -> RunUnits:
    """Run units of work in this process if there is little to do, and else as the tasks of one
    Spark job. A task is sent its own unit only."""

    def run_units(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
        limits = worker.store.limits
        if _is_little(units, limits.driver_segments, limits.driver_bytes):
            return in_threads(_DRIVER_THREADS)(worker, units)
        return run_each(spark, worker, units)

    return run_units


def copied_where_it_pays(spark: SparkSession, topic: Topic) -> RunTasks[CopyTask, list[Copied]]:
    """Copy files in this process if they are few, and else in the tasks of one Spark job."""
    limits = limits_of(topic)

    def run_tasks(
        copier: Callable[[CopyTask], list[Copied]],
        tasks: Sequence[CopyTask],
        done: Callable[[list[Copied]], None],
    ) -> None:
        if _is_little(tasks, limits.driver_segments, limits.driver_copy_bytes):
            single = [replace(task, units=(unit,)) for task in tasks for unit in task.units]
            with ThreadPoolExecutor(_DRIVER_THREADS) as pool:
                results = list(pool.map(copier, single))
        else:
            results = run_each(spark, copier, tasks)
        for copied in results:
            done(copied)

    return run_tasks


def _is_little(units: Sequence[Any], most_files: int, most_bytes: int) -> bool:
    segments = [segment for unit in units for segment in unit.inputs]
    size: int = sum(segment.size_bytes for segment in segments)
    inline: int = sum(segment.is_inline for segment in segments)
    files = len(segments) - inline + inline // INLINE_PER_FILE
    return files <= most_files and size <= most_bytes


def run_each(
    spark: SparkSession, worker: Callable[[Unit], Result], units: Sequence[Unit]
) -> list[Result]:
    """`worker(unit)` for each unit, each in a task of one Spark job, in the order of the units."""
    if not units:
        return []
    pickled = [pickle.dumps(unit) for unit in units]
    table = pa.table([pa.array(range(len(units)), pa.int32()), pickled], schema=_UNITS)
    tasks = send_to_tasks(spark.createDataFrame(table), "task", len(units))
    rows = tasks.mapInArrow(partial(_run, worker, Driver()), "result binary").collect()
    return [pickle.loads(row.result) for row in rows]


def _run(
    worker: Callable[[Any], Any], driver: Driver, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Tasks import this module to find the function, and so get `worker_imports`."""
    for batch in batches:
        for unit in batch.column("unit"):
            with driver.explaining():
                result = pickle.dumps(worker(pickle.loads(unit.as_py())))
            yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])
