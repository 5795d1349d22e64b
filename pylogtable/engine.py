"""The interface for connecting another engine to topics, as `pyspark_pylogtable` does for Spark.

Users of a topic need none of this. An engine does in many processes what a `Topic` does in one:

- `plan_append` splits an append: tasks stage files with the plan, the driver commits all of them at
  once.
- `Scan` splits a read: the driver plans parts, tasks read them with a `PartReader`.
- `run_job` and `maintain` split maintenance: the driver plans units of work, a function of yours
  runs them anywhere with a `Worker`, the driver commits.
- `locate` finds positions (offsets, times, durations, ends) in each partition of a log.
- `mirror` splits a copy to another store: the driver plans, tasks copy files, the driver commits.
- `lag` measures how far a reader is behind that keeps its positions elsewhere.
- `LineFormatter` writes lines of the log as the command line does.
- `left_probe` and `diagnose_from_elsewhere` tell whether other processes see the same store.

Everything that is sent between processes (`AppendPlan`, `Staged`, `ReadPart`, `PartReader`,
`Worker`, units, `Rewritten`) can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pylogtable.append.distributed_append import AppendPlan
from pylogtable.append.join_plan import Join
from pylogtable.append.join_staged import Joiner
from pylogtable.append.plan import ExpectedLast
from pylogtable.append.shaping import check_log_columns
from pylogtable.append.stager import Staged, Stager
from pylogtable.arguments import NOT_GIVEN, parse_storage_options
from pylogtable.check.doctor import diagnose_from_elsewhere, left_probe
from pylogtable.check.doctor_report import DoctorCheck
from pylogtable.errors import LogTableError
from pylogtable.groups.lag import measure_lag
from pylogtable.groups.report import Lag
from pylogtable.jobs.compaction import Compaction
from pylogtable.jobs.erase import Erasure
from pylogtable.jobs.job import Job, MaintainOptions
from pylogtable.jobs.job import run_job as _run_job
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.retention import Retention
from pylogtable.jobs.vacuum import Vacuum
from pylogtable.jobs.work import Rewritten, RunUnits, Worker, in_threads
from pylogtable.limits import Limits
from pylogtable.log_lines import LineFormatter
from pylogtable.maintain import MAINTENANCE_JOBS, MaintainReport
from pylogtable.maintain import maintain as run_maintenance
from pylogtable.mirror.copying import Copied, CopyTask, RunTasks
from pylogtable.mirror.options import MirrorOptions
from pylogtable.mirror.report import MirrorReport
from pylogtable.mirror.start import mirror as run_mirror
from pylogtable.operation import operation
from pylogtable.publish.publication import Publication
from pylogtable.read.parallel_scan import PartReader, Scan
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
from pylogtable.segments.read_task import ReadTask
from pylogtable.storage.credentials import module_of_provider, portable_options
from pylogtable.store import Store
from pylogtable.times import as_datetime, parse_duration, parse_time
from pylogtable.topic import Topic

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAINTENANCE_JOBS",
    "NOT_GIVEN",
    "AppendPlan",
    "Compaction",
    "Copied",
    "CopyTask",
    "DoctorCheck",
    "Erasure",
    "ExpectedLast",
    "Job",
    "Join",
    "Joiner",
    "Lag",
    "LineFormatter",
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
    "Vacuum",
    "Worker",
    "as_datetime",
    "by_commit",
    "check_log_columns",
    "diagnose_from_elsewhere",
    "groups_by_topic",
    "in_threads",
    "joined",
    "lag",
    "left_probe",
    "limits_of",
    "locate",
    "maintain",
    "mirror",
    "module_of_provider",
    "parse_duration",
    "parse_position",
    "parse_storage_options",
    "parse_time",
    "parse_when",
    "plan_append",
    "portable_options",
    "protected_groups",
    "run_job",
    "share_tasks",
]

Report = TypeVar("Report")


@operation
def plan_append(
    topic: Topic,
    *,
    keep_offsets: bool = False,
    refresh: bool = True,
    app_id: str | None = None,
) -> AppendPlan:
    """Plan an append to the newest version of the topic. With `refresh=False` it is the version
    that was seen last, and nothing is asked: give it if the topic was opened just now.

    With `keep_offsets`, rows bring their partition and their offset, as in `Topic.append`. A copy
    of Kafka's topic takes the appends of its import only, whose txns have the `app_id`.
    """
    log = topic._log
    snapshot = log.latest() if refresh else log.known
    return topic._appender.plan(snapshot, keep_offsets=keep_offsets, app_id=app_id)


@operation
def run_job(topic: Topic, job: Job[Report], run_units: RunUnits) -> Report:
    """Run one maintenance job on a topic. `run_units(worker, units)` calls `worker(unit)` for each
    unit, in any process, and returns the results.

    >>> run_job(topic, Compaction(force=True), lambda worker, units: map(worker, units))
    """
    return _run_job(job, topic._maintained, run_units)


@operation
def maintain(
    topic: Topic,
    run_units: RunUnits,
    *,
    vacuum: bool = True,
    jobs: Sequence[str] | None = None,
    protect_groups: Sequence[str] | None = None,
    dry_run: bool = False,
    report_errors: bool = False,
) -> MaintainReport:
    """Like `Topic.maintain`, with a `run_units` function as in `run_job`, and only these `jobs` of
    `MAINTENANCE_JOBS`. With `report_errors`, a
    job that fails ends the run but does not raise. The report then has the error and the reports of
    the jobs that ran before."""
    options = MaintainOptions(vacuum, protect_groups, dry_run, jobs)
    return run_maintenance(topic._maintained, run_units, options, report_errors=report_errors)


@operation
def mirror(
    topic: Topic, to_store: Store, run_tasks: RunTasks[CopyTask, list[Copied]], **options: Any
) -> MirrorReport:
    """Like `Topic.mirror`, with its options. `run_tasks(copier, tasks, done)` calls `copier(task)`
    for each task, in any process, and `done` with each result, in the order of the tasks."""
    return run_mirror(topic, to_store, MirrorOptions(**options), run_tasks)


@operation
def lag(topic: Topic, positions: Mapping[int, int]) -> dict[int, Lag]:
    """How far a reader that keeps its positions elsewhere is behind the newest version of the
    topic, in each partition of which it has one. It counts as `Group.lag` does."""
    view = topic.at()
    known = {number: at for number, at in positions.items() if number in view.end_offsets}
    return measure_lag(topic._log.store, view, known, topic._log.runtime.clock())


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
