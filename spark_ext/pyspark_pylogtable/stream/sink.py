"""`writeStream.format("pylogtable")`: each batch of a query is appended once.

The query's id and the number of the batch are the txn of its commit, so a batch that is run again,
after a restart or because nobody heard that it was committed, is found in the log and left alone.
Spark calls `commit` on a writer made for it, which knows the number and not the query: tasks know
that, and send it home.
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
from pyspark_pylogtable.options import Options
from pyspark_pylogtable.tasks.writing import (
    Written,
    commit_staged,
    discard_aborted,
    plan_destination,
    query_of,
    stage_rows,
    staged_by_topic,
)
from pyspark_pylogtable.topics import Destination

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    HANDS_OVER_ROWS: bool
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter

        HANDS_OVER_ROWS = False
    except ImportError:  # Spark 4.0
        DataSourceStreamArrowWriter, HANDS_OVER_ROWS = DataSourceStreamWriter, True

BLOCK_ROWS = 10_000


def plan_stream_write(options: Options, schema: StructType, *, overwrite: bool) -> StreamWriter:
    """Find or make the topic and check the columns, before any data is written."""
    options.refuse_for("stream write")
    if overwrite:
        raise InvalidRequestError(
            "output mode complete writes the whole result again with each batch, and a topic is a "
            "log: records are appended, and never overwritten. Use outputMode('append'); or write "
            "the changed rows in foreachBatch, to a topic with a key, and read its view=latest"
        )
    where, _ = plan_destination(options, schema)
    return StreamWriter(where, schema, options.txn_app_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the rows of each batch to one topic, or to those that the rows name."""

    def __init__(self, where: Destination, schema: StructType, app_id: str | None) -> None:
        self._where = where
        self._schema = schema
        self._app_id = app_id

    def write(self, iterator: Iterator[Any]) -> Written:
        batches = batches_of_rows(iterator, self._schema) if HANDS_OVER_ROWS else iterator
        return stage_rows(self._where, batches)

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
                "Spark did not say which query this is, so a batch that is run again could not be "
                "told from a new one; nothing was written. Name the query with txnAppId"
            )
        commit_staged(self._where, staged, (app_id, batchId), query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        discard_aborted(self._where, messages)


def batches_of_rows(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow has them where Spark hands it over itself."""
    from pyspark.sql.conversion import LocalDataToArrowConversion

    left = iter(rows)
    while block := list(islice(left, BLOCK_ROWS)):
        table: pa.Table = LocalDataToArrowConversion.convert(block, schema, False)
        yield from table.to_batches()
