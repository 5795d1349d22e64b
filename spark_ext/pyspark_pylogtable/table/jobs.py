"""Maintenance as Spark jobs: `Topic.compact()` works with threads, this works on executors.

Each unit of work is a task. Tasks write files and return what is to be committed; the caller's
process commits. A task that is retried writes new files; vacuum removes those of the first try.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from pylogtable.engine import Rewritten, RunUnits, Worker
from pyspark_pylogtable.table.arrow_tasks import MapBatches, send_to_tasks

Unit = TypeVar("Unit")
Result = TypeVar("Result")

_UNITS = pa.schema({"task": pa.int32(), "unit": pa.binary()})


def on_executors(spark: SparkSession) -> RunUnits:
    """Run units of work as the tasks of one Spark job. A task is sent its own unit only."""

    def run_units(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
        return run_each(spark, worker, units)

    return run_units


def run_each(
    spark: SparkSession, worker: Callable[[Unit], Result], units: Sequence[Unit]
) -> list[Result]:
    """`worker(unit)` for each unit, each in a task of one Spark job, in the order of the units."""
    if not units:
        return []
    pickled = [pickle.dumps(unit) for unit in units]
    table = pa.table([pa.array(range(len(units)), pa.int32()), pickled], schema=_UNITS)
    tasks = send_to_tasks(spark.createDataFrame(table), "task", len(units))
    rows = tasks.mapInArrow(_run_with(worker), "result binary").collect()
    return [pickle.loads(row.result) for row in rows]


def _run_with(worker: Callable[[Any], Any]) -> MapBatches:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for unit in batch.column("unit"):
                result = pickle.dumps(worker(pickle.loads(unit.as_py())))
                yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])

    return run
