"""Appending a DataFrame so that each partition is written by one task, in one commit.

The tasks stage files and send home what they staged; the caller's own process commits. So errors
arrive as they are, and so does the result, which a Spark writer has no way to hand back.
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
from pyspark_pylogtable.tasks.writing import (
    TOPIC,
    check_columns,
    commit_topic,
    find_written,
    query_id,
    spark_columns,
)


def append_clustered(topic: Topic, df: DataFrame, txn: tuple[str, int] | None) -> AppendResult:
    """Append `df`; see `LogTable.append`. What rows say of their topic does not matter."""
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
    """The streaming query that this runs in, by its `foreachBatch`: only tasks are told."""

    def tell(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"query": query_id()}], pa.schema({"query": pa.string()}))

    (row,) = map_in_arrow(spark.range(0, 1, 1, 1), tell, "query string").collect()
    return row.query  # type: ignore[no-any-return]
