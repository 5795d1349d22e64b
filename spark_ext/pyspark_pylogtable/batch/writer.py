"""`df.write.format("pylogtable")`: what Spark calls, on the driver and in tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pylogtable import InvalidRequestError
from pylogtable.engine import NOT_GIVEN
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.tasks.commit import (
    commit_staged,
    discard_aborted,
    query_of,
    staged_by_topic,
)
from pyspark_pylogtable.tasks.planned_write import plan_write
from pyspark_pylogtable.tasks.staging import Written, query_id, stage_rows


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame to one topic, or to the topics that its rows name."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        options.refuse_for("write")
        if overwrite:
            raise InvalidRequestError(
                "a topic is a log: records are appended, never overwritten. Use mode('append'). To "
                "start over delete the topic with store.delete_topic; to drop old records use "
                "topic.delete_records or retention"
            )
        self._write = plan_write(options, schema)
        self._txn = options.txn
        self._expected_last = options.txn_expected_last
        self._note = options.txn_note
        plan = self._write.plan
        if plan is None and self._expected_last is not NOT_GIVEN:
            raise InvalidRequestError(
                "txnExpectedLast is the last txnVersion of one topic, and the rows of this write "
                "name their topics, each of which has its own: write to each topic by itself, with "
                "the option topic"
            )
        # If the log already has the txn, the tasks write nothing.
        self._is_repeat = (
            plan is not None
            and self._txn is not None
            and plan.find_txn(*self._txn, expected_last=self._expected_last) is not None
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._is_repeat:
            for _ in iterator:
                pass
            return Written(query_id=query_id())
        return stage_rows(self._write, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = staged_by_topic(messages)
        if self._write.plan is not None and self._txn is not None:
            # Commit even without rows, so that the txn is recorded. A repeat goes through here too:
            # only now the messages tell which query wrote it, so that a txn of another query can be
            # refused.
            staged.setdefault(self._write.plan.name, [])
        query = query_of(messages)
        commit_staged(self._write, staged, self._txn, query, self._expected_last, self._note)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard_aborted(self._write, messages)
