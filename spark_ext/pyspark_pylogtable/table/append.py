"""Appends a DataFrame in one commit, as few, large, sealed segments, without a shuffle.

The tasks of the DataFrame stage files that are fast to write. Then one task for each partition
joins them, from Arrow to Arrow. A task with few rows sends them to the driver instead, and if all
do, or if the files are small, the driver does the rest alone. The process of the caller commits. So
the caller gets the library's own errors and the result, which a Spark writer cannot return.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    FractionalType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from pylogtable import AppendResult, LogTableError, Topic, View
from pylogtable.engine import NOT_GIVEN, ExpectedLast, Staged, TopicWriter, limits_of
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.table.arrow_tasks import MapBatches, map_in_arrow
from pyspark_pylogtable.table.jobs import run_each
from pyspark_pylogtable.tasks.assignment import LOG_COLUMNS, assign
from pyspark_pylogtable.tasks.commit import commit_topic, find_written
from pyspark_pylogtable.tasks.staging import query_id
from pyspark_pylogtable.tasks.write_columns import check_columns, spark_columns, without_log_columns

#: A task with fewer bytes sends its rows to the driver, which has to hold those of all tasks.
SENT_BYTES = 64 << 10

_TIMES = (DateType, TimestampType, TimestampNTZType)
_TO_TEXT = (*_TIMES, FractionalType)

_MESSAGE = pa.schema(
    {"task": pa.int32(), "query": pa.string(), "rows": pa.binary(), "staged": pa.binary()}
)


def append_sealed(
    topic: Topic,
    df: DataFrame,
    txn: tuple[str, int] | None,
    expected_last: ExpectedLast = NOT_GIVEN,
    *,
    merge_schema: bool = False,
    keep_offsets: bool = False,
) -> AppendResult:
    """Append `df`; see `LogTable.append`. A `topic` column must name the topic."""
    began = time.monotonic()
    view = topic.at()
    df = _cast_by_session(df, view)
    columns = spark_columns(df.schema)
    view = check_columns(topic, view, columns, merge=merge_schema, keep_offsets=keep_offsets)
    first = None
    if txn is not None:
        first = TopicWriter(topic, view).find_txn(*txn, expected_last=expected_last)
        if first is not None and first.origin is not None:
            find_written(topic, txn, _query_of(df.sparkSession))
    if first is not None:
        return first
    shape = "task int, query string, rows binary, staged binary"
    into = _Into(topic, keep_offsets)
    found = map_in_arrow(df, _stage_with(into), shape).collect()
    shares = [_Share.of(row) for row in sorted(found, key=lambda row: row.task)]
    query = shares[0].query if shares else None
    if not shares and txn is not None:
        query = _query_of(df.sparkSession)
    staged = _sealed(into, shares, df.sparkSession)
    result = commit_topic(topic, staged, txn, query, expected_last)
    return replace(result, seconds=time.monotonic() - began)


def _cast_by_session(df: DataFrame, view: View) -> DataFrame:
    """`df` with those casts of Spark's store assignment that need its session: dates and times to
    each other, in the session's zone, and values to text. None of them can fail."""
    columns = spark_schema(view.schema)
    wanted = {field.name: field.dataType for field in columns if field.name not in LOG_COLUMNS}
    casts = {
        field.name: F.col(f"`{field.name.replace('`', '``')}`").cast(wanted[field.name])
        for field in df.schema
        if _is_cast_by_session(field.dataType, wanted.get(field.name))
    }
    return df.withColumns(casts) if casts else df


def _is_cast_by_session(given: DataType, wanted: DataType | None) -> bool:
    is_other = wanted is not None and given != wanted
    is_time = all(isinstance(kind, _TIMES) for kind in (given, wanted))
    to_text = isinstance(wanted, StringType) and isinstance(given, _TO_TEXT)
    return is_other and (is_time or to_text)


@dataclass(frozen=True)
class _Into:
    """Where rows go, and whether they bring their offsets."""

    topic: Topic
    keeps_offsets: bool

    def checked(self, view: View, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as the library takes them, by the columns of `view`."""
        name, columns, keep = view.name, view.schema, self.keeps_offsets
        return (
            assign(without_log_columns(batch, name, keep_offsets=keep), columns)
            for batch in batches
        )


@dataclass(frozen=True)
class _Share:
    """What one task had: its rows, or the files that it staged."""

    task: int
    query: str | None
    rows: list[pa.RecordBatch]
    staged: Staged | None

    @classmethod
    def of(cls, message: Row) -> _Share:
        rows = [] if message.rows is None else pa.ipc.open_stream(message.rows)
        staged = None if message.staged is None else pickle.loads(message.staged)
        return cls(message.task, message.query, list(rows), staged)


def _sealed(into: _Into, shares: list[_Share], spark: SparkSession) -> list[Staged]:
    """The files to commit, with the rows of all tasks in order."""
    view = into.topic.at()
    writer = TopicWriter(into.topic, view)
    if all(share.staged is None for share in shares) and not into.keeps_offsets:
        rows = list(into.checked(view, chain.from_iterable(share.rows for share in shares)))
        return [writer.stage(rows)] if rows else []
    staged = [share.staged or _stage(into, view, share.rows, share.task) for share in shares]
    try:
        joiner, joins = writer.plan_joins(staged)
        if sum(join.size_bytes for join in joins) < limits_of(into.topic).driver_bytes:
            return [writer.joined(staged, map(joiner, joins))]
        return [writer.joined(staged, run_each(spark, joiner, joins))]
    except LogTableError:
        writer.discard(staged)
        raise


def _stage_with(into: _Into) -> MapBatches:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        few, rest = _few_of(iter(batches))
        message: dict[str, object] = {"task": task, "query": query_id()}
        if rest is None:
            message["rows"] = _ipc_of(few)
        else:
            # The topic was opened in this task.
            view = TopicWriter.known(into.topic)
            message["staged"] = pickle.dumps(_stage(into, view, chain(few, rest), task))
        if few:
            yield pa.RecordBatch.from_pylist([message], _MESSAGE)

    return stage


def _stage(into: _Into, view: View, batches: Iterable[pa.RecordBatch], task: int) -> Staged:
    """Files of a task's rows that are to be joined."""
    return TopicWriter(into.topic, view).stage(
        into.checked(view, batches),
        first_sticky=task,
        temporary=True,
        keep_offsets=into.keeps_offsets,
    )


def _few_of(
    batches: Iterator[pa.RecordBatch],
) -> tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch] | None]:
    """The first batches, and the others; None if the first ones are all, and few bytes."""
    few: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            few.append(batch)
            size += batch.nbytes
        if size >= SENT_BYTES:
            return few, batches
    return few, None


def _ipc_of(batches: list[pa.RecordBatch]) -> bytes | None:
    if not batches:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _query_of(spark: SparkSession) -> str | None:
    """The id of the streaming query whose `foreachBatch` this runs in. Spark passes it only to
    tasks, so this runs one."""

    def tell(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"query": query_id()}], pa.schema({"query": pa.string()}))

    (row,) = map_in_arrow(spark.range(0, 1, 1, 1), tell, "query string").collect()
    return row.query  # type: ignore[no-any-return]
