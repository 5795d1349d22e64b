"""Appending a DataFrame so that each partition is written by one task, in one commit.

The tasks stage files and send home what they staged; the caller's own process commits. So errors
arrive as they are, and so does the result, which a Spark writer has no way to hand back.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from pylogtable import AppendResult, Staged, Topic
from pyspark_pylogtable.clustering import MapBatches, cluster_by_partition, map_in_arrow
from pyspark_pylogtable.writing import TOPIC, check_columns, spark_columns


def append_clustered(topic: Topic, df: DataFrame, txn: tuple[str, int] | None) -> AppendResult:
    """Append `df`; see `LogTable.append`. What rows say of their topic does not matter."""
    check_columns(topic, spark_columns(df.schema))
    if TOPIC in df.columns:
        df = df.drop(TOPIC)
    if txn is not None and (first := topic.find_txn(*txn)) is not None:
        return first
    clustered = cluster_by_partition(df, topic.placement(), first_free=topic.version)
    staging = map_in_arrow(clustered, _stage_with(topic), "task int, staged binary")
    messages = staging.collect()
    staged: list[Staged] = [pickle.loads(row.staged) for row in sorted(messages)]
    return topic.commit_or_discard(staged, txn=txn)


def _stage_with(topic: Topic) -> MapBatches:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        staged = topic.stage(batches, first_sticky=task)
        if staged.files:
            message = {"task": [task], "staged": [pickle.dumps(staged)]}
            schema = pa.schema({"task": pa.int32(), "staged": pa.binary()})
            yield pa.RecordBatch.from_pydict(message, schema)

    return stage
