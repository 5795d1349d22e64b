"""Shuffles rows so that one Spark task has all rows of one topic partition, in their order.

Each task of an append writes a segment for every partition that it has rows for, and only the first
segment of a partition is sealed from the start. With one task for each partition there are few,
large, sealed segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from pylogtable.engine import Placement

MapBatches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PARTITION = "partition"
_PLACED = "__pylogtable_placed"
_TARGET = "__pylogtable_target"
_ROW = "__pylogtable_row"

#: Rows without a key go to the partitions in turn, in blocks of this size, so that neighbours stay
#: together.
_BLOCK_ROWS = 1024

#: The lower 33 bits of `monotonically_increasing_id` are the row within its task, the bits above
#: are the task.
_ROW_BITS = 33


def cluster_by_partition(df: DataFrame, placement: Placement, first_free: int = 0) -> DataFrame:
    """The rows of `df`, with those of topic partition i in task i, in their original order.

    Rows with a key keep `partition` null: the writer hashes the key again and so knows that the
    hash chose the partition. Rows that may go anywhere get their `partition` here, in turn from
    `first_free` on.
    """
    placed = _with_placed(df, placement).withColumn(_ROW, F.monotonically_increasing_id())
    task, row = F.shiftright(_ROW, _ROW_BITS), F.col(_ROW).bitwiseAND((1 << _ROW_BITS) - 1)
    turn = F.floor(row / _BLOCK_ROWS) + task + F.lit(first_free % placement.count)
    free = F.pmod(turn, F.lit(placement.count)).cast("int")
    placed = placed.withColumn(_TARGET, F.coalesce(_PLACED, free))
    if _needs_partition(df.schema, placement.key):
        has_own = _PARTITION in df.columns
        own = F.col(_PARTITION) if has_own else F.lit(None)
        given = F.when(F.col(_PLACED).isNull(), F.col(_TARGET)).otherwise(own.cast("int"))
        # `withColumn` ignores case, so it would replace a column `Partition` of the topic.
        placed = (
            placed.withColumn(_PARTITION, given)
            if has_own
            else placed.select("*", given.alias(_PARTITION))
        )
    shuffled = send_to_tasks(placed, _TARGET, placement.count)
    return shuffled.sortWithinPartitions(_ROW).drop(_PLACED, _TARGET, _ROW)


def map_in_arrow(df: DataFrame, function: MapBatches, schema: StructType | str) -> DataFrame:
    """Like `df.mapInArrow`, which cannot handle column names with a dot."""
    names = df.columns

    def with_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"c{index}" for index in range(len(names)))).mapInArrow(with_names, schema)


def _needs_partition(schema: StructType, key: tuple[str, ...]) -> bool:
    """True if rows can name their partition, or can lack a key that decides it."""
    always = {field.name for field in schema if not field.nullable}
    return _PARTITION in schema.names or not key or not always.issuperset(key)


def _with_placed(df: DataFrame, placement: Placement) -> DataFrame:
    """`df` with the partition that each row must go to, or null if it may go anywhere.

    With Arrow functions (Spark 4.1), only the columns that decide the partition are sent to Python.
    Older versions send all columns.
    """
    deciding = [name for name in df.columns if name in (*placement.key, _PARTITION)]
    if not deciding:
        return df.withColumn(_PLACED, F.lit(None).cast("int"))
    if hasattr(F, "arrow_udf"):
        place = F.arrow_udf(_place_columns(placement, deciding), IntegerType())
        return df.withColumn(_PLACED, place(*(F.col(_quoted(name)) for name in deciding)))
    schema = StructType([*df.schema, StructField(_PLACED, IntegerType())])
    return map_in_arrow(df, _place_batches(placement), schema)


def _place_columns(placement: Placement, names: list[str]) -> Callable[..., pa.Array]:
    def place(*columns: pa.Array) -> pa.Array:
        return placement.partitions(pa.RecordBatch.from_arrays(list(columns), names))

    return place


def _place_batches(placement: Placement) -> MapBatches:
    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = [*batch.schema.names, _PLACED]
            columns = [*batch.columns, placement.partitions(batch)]
            yield pa.RecordBatch.from_arrays(columns, names)

    return place


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


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
