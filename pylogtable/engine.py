"""For those who connect another engine to topics, as `pyspark_pylogtable` connects Spark.

Users of a topic need none of this. An engine does in many processes what a `Topic` does in one:

- `TopicWriter` splits an append: tasks stage files, the driver commits all of them at once.
- `Scan` splits a read: the driver plans parts, tasks read them with a `PartReader`.
- `Maintenance` splits compaction and merge: the driver plans, tasks run a `Worker`, the driver
  commits.

What travels between processes (`Staged`, `ReadPart`, `PartReader`, `Worker`, …) can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa

from pylogtable.errors import InvalidRequestError
from pylogtable.format.shaping import Placement, RowShaper, check_log_columns
from pylogtable.maintenance.jobs import Maintenance, Worker
from pylogtable.maintenance.work import Done, Work
from pylogtable.plan.read import ReadTask
from pylogtable.plan.split import ReadPart
from pylogtable.read.scan import PartReader, Scan
from pylogtable.results.operations import AppendResult
from pylogtable.topic import Topic
from pylogtable.write.append import Staged, Staging, commit_or_discard

__all__ = [
    "Done",
    "Maintenance",
    "PartReader",
    "Placement",
    "ReadPart",
    "ReadTask",
    "Scan",
    "Staged",
    "Staging",
    "TopicWriter",
    "Work",
    "Worker",
    "check_log_columns",
    "maintenance",
]


class TopicWriter:
    """Appends in two halves: any number of processes stage files, one commits them.

    >>> staged = TopicWriter(topic).stage(batches)                  # in each task
    >>> TopicWriter(topic).commit_or_discard(all_staged)            # in the driver
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._appender = topic._appender
        self._head = topic._head

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise `SchemaMismatchError` if rows with these columns cannot be appended. Call it
        before any task starts."""
        if not isinstance(schema, pa.Schema):
            raise InvalidRequestError(f"`schema` must be a pyarrow.Schema, not {schema!r}")
        RowShaper(self._head.latest().info, 0, 0).check_columns(schema)

    def placement(self) -> Placement:
        """Tells which partition each row goes to, for engines that shuffle rows themselves."""
        return Placement(self._head.latest().info)

    def stage(self, data: Any, *, first_sticky: int | None = None) -> Staged:
        """Write the data files of an append without committing them. `data` is what
        `Topic.append` takes.

        Rows without a key start in partition `first_sticky` modulo the number of partitions. Give
        each task another number, so that tasks spread their rows.
        """
        return self._appender.stage(data, first_sticky)

    def begin_staging(
        self, *, first_sticky: int | None = None, encoders: Executor | None = None
    ) -> Staging:
        """Like `stage`, for rows that arrive batch by batch: a context manager with `add` and
        `finish`. A task that stages for several topics passes the same `encoders` (a thread pool)
        to each, since every pool holds memory."""
        return self._appender.begin(first_sticky, encoders)

    def commit(
        self,
        staged: Sequence[Staged],
        *,
        txn: tuple[str, int] | None = None,
        origin: str | None = None,
    ) -> AppendResult:
        """Make staged files visible in one commit, in the order given.

        Commit files once. A retry is safe only with a `txn`. No file is removed here, because an
        earlier try may have committed it.

        `origin` names the run that numbers the txn. If the log has the same txn from another
        origin, it is an error and not a repeat: the data differs.
        """
        return self._appender.commit(staged, txn, origin)

    def commit_or_discard(
        self,
        staged: Sequence[Staged],
        *,
        txn: tuple[str, int] | None = None,
        origin: str | None = None,
    ) -> AppendResult:
        """Like `commit`, for files that no earlier try can have committed. They are removed if the
        commit fails or repeats a txn, and kept while its outcome is unknown."""
        return commit_or_discard(
            lambda: self.commit(staged, txn=txn, origin=origin),
            lambda: self.discard(staged),
        )

    def discard(self, staged: Iterable[Staged]) -> None:
        """Remove staged files. Call it only if no commit can name them: none was tried, or it
        failed with any error but `CommitUnknownError`."""
        self._appender.discard(staged)

    def find_txn(
        self, app_id: str, version: int, *, origin: str | None = None
    ) -> AppendResult | None:
        """The result of the append with this txn, or None if there was none. A txn of another
        `origin` is an error."""
        return self._appender.find((app_id, version), origin)


def maintenance(topic: Topic) -> Maintenance:
    """The maintenance jobs of a topic, split into plan, work and commit."""
    return topic._maintenance
