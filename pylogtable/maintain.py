"""All maintenance jobs of a topic, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pylogtable.arguments import names_in
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.config import TopicConfig
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.compaction import Compaction
from pylogtable.jobs.group_expiry import GroupExpiry, GroupExpiryReport
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions, RegularJob, run_job
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.retention import Retention, RetentionReport
from pylogtable.jobs.rewrite_job import RewriteReport
from pylogtable.jobs.vacuum import Vacuum, VacuumReport
from pylogtable.jobs.work import RunUnits
from pylogtable.presentation import count_text
from pylogtable.publish.publication import Publication
from pylogtable.publish.report import PublishReport


@dataclass(frozen=True)
class MaintainReport:
    """What all jobs of a topic did, in the order they ran. A report is None if the topic's settings
    do not ask for that job. `error` says why the run ended early.

    After a dry run it says what the jobs would do, and nothing was changed. Compaction and merge
    are planned on what retention would leave. What compaction would leave is not known, so merge is
    planned without it. Vacuum lists the files that are not needed now."""

    topic: str
    retention: RetentionReport | None = None
    compaction: RewriteReport | None = None
    merge: RewriteReport | None = None
    publication: PublishReport | None = None
    vacuum: VacuumReport | None = None
    group_expiry: GroupExpiryReport | None = None
    seconds: float = 0.0
    error: str | None = None
    dry_run: bool = False

    @property
    def did_something(self) -> bool:
        """True if at least one job finished."""
        return any(getattr(self, name) is not None for name in JOBS)

    def __str__(self) -> str:
        parts = ["nothing was changed"] if self.dry_run else []
        remove = "would remove" if self.dry_run else "removed"
        if self.retention is not None:
            parts.append(f"retention {remove} {self.retention.records_removed:,} records")
        parts += self._rewrites()
        if self.publication is not None and self.dry_run:
            parts += [f"would publish {table}" for table in self.publication.due]
        elif self.publication is not None:
            parts += [f"published {table}" for table in self.publication.tables]
        if self.vacuum is not None:
            parts.append(f"vacuum {remove} {count_text(len(self.vacuum.files), 'file')}")
        if self.group_expiry is not None and self.group_expiry.groups:
            delete = "would delete" if self.dry_run else "deleted"
            parts.append(f"{delete} {count_text(len(self.group_expiry.groups), 'group')}")
        if self.error is not None:
            return f"{self.topic}: {', '.join([*parts, f'FAILED: {self.error}'])}"
        return f"{self.topic}: {', '.join(parts) or 'nothing to do'}; {self.seconds:.1f} s"

    def _rewrites(self) -> Iterator[str]:
        if self.dry_run:
            yield from (job.would_do for job in (self.compaction, self.merge) if job is not None)
            return
        if self.compaction is not None:
            yield f"compaction removed {self.compaction.records_removed:,} records"
        if self.merge is not None:
            shifted = f" ({self.merge.shifted_in:,} shifted)" if self.merge.shifted_in else ""
            yield f"merged {self.merge.segments_in:,}{shifted} into {self.merge.segments_out:,}"


#: Makes a job from the topic's settings and the caller's options; None if they do not ask for it.
MakeJob = Callable[[TopicConfig, MaintainOptions], RegularJob[Any] | None]

#: The jobs by name, in the order they run. Retention comes first, since what is gone need not be
#: compacted. Compaction leaves small segments, which merge joins. Published tables show the result.
#: Vacuum removes what all of them replaced.
JOBS: dict[str, MakeJob] = {
    Retention.name: Retention.for_maintain,
    Compaction.name: Compaction.for_maintain,
    Merge.name: Merge.for_maintain,
    Publication.name: Publication.for_maintain,
    Vacuum.name: Vacuum.for_maintain,
    GroupExpiry.name: GroupExpiry.for_maintain,
}
MAINTENANCE_JOBS = tuple(JOBS)
#: A copy that follows its source leaves these to the source [MIR-4].
REMOVING = (Retention.name, Compaction.name)


def check_jobs(jobs: Collection[str] | None, known: Sequence[str] = MAINTENANCE_JOBS) -> None:
    """Raise if one of the names is not that of a job."""
    for name in () if jobs is None else names_in("jobs", jobs):
        if name not in known:
            raise InvalidRequestError(f"there is no job {name!r}; the jobs are {', '.join(known)}")


def job_for(name: str, snapshot: Snapshot, options: MaintainOptions) -> RegularJob[Any] | None:
    """The job of this name, if the topic's settings and the caller ask for it."""
    is_following = snapshot.mirror is not None and snapshot.mirror.is_following
    if not options.wants(name) or (is_following and name in REMOVING):
        return None
    return JOBS[name](snapshot.config, options)


def maintain(
    topic: MaintainedTopic,
    run_units: RunUnits,
    options: MaintainOptions,
    *,
    report_errors: bool = False,
) -> MaintainReport:
    """Run the jobs that the topic's settings ask for, or say what they would do.

    With `report_errors` a failed job ends the run without raising: the report has the error, and
    the reports of the jobs before it.
    """
    check_jobs(options.jobs)
    began = topic.runtime.monotonic()
    reports: dict[str, Any] = {}
    error = None
    try:
        snapshot = topic.log.latest()
        # Raises for an unknown group before anything is changed.
        topic.unread_from(options.protect_groups, snapshot)
        for name in JOBS:
            if (job := job_for(name, snapshot, options)) is not None:
                if options.dry_run:
                    reports[job.name], topic = job.preview(topic)
                else:
                    reports[job.name] = run_job(job, topic, run_units)
    except LogTableError as raised:
        if not report_errors:
            raise
        error = f"{type(raised).__name__}: {raised}"
    seconds = topic.runtime.monotonic() - began
    return MaintainReport(
        topic=topic.name, **reports, seconds=seconds, error=error, dry_run=options.dry_run
    )
