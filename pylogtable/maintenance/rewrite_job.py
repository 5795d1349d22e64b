"""A job that writes new files for old ones: its units of work, and its report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from pylogtable.format.model import Segment
from pylogtable.maintenance.job import MaintainedTopic
from pylogtable.maintenance.swap_commits import Landed, SwapCommits, records_removed
from pylogtable.maintenance.units import Rewritten, RunUnits, Worker
from pylogtable.results.jobs import RewriteReport
from pylogtable.storage.base import ObjectStore


class UnitOfWork(Protocol):
    """Plain data that can be pickled: segments of one partition."""

    @property
    def partition(self) -> int: ...

    @property
    def inputs(self) -> tuple[Segment, ...]: ...


Unit = TypeVar("Unit", bound=UnitOfWork)


class RewriteJob(SwapCommits, ABC, Generic[Unit]):
    """Plans units of work, has them run, and commits their results."""

    name: ClassVar[str]

    @abstractmethod
    def plan(self, topic: MaintainedTopic) -> list[Unit]:
        """The units of work that are due now; plain data that can be pickled."""

    @abstractmethod
    def rewrite(self, store: ObjectStore, unit: Unit, new_id: Callable[[], str]) -> Rewritten:
        """Do one unit. It needs only the store, so that any process can run it. If it fails, it
        leaves no file behind."""

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> RewriteReport:
        began, began_ms = topic.runtime.monotonic(), topic.runtime.clock()
        units = self.plan(topic)
        planned = topic.head.known.version
        worker = Worker(topic.store, topic.runtime.new_id, self.rewrite)
        landed = self.commit_all(topic, run_units(worker, units), began_ms)
        seconds = topic.runtime.monotonic() - began
        version = landed.commits[-1].version if landed.commits else planned
        return self._report(version, landed, seconds)

    def preview(self, topic: MaintainedTopic) -> tuple[RewriteReport, MaintainedTopic]:
        began = topic.runtime.monotonic()
        units = self.plan(topic)
        segments = [segment for unit in units for segment in unit.inputs]
        report = RewriteReport(
            operation=self.operation,
            version=topic.head.known.version,
            units=len(units),
            skipped=0,
            partitions=tuple(sorted({unit.partition for unit in units})),
            segments_in=len(segments),
            segments_out=None,
            bytes_in=sum(segment.size_bytes for segment in segments),
            bytes_out=None,
            records_in=sum(segment.records for segment in segments),
            records_removed=None,
            tombstones=None,
            seconds=topic.runtime.monotonic() - began,
            shifted_in=_count_shifted(segments),
            dry_run=True,
        )
        return report, topic

    def _report(self, version: int, landed: Landed, seconds: float) -> RewriteReport:
        swaps = [swap for rewritten in landed.committed for swap in rewritten.swaps]
        old = [segment for swap in swaps for segment in swap.inputs]
        new = [segment for swap in swaps for segment in swap.outputs]
        return RewriteReport(
            operation=self.operation,
            version=version,
            units=len(landed.committed),
            skipped=landed.skipped,
            partitions=tuple(sorted({rewritten.partition for rewritten in landed.committed})),
            segments_in=len(old),
            segments_out=len(new),
            bytes_in=sum(segment.size_bytes for segment in old),
            bytes_out=sum(segment.size_bytes for segment in new),
            records_in=sum(rewritten.records_in for rewritten in landed.committed),
            records_removed=records_removed(landed.committed),
            tombstones=sum(segment.tombstones for segment in new),
            seconds=seconds,
            shifted_in=_count_shifted(old),
        )


def _count_shifted(segments: Sequence[Segment]) -> int:
    return sum(segment.shift > 0 for segment in segments)
