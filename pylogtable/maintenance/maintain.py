"""All maintenance jobs of a topic, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.format.config import TopicConfig
from pylogtable.maintenance.compaction import Compaction
from pylogtable.maintenance.job import MaintainedTopic, MaintainOptions, RegularJob
from pylogtable.maintenance.merge import Merge
from pylogtable.maintenance.publication import Publication
from pylogtable.maintenance.retention import Retention
from pylogtable.maintenance.units import RunUnits
from pylogtable.maintenance.vacuum import Vacuum
from pylogtable.results.jobs import MaintainReport

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
        snapshot = topic.head.latest()
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
