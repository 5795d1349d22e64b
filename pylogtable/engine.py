"""The interface for connecting another engine to topics, as `pyspark_pylogtable` does for Spark.

Users of a topic need none of this. An engine does in many processes what a `Topic` does in one:

- `TopicWriter` splits an append: tasks stage files, the driver commits all of them at once.
- `Scan` splits a read: the driver plans parts, tasks read them with a `PartReader`.
- `run_job` and `maintain` split maintenance: the driver plans units of work, a function of yours
  runs them anywhere with a `Worker`, the driver commits.
- `locate` finds positions (offsets, times, durations, ends) in each partition of a log.
- `mirror` splits a copy to another store: the driver plans, tasks copy files, the driver commits.

Everything that is sent between processes (`Staged`, `ReadPart`, `PartReader`, `Worker`, units,
`Rewritten`) can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from pylogtable import maintain as jobs
from pylogtable.append.appender import commit_or_discard
from pylogtable.append.join_plan import Join, plan_joins
from pylogtable.append.join_staged import Joiner
from pylogtable.append.missing_columns_plan import plan_missing_columns
from pylogtable.append.plan import ExpectedLast
from pylogtable.append.report import AppendResult
from pylogtable.append.shaping import RowShaper, check_log_columns
from pylogtable.append.stager import Staged, Stager
from pylogtable.arguments import NOT_GIVEN, parse_storage_options
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.model import StagedSegment
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.compaction import Compaction
from pylogtable.jobs.erase import Erasure
from pylogtable.jobs.job import Job, MaintainOptions
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.retention import Retention
from pylogtable.jobs.vacuum import Vacuum
from pylogtable.jobs.work import Rewritten, RunUnits, Worker, in_threads
from pylogtable.limits import Limits
from pylogtable.maintain import MaintainReport
from pylogtable.mirror.copying import Copied, CopyTask, RunTasks
from pylogtable.mirror.options import MirrorOptions
from pylogtable.mirror.report import MirrorReport
from pylogtable.mirror.start import mirror as run_mirror
from pylogtable.operation import operation, operations
from pylogtable.publish.publication import Publication
from pylogtable.read.parts_plan import ReadPart, by_commit, joined, share_tasks
from pylogtable.read.position import (
    EARLIEST,
    LATEST,
    Position,
    PositionLog,
    locate,
    parse_position,
    parse_when,
)
from pylogtable.read.scan import PartReader, Scan
from pylogtable.read.view import View
from pylogtable.segments.read_task import ReadTask
from pylogtable.store import Store
from pylogtable.times import as_datetime, parse_time
from pylogtable.topic import Topic

__all__ = [
    "EARLIEST",
    "LATEST",
    "NOT_GIVEN",
    "Compaction",
    "Copied",
    "CopyTask",
    "Erasure",
    "ExpectedLast",
    "Job",
    "Join",
    "Joiner",
    "Merge",
    "PartReader",
    "Position",
    "PositionLog",
    "Publication",
    "ReadPart",
    "ReadTask",
    "Retention",
    "Rewritten",
    "RunTasks",
    "RunUnits",
    "Scan",
    "Staged",
    "Stager",
    "TopicWriter",
    "Vacuum",
    "Worker",
    "as_datetime",
    "by_commit",
    "check_log_columns",
    "groups_by_topic",
    "in_threads",
    "joined",
    "limits_of",
    "locate",
    "maintain",
    "mirror",
    "parse_position",
    "parse_storage_options",
    "parse_time",
    "parse_when",
    "protected_groups",
    "run_job",
    "share_tasks",
]

Report = TypeVar("Report")


@operations
class TopicWriter:
    """An append in two steps: any number of processes stage files, one process commits them.

    >>> staged = TopicWriter(topic).stage(batches)                  # in each task
    >>> TopicWriter(topic).commit_or_discard(all_staged)            # in the driver

    Rows are checked and shaped by the newest version of the topic, which each call asks for. With
    a `view`, they are checked and shaped by that one, and nothing is asked. Use it for several
    calls that belong together, with `topic.at()`, or with `known(topic)` if it was opened just now.
    """

    def __init__(self, topic: Topic, view: View | None = None) -> None:
        self._topic = topic
        self._appender = topic._appender
        self._log = topic._log
        self._view = view

    @staticmethod
    def known(topic: Topic) -> View:
        """The topic as it was when it was last looked at, without a request."""
        return View(topic.name, topic._store, topic._log.known, topic._log.manifest)

    def _snapshot(self) -> Snapshot:
        return self._log.latest() if self._view is None else self._view.snapshot

    def check_columns(self, schema: pa.Schema, *, keep_offsets: bool = False) -> None:
        """Raise `SchemaMismatchError` if rows with these columns cannot be appended. Call it
        before any task starts."""
        if not isinstance(schema, pa.Schema):
            raise InvalidRequestError(f"`schema` must be a pyarrow.Schema, not {schema!r}")
        shaper = RowShaper(self._snapshot().info, 0, 0, keep_offsets=keep_offsets)
        shaper.check_columns(schema)

    def merge_columns(self, schema: pa.Schema, *, keep_offsets: bool = False) -> None:
        """Add those columns of the rows to be appended that the topic does not have, as nullable
        columns, in one commit. Other writers may do the same at the same time. Raises, and changes
        nothing, if such rows could not be appended even then."""
        if not isinstance(schema, pa.Schema):
            raise InvalidRequestError(f"`schema` must be a pyarrow.Schema, not {schema!r}")
        self._log.change(
            lambda state: plan_missing_columns(state.snapshot, schema, keep_offsets=keep_offsets)
        )

    def stage(
        self,
        data: Any,
        *,
        first_sticky: int | None = None,
        temporary: bool = False,
        keep_offsets: bool = False,
    ) -> Staged:
        """Write the data files of an append without committing them. `data` is anything that
        `Topic.append` accepts.

        Rows without a key start in partition `first_sticky` modulo the number of partitions. Give
        each task a different number, so that tasks spread their rows. `temporary` files are faster
        to write, and larger; `plan_joins` makes them ready for the commit. With `keep_offsets`,
        rows bring their offsets, as in `Topic.append`; in each task they rise inside each
        partition, and no two tasks have offsets of a partition that overlap.
        """
        return self._appender.stage(
            data,
            first_sticky,
            snapshot=self._snapshot(),
            temporary=temporary,
            keep_offsets=keep_offsets,
        )

    def plan_joins(self, staged: Sequence[Staged]) -> tuple[Joiner, list[Join]]:
        """Units of work that join the files of many tasks into few, large, sealed ones. Call the
        `Joiner` with each of them, in any process, pass the results to `joined`, in order, and
        commit what that returns.

        >>> joiner, joins = writer.plan_joins(all_staged)
        >>> result = writer.commit_or_discard([writer.joined(all_staged, map(joiner, joins))])
        """
        snapshot = self._snapshot()
        files = self._appender.gathered(staged).files
        joiner = Joiner(self._topic._store, self._log.runtime.new_id)
        return joiner, plan_joins(snapshot, files, self._topic._store.limits)

    def joined(
        self, staged: Sequence[Staged], results: Iterable[tuple[StagedSegment, ...]]
    ) -> Staged:
        """What is to be committed in place of `staged`, whose files are removed. Raises, and
        removes nothing, if it does not have the same number of records."""
        before = self._appender.gathered(staged)
        files = tuple(_files_of(results))
        had, has = (sum(file.records for file in some) for some in (before.files, files))
        if had != has:
            raise InvalidRequestError(
                f"the joined files have {has} records, and the staged ones {had}; give the results "
                "of all joins, each once"
            )
        self._appender.discard(staged)
        return replace(before, files=files)

    def begin_staging(
        self,
        *,
        first_sticky: int | None = None,
        encoders: Executor | None = None,
        keep_offsets: bool = False,
    ) -> Stager:
        """Like `stage`, for rows that arrive batch by batch: a context manager with `add` and
        `finish`. A task that stages for several topics passes the same `encoders` (a thread pool)
        to each, since every pool holds memory."""
        return self._appender.begin(
            first_sticky, encoders, snapshot=self._snapshot(), keep_offsets=keep_offsets
        )

    def commit(
        self,
        staged: Sequence[Staged],
        *,
        txn: tuple[str, int] | None = None,
        origin: str | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
        expected_ends: Mapping[int, int] | None = None,
    ) -> AppendResult:
        """Make staged files visible in one commit, in the order given.

        Commit files once. A retry is safe only with a `txn`. No file is removed here, because an
        earlier try may have committed it.

        `origin` names the run that numbers the txn. If the log has the same txn from a different
        origin, the commit raises an error: the data is not the same.

        `expected_last` is the last txn of the app id as the writer knows it, as in `Topic.append`.
        If the log has another one, the commit raises `CommitConflictError`, unless it is a repeat.

        `expected_ends` are the end offsets of all partitions, as a writer that is the only one
        knows them. If another one has appended, the commit raises `CommitConflictError`.
        """
        return self._appender.commit(staged, txn, origin, expected_last, expected_ends)

    def commit_or_discard(
        self,
        staged: Sequence[Staged],
        *,
        txn: tuple[str, int] | None = None,
        origin: str | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
        expected_ends: Mapping[int, int] | None = None,
    ) -> AppendResult:
        """Like `commit`, for files that no earlier try can have committed. They are removed if the
        commit fails, and kept while its outcome is unknown. If it repeats a txn, files that the
        first commit does not name are removed."""
        return commit_or_discard(
            lambda: self.commit(
                staged,
                txn=txn,
                origin=origin,
                expected_last=expected_last,
                expected_ends=expected_ends,
            ),
            lambda version: self._appender.discard(staged, repeats=version),
        )

    def discard(self, staged: Iterable[Staged]) -> None:
        """Remove staged files. Call it only if no commit can name them: none was tried, or it
        failed with an error other than `CommitUnknownError`."""
        self._appender.discard(staged)

    def find_txn(
        self,
        app_id: str,
        version: int,
        *,
        origin: str | None = None,
        expected_last: ExpectedLast = NOT_GIVEN,
    ) -> AppendResult | None:
        """The result of the append with this txn, or None if there was none. Raises if the txn has
        a different `origin`, or if a commit with this `expected_last` would be refused: so ask
        before the work that it needs."""
        return self._appender.find((app_id, version), origin, expected_last, self._snapshot())


def _files_of(results: Iterable[tuple[StagedSegment, ...]]) -> Iterator[StagedSegment]:
    for result in results if isinstance(results, Iterable) else [results]:
        if not isinstance(result, tuple) or not all(isinstance(f, StagedSegment) for f in result):
            raise InvalidRequestError(
                "`results` must be what the joiner returned for each join, such as "
                f"map(joiner, joins), not {type(results).__name__}"
            )
        yield from result


@operation
def run_job(topic: Topic, job: Job[Report], run_units: RunUnits) -> Report:
    """Run one maintenance job on a topic. `run_units(worker, units)` calls `worker(unit)` for each
    unit, in any process, and returns the results.

    >>> run_job(topic, Compaction(force=True), lambda worker, units: map(worker, units))
    """
    return job.run(topic._maintained, run_units)


@operation
def maintain(
    topic: Topic,
    run_units: RunUnits,
    *,
    vacuum: bool = True,
    protect_groups: Sequence[str] | None = None,
    dry_run: bool = False,
    report_errors: bool = False,
) -> MaintainReport:
    """Like `Topic.maintain`, with a `run_units` function as in `run_job`. With `report_errors`, a
    job that fails ends the run but does not raise. The report then has the error and the reports of
    the jobs that ran before."""
    options = MaintainOptions(vacuum, protect_groups, dry_run)
    return jobs.maintain(topic._maintained, run_units, options, report_errors=report_errors)


@operation
def mirror(
    topic: Topic, to_store: Store, run_tasks: RunTasks[CopyTask, list[Copied]], **options: Any
) -> MirrorReport:
    """Like `Topic.mirror`, with its options. `run_tasks(copier, tasks, done)` calls `copier(task)`
    for each task, in any process, and `done` with each result, in the order of the tasks."""
    return run_mirror(topic, to_store, MirrorOptions(**options), run_tasks)


def limits_of(opened: Topic | Store) -> Limits:
    """By which work on a topic, or on the topics of a store, is split."""
    return opened._store.limits


def protected_groups(
    store: Store, groups: Sequence[str], topics: Sequence[str]
) -> dict[str, list[str]]:
    """For each topic, which of these consumer groups it has. Pass these as `protect_groups` of that
    topic. Raises if a group is in none of the topics."""
    return store._protected(groups, topics)


def groups_by_topic(store: Store) -> dict[str, list[str] | LogTableError]:
    """The consumer groups of each topic, or the error if they cannot be read."""
    return store._groups_by_topic(store.topics())
