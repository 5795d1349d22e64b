"""What the loop tells about each job that it has run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.jobs.group_expiry import GroupExpiryReport
from pylogtable.jobs.retention import RetentionReport
from pylogtable.jobs.rewrite_job import RewriteReport
from pylogtable.jobs.vacuum import VacuumReport
from pylogtable.kafka import ImportReport
from pylogtable.mirror.report import MirrorReport
from pylogtable.publish.report import PublishReport


@dataclass(frozen=True)
class JobRun:
    """One run of a job on a topic. `report` is what the job returns; None if it failed, and `error`
    says why. `job` is a name of `JOB_NAMES`, or "look" if the topic itself could not be read, or
    "import" for a topic of Kafka."""

    topic: str
    job: str
    began_ms: int
    seconds: float
    report: Any | None = None
    error: LogTableError | None = None

    @property
    def has_changed(self) -> bool:
        """True if the job changed something that people see. A compaction that finds nothing to
        remove commits only how far it has looked."""
        report = self.report
        if isinstance(report, RewriteReport):
            return report.segments_in > 0
        if isinstance(report, RetentionReport):
            return bool(report.log_starts)
        if isinstance(report, PublishReport):
            return any(table.steps for table in report.tables)
        if isinstance(report, VacuumReport):
            return bool(report.files)
        if isinstance(report, GroupExpiryReport):
            return bool(report.groups)
        return isinstance(report, MirrorReport | ImportReport) and report.commits > 0

    def __str__(self) -> str:
        outcome = f"FAILED: {self.error}" if self.error is not None else self.report
        return f"{self.topic}: {self.job.replace('_', ' ')}: {outcome}"
