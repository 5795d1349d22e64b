"""`df.write.format("pylogtable")`: what Spark calls, on the driver and in tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pylogtable import InvalidRequestError, Topic
from pylogtable.engine import NOT_GIVEN, ExpectedLast, TopicWriter
from pyspark_pylogtable.request.destination import Destination
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.tasks.commit import (
    commit_staged,
    discard_aborted,
    query_of,
    staged_by_topic,
)
from pyspark_pylogtable.tasks.staging import Written, query_id, stage_rows
from pyspark_pylogtable.tasks.write_columns import plan_destination


def plan_write(
    options: Options, schema: StructType, opened: Topic | None, *, overwrite: bool
) -> BatchWriter:
    """Find or create the topic and check the columns, before any data is written. `opened` is the
    topic at the path, if it was opened just now."""
    options.refuse_for("write")
    if overwrite:
        raise InvalidRequestError(
            "a topic is a log: records are appended, never overwritten. Use mode('append'). To "
            "start over delete the topic with store.delete_topic; to drop old records use "
            "topic.delete_records or retention"
        )
    where, topic = plan_destination(options, schema, opened)
    last = options.txn_expected_last
    if where.name is None and last is not NOT_GIVEN:
        raise InvalidRequestError(
            "txnExpectedLast is the last txnVersion of one topic, and the rows of this write name "
            "their topics, each of which has its own: write to each topic by itself, with the "
            "option topic"
        )
    is_repeat = False
    if topic is not None and options.txn is not None:
        writer = TopicWriter(topic, TopicWriter.known(topic))
        is_repeat = writer.find_txn(*options.txn, expected_last=last) is not None
    return BatchWriter(where, options.txn, last, is_repeat=is_repeat)


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame to one topic, or to the topics that its rows name.

    If `is_repeat` is true, the log already has the txn, and the tasks write nothing.
    """

    def __init__(
        self,
        where: Destination,
        txn: tuple[str, int] | None,
        expected_last: ExpectedLast,
        *,
        is_repeat: bool,
    ) -> None:
        self._where = where
        self._txn = txn
        self._expected_last = expected_last
        self._is_repeat = is_repeat

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._is_repeat:
            for _ in iterator:
                pass
            return Written(query_id=query_id())
        return stage_rows(self._where, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = staged_by_topic(messages)
        if self._where.name is not None and self._txn is not None:
            # Commit even without rows, so that the txn is recorded. A repeat goes through here too:
            # only now the messages tell which query wrote it, so that a txn of another query can be
            # refused.
            staged.setdefault(self._where.name, [])
        query = query_of(messages)
        commit_staged(self._where, staged, self._txn, query, self._expected_last)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_aborted(self._where, messages)
