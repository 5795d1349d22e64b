"""Appends a DataFrame in one commit, with one task for each partition of the topic.

The tasks stage files and return what they staged; the process of the caller commits. So the caller
gets the library's own errors and the result, which a Spark writer cannot return.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from pylogtable import AppendResult, Topic
from pylogtable.engine import Staged, TopicWriter
from pyspark_pylogtable.table.clustering import MapBatches, cluster_by_partition, map_in_arrow
from pyspark_pylogtable.tasks.commit import commit_topic, find_written
from pyspark_pylogtable.tasks.staging import query_id
from pyspark_pylogtable.tasks.write_columns import TOPIC, check_columns, spark_columns


def append_clustered(topic: Topic, df: DataFrame, txn: tuple[str, int] | None) -> AppendResult:
    """Append `df`; see `LogTable.append`. A `topic` column has no effect."""
    check_columns(topic, spark_columns(df.schema))
    if TOPIC in df.columns:
        df = df.drop(TOPIC)
    if txn is not None and (first := TopicWriter(topic).find_txn(*txn)) is not None:
        if first.origin is not None:
            find_written(topic, txn, _query_of(df.sparkSession))
        return first
    clustered = cluster_by_partition(df, TopicWriter(topic).placement(), first_free=topic.version)
    staging = map_in_arrow(clustered, _stage_with(topic), "task int, query string, staged binary")
    messages = sorted(staging.collect(), key=lambda row: row.task)
    staged: list[Staged] = [pickle.loads(row.staged) for row in messages]
    if messages:
        query = messages[0].query
    else:
        query = _query_of(df.sparkSession) if txn is not None else None
    return commit_topic(topic, staged, txn, query)


def _stage_with(topic: Topic) -> MapBatches:
    schema = pa.schema({"task": pa.int32(), "query": pa.string(), "staged": pa.binary()})

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        staged = TopicWriter(topic).stage(batches, first_sticky=task)
        if staged.files:
            message = {"task": task, "query": query_id(), "staged": pickle.dumps(staged)}
            yield pa.RecordBatch.from_pylist([message], schema)

    return stage


def _query_of(spark: SparkSession) -> str | None:
    """The id of the streaming query whose `foreachBatch` this runs in. Spark passes it only to
    tasks, so this runs one."""

    def tell(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"query": query_id()}], pa.schema({"query": pa.string()}))

    (row,) = map_in_arrow(spark.range(0, 1, 1, 1), tell, "query string").collect()
    return row.query  # type: ignore[no-any-return]
