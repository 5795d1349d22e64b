"""Tasks that run a function on Arrow batches, on every Spark version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

MapBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(df: DataFrame, function: MapBatches, schema: StructType | str) -> DataFrame:
    """Like `df.mapInArrow`, which cannot handle column names with a dot."""
    names = df.columns

    def with_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"c{index}" for index in range(len(names)))).mapInArrow(with_names, schema)


def send_to_tasks(df: DataFrame, target: str, count: int) -> DataFrame:
    """`df` in `count` tasks. The column `target` has the task of each row, from 0. The number of
    tasks is given explicitly, so that adaptive execution merges no tasks."""
    if hasattr(df, "repartitionById"):
        return df.repartitionById(count, target)
    return df.repartition(count, _hashing_to(df, target, count))


def _hashing_to(df: DataFrame, target: str, count: int) -> Column:
    """For each task `target`, the smallest number that Spark's hash sends to that task.

    The chance that a task gets none of the numbers that are tried is about `count` in e^64.
    """
    numbers = df.sparkSession.range(64 * count)
    task = F.pmod(F.hash("id"), F.lit(count)).alias("task")
    found = numbers.groupBy(task).agg(F.min("id").alias("id")).collect()
    smallest = {row["task"]: row["id"] for row in found}
    listed = ",".join(str(smallest[number]) for number in range(count))
    return F.get(F.split(F.lit(listed), ",").cast("array<bigint>"), target)
