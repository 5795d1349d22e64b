"""Maintenance as Spark jobs: the same work that `Topic.compact()` does with threads, on executors.

A unit of work is one task. Tasks write files and send home what is to be committed; the caller's
process commits. A task that is tried again writes other files; those of the first try are vacuum's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from pylogtable.engine import Done, Work, Worker


def on_executors(spark: SparkSession, worker: Worker) -> Callable[[Sequence[Work]], Iterable[Done]]:
    """What runs units of work as the tasks of one Spark job."""

    def run_all(works: Sequence[Work]) -> Iterable[Done]:
        if not works:
            return []
        tasks = spark.range(0, len(works), 1, len(works))
        rows = tasks.mapInArrow(_run_with(worker, list(works)), "done binary").collect()
        return [pickle.loads(row.done) for row in rows]

    return run_all


def _run_with(
    worker: Worker, works: list[Work]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_numpy():
                done = pickle.dumps(worker(works[index]))
                yield pa.RecordBatch.from_arrays([pa.array([done], pa.binary())], ["done"])

    return run
