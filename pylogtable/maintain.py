"""All maintenance jobs of a topic, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.format.config import TopicConfig
from pylogtable.jobs.compaction import Compaction
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions, RegularJob
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
    seconds: float = 0.0
    error: str | None = None
    dry_run: bool = False

    @property
    def did_something(self) -> bool:
        """True if at least one job finished."""
        return any((self.retention, self.compaction, self.merge, self.publication, self.vacuum))

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
        if self.error is not None:
            return f"{self.topic}: {', '.join([*parts, f'FAILED: {self.error}'])}"
        return f"{self.topic}: {', '.join(parts)}; {self.seconds:.1f} s"

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

#: The jobs, in the order they run. Retention comes first, since what is gone need not be compacted.
#: Compaction leaves small segments, which merge joins. Published tables show the result. Vacuum
#: removes what all of them replaced.
JOBS: tuple[MakeJob, ...] = (
    Retention.for_maintain,
    Compaction.for_maintain,
    Merge.for_maintain,
    Publication.for_maintain,
    Vacuum.for_maintain,
)
#: A copy that follows its source leaves these to the source [MIR-4].
REMOVING: tuple[MakeJob, ...] = (Retention.for_maintain, Compaction.for_maintain)


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
    began = topic.runtime.monotonic()
    reports: dict[str, Any] = {}
    error = None
    try:
        snapshot = topic.log.latest()
        # Raises for an unknown group before anything is changed.
        topic.unread_from(options.protect_groups, snapshot)
        is_following = snapshot.mirror is not None and snapshot.mirror.is_following
        for make_job in JOBS:
            if is_following and make_job in REMOVING:
                continue
            if (job := make_job(snapshot.config, options)) is not None:
                if options.dry_run:
                    reports[job.name], topic = job.preview(topic)
                else:
                    reports[job.name] = job.run(topic, run_units)
    except LogTableError as raised:
        if not report_errors:
            raise
        error = f"{type(raised).__name__}: {raised}"
    seconds = topic.runtime.monotonic() - began
    return MaintainReport(
        topic=topic.name, **reports, seconds=seconds, error=error, dry_run=options.dry_run
    )
