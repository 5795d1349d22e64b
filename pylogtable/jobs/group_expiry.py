"""Deletes consumer groups that nobody uses any more, as `offsets.retention.minutes` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pylogtable.format.config import TopicConfig
from pylogtable.groups.group import expire_groups
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.work import RunUnits
from pylogtable.presentation import count_text


@dataclass(frozen=True)
class GroupExpiryReport:
    """The consumer groups that were deleted, or would be in a dry run."""

    groups: tuple[str, ...]
    seconds: float
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would delete" if self.dry_run else "deleted"
        names = f": {', '.join(self.groups)}" if self.groups else ""
        return f"{verb} {count_text(len(self.groups), 'group')}{names}; {self.seconds:.1f} s"


@dataclass(frozen=True)
class GroupExpiry:
    """Deletes the groups that have had no member and no commit for `age_ms`. A group whose unread
    records are protected stays: without it, retention would remove them."""

    age_ms: int
    protect_groups: Sequence[str] = ()

    name: ClassVar[str] = "group_expiry"

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> GroupExpiry | None:
        minutes = config.offsets_retention_minutes
        return None if minutes is None else cls(minutes * 60_000, options.protect_groups or ())

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> GroupExpiryReport:
        return self._expire(topic, dry_run=False)

    def preview(self, topic: MaintainedTopic) -> tuple[GroupExpiryReport, MaintainedTopic]:
        return self._expire(topic, dry_run=True), topic

    def _expire(self, topic: MaintainedTopic, *, dry_run: bool) -> GroupExpiryReport:
        began = topic.runtime.monotonic()
        groups = expire_groups(topic.log, self.age_ms, dry_run=dry_run, keep=self.protect_groups)
        return GroupExpiryReport(tuple(groups), topic.runtime.monotonic() - began, dry_run)
