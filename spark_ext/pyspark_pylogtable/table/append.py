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
from typing import Any

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

from pylogtable import AppendResult, LogTableError, Topic
from pylogtable.engine import NOT_GIVEN, AppendPlan, ExpectedLast, Staged, plan_append
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.table.arrow_tasks import MapBatches, map_in_arrow
from pyspark_pylogtable.table.jobs import run_each
from pyspark_pylogtable.tasks.assignment import LOG_COLUMNS, assign
from pyspark_pylogtable.tasks.commit import commit_topic, find_written
from pyspark_pylogtable.tasks.driver import Driver, check_shared
from pyspark_pylogtable.tasks.staging import query_id
from pyspark_pylogtable.tasks.write_columns import checked_plan, spark_columns, without_log_columns

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
    note: Any = None,
    merge_schema: bool = False,
    keep_offsets: bool = False,
) -> AppendResult:
    """Append `df`; see `LogTable.append`. A `topic` column must name the topic."""
    began = time.monotonic()
    plan = plan_append(topic, keep_offsets=keep_offsets)
    df = _cast_by_session(df, plan.schema)
    plan = checked_plan(plan, spark_columns(df.schema), merge=merge_schema)
    first = None
    if txn is not None:
        first = plan.find_txn(*txn, expected_last=expected_last)
        if first is not None and first.origin is not None:
            find_written(plan, txn, _query_of(df.sparkSession))
    if first is not None:
        return first
    shape = "task int, query string, rows binary, staged binary"
    found = map_in_arrow(df, _stage_with(plan), shape).collect()
    shares = [_Share.of(row) for row in sorted(found, key=lambda row: row.task)]
    query = shares[0].query if shares else None
    if not shares and txn is not None:
        query = _query_of(df.sparkSession)
    # Others may have appended meanwhile: files at the newest ends are sealed.
    newest = plan_append(topic, keep_offsets=keep_offsets)
    staged = _sealed(newest, shares, df.sparkSession)
    result = commit_topic(newest, staged, txn, query, expected_last, note)
    return replace(result, seconds=time.monotonic() - began)


def _cast_by_session(df: DataFrame, topic: pa.Schema) -> DataFrame:
    """`df` with those casts of Spark's store assignment that need its session: dates and times to
    each other, in the session's zone, and values to text. None of them can fail."""
    columns = spark_schema(topic)
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


def _checked(plan: AppendPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as the library takes them."""
    columns = plan.schema
    for batch in batches:
        yield assign(without_log_columns(batch, plan.name, keep_offsets=plan.keep_offsets), columns)


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


def _sealed(plan: AppendPlan, shares: list[_Share], spark: SparkSession) -> list[Staged]:
    """The files to commit, with the rows of all tasks in order."""
    if all(share.staged is None for share in shares) and not plan.keep_offsets:
        rows = list(_checked(plan, chain.from_iterable(share.rows for share in shares)))
        return [plan.stage(rows)] if rows else []
    staged = [share.staged or _stage(plan, share.rows, share.task) for share in shares]
    try:
        joiner, joins = plan.plan_joins(staged)
        if sum(join.size_bytes for join in joins) < plan.store.limits.driver_bytes:
            return [plan.joined(staged, map(joiner, joins))]
        return [plan.joined(staged, run_each(spark, joiner, joins))]
    except LogTableError:
        plan.discard(staged)
        raise


def _stage_with(plan: AppendPlan) -> MapBatches:
    driver, url = Driver(), plan.store.url

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        few, rest = _few_of(iter(batches))
        message: dict[str, object] = {"task": task, "query": query_id()}
        if rest is None:
            message["rows"] = _ipc_of(few)
        else:
            check_shared(url)
            with driver.explaining(url):
                message["staged"] = pickle.dumps(_stage(plan, chain(few, rest), task))
        if few:
            yield pa.RecordBatch.from_pylist([message], _MESSAGE)

    return stage


def _stage(plan: AppendPlan, batches: Iterable[pa.RecordBatch], task: int) -> Staged:
    """Files of a task's rows that are to be joined."""
    return plan.stage(_checked(plan, batches), task, temporary=True)


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
