"""Merge: join small segments into larger ones, and seal shifted ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pylogtable.format.config import TopicConfig
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.merge_plan import (
    MergeUnit,
    plan_continuous_merge,
    plan_merge,
    plan_regular_merge,
)
from pylogtable.jobs.replace_plan import Swap
from pylogtable.jobs.rewrite import rewrite_segments
from pylogtable.jobs.rewrite_job import RewriteJob
from pylogtable.jobs.work import Rewritten
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class Merge(RewriteJob[MergeUnit]):
    """Joins neighbouring small segments. Offsets do not change. A unit of work is a run of
    neighbours that becomes about one segment. If it `is_regular`, records in commits wait until
    they are worth a file. If it comes `again_and_again`, small segments wait until there are enough
    of them, too: else the same records would be written with each call."""

    is_regular: bool = False
    again_and_again: bool = False

    name: ClassVar[str] = "merge"
    operation: ClassVar[str] = "merge"

    @property
    def commits_together(self) -> bool:
        """True if it comes every few seconds: a commit for each partition would race with appends
        again and again."""
        return self.again_and_again

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> Merge:
        return cls(is_regular=True, again_and_again=options.again_and_again)

    def plan(self, topic: MaintainedTopic) -> list[MergeUnit]:
        state = topic.newest()
        if self.again_and_again:
            return plan_continuous_merge(state, topic.tables.copied(state.snapshot))
        if self.is_regular:
            return plan_regular_merge(state)
        numbers = range(len(state.snapshot.partitions))
        return [unit for number in numbers for unit in plan_merge(state, number)]

    def rewrite(self, store: ObjectStore, unit: MergeUnit, new_id: Callable[[], str]) -> Rewritten:
        outputs = rewrite_segments(
            store,
            unit.topic,
            unit.inputs,
            unit.log_start,
            new_id,
            delete_horizon_ms=unit.delete_horizon_ms,
        )
        return Rewritten(
            unit.partition,
            (Swap(unit.inputs, outputs),),
            records_in=sum(segment.records for segment in unit.inputs),
            records_out=sum(segment.records for segment in outputs),
        )
