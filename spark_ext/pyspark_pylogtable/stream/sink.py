"""`writeStream.format("pylogtable")`: each batch of a query is appended exactly once.

The query's id and the batch number are the txn of the commit. So a batch that runs again, after a
restart or because the first commit's outcome was not known, is found in the log and not appended
again. Spark calls `commit` on a new writer that knows the batch number but not the query; the tasks
know the query and send its id with their messages.

The commit of a driver that died may land late. Its successor goes on from the checkpoint and runs
that batch again, under its number, before the next one. So a late commit is a repeat, or it loses.
A sink need not say which txn it expects to be the last, and could not: batches without rows make no
commit, and after a restart from an older checkpoint the log has later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.tasks.commit import (
    commit_staged,
    discard_aborted,
    query_of,
    staged_by_topic,
)
from pyspark_pylogtable.tasks.planned_write import plan_write
from pyspark_pylogtable.tasks.staging import Written, stage_rows

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    SPARK_PASSES_ROWS: bool
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter

        SPARK_PASSES_ROWS = False
    except ImportError:  # Spark 4.0
        DataSourceStreamArrowWriter, SPARK_PASSES_ROWS = DataSourceStreamWriter, True

BLOCK_ROWS = 10_000


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a query to one topic, or to the topics that its rows name."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        options.refuse_for("stream write")
        if overwrite:
            raise InvalidRequestError(
                "output mode complete writes the whole result again with each batch, but a topic "
                "is a log: records are appended, never overwritten. Use outputMode('append'); or "
                "write the changed rows in foreachBatch to a topic with a key, and read its "
                "view=latest"
            )
        self._write = plan_write(options, schema)
        self._schema = schema
        self._app_id = options.txn_app_id

    def write(self, iterator: Iterator[Any]) -> Written:
        batches = batches_of_rows(iterator, self._schema) if SPARK_PASSES_ROWS else iterator
        return stage_rows(self._write, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = {
            topic: parts
            for topic, parts in staged_by_topic(messages).items()
            if any(part.files for part in parts)
        }
        if not staged:
            return
        query = query_of(messages)
        app_id = self._app_id or query
        if app_id is None:
            raise InvalidRequestError(
                "Spark did not pass the id of this query. Without it a repeated batch looks like a "
                "new one, so nothing was written. Name the query with txnAppId"
            )
        commit_staged(self._write, staged, (app_id, batchId), query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard_aborted(self._write, messages)


def batches_of_rows(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches. Newer versions of Spark pass such batches themselves."""
    from pyspark.sql.conversion import LocalDataToArrowConversion

    left = iter(rows)
    while block := list(islice(left, BLOCK_ROWS)):
        table: pa.Table = LocalDataToArrowConversion.convert(block, schema, False)
        yield from table.to_batches()
