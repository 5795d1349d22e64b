"""Appending a DataFrame so that each partition is written by one task, in one commit.

The tasks stage files and send home what they staged; the caller's own process commits. So errors
arrive as they are, and so does the result, which a Spark writer has no way to hand back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from pylogtable import AppendResult, CommitUnknownError, LogTableError, Staged, Topic
from pyspark_pylogtable.clustering import cluster_by_partition
from pyspark_pylogtable.writing import check_columns, spark_columns


def append_clustered(topic: Topic, df: DataFrame, txn: tuple[str, int] | None) -> AppendResult:
    """Append `df`; see `LogTable.append`."""
    check_columns(topic, spark_columns(df.schema))
    if txn is not None and (first := topic.find_txn(*txn)) is not None:
        return first
    clustered = cluster_by_partition(df, topic.placement())
    messages = clustered.mapInArrow(_stage_with(topic), "task int, staged binary").collect()
    staged: list[Staged] = [pickle.loads(row.staged) for row in sorted(messages)]
    try:
        result = topic.commit_staged(staged, txn=txn)
    except CommitUnknownError:
        raise
    except LogTableError:
        topic.discard_staged(staged)
        raise
    if result.repeated:
        topic.discard_staged(staged)
    return result


def _stage_with(
    topic: Topic,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        staged = topic.stage(batches, first_sticky=task)
        if staged.files:
            message = {"task": [task], "staged": [pickle.dumps(staged)]}
            schema = pa.schema({"task": pa.int32(), "staged": pa.binary()})
            yield pa.RecordBatch.from_pydict(message, schema)

    return stage
