"""A job that writes new files for old ones: its units of work, and its report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from pylogtable.format.model import Segment
from pylogtable.jobs.commit_rewrites import RewriteOutcome, SwapCommits, records_removed
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.jobs.work import Rewritten, RunUnits, Worker
from pylogtable.presentation import count_text
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class RewriteReport:
    """What a compaction or a merge did. `units` counts the committed units of work, `skipped` those
    that were not committed because another job had changed their input. `segments_in` and
    `bytes_in` describe the replaced segments; `segments_out`, `bytes_out` and `tombstones` the new
    ones. `records_in` counts all records that were read. `partitions` are those that were changed.
    `shifted_in` counts the replaced segments that were shifted: plain Parquet readers see wrong
    offsets in such a file.

    A dry run of `Topic.maintain` reports the units that are due, with all of their segments: a
    compaction may leave some of them as they are. What is known only after the work is None."""

    operation: str
    version: int
    units: int
    skipped: int
    partitions: tuple[int, ...]
    segments_in: int
    segments_out: int | None
    bytes_in: int
    bytes_out: int | None
    records_in: int
    records_removed: int | None
    tombstones: int | None
    seconds: float
    shifted_in: int = 0
    dry_run: bool = False

    @property
    def megabytes_per_second(self) -> float:
        """Replaced megabytes per second, to compare runs."""
        return self.bytes_in / 1e6 / max(self.seconds, 1e-9)

    def __str__(self) -> str:
        parts = [self.would_do if self.dry_run else self._did()]
        if self.records_removed:
            parts.append(f"{self.records_removed:,} of {self.records_in:,} records removed")
        if self.skipped:
            skipped = count_text(self.skipped, "unit")
            parts.append(f"{skipped} skipped, because another job was faster")
        return f"{', '.join(parts)}; {self.seconds:.1f} s"

    @property
    def would_do(self) -> str:
        """What a dry run found to do."""
        partitions = count_text(len(self.partitions), "partition")
        return f"would {self.operation} {self._segments()} in {partitions}"

    def _did(self) -> str:
        if not self.segments_in:
            return f"nothing to {self.operation}"
        verb = f"{self.operation.removesuffix('e')}ed"
        return f"{verb} {self._segments()} into {self.segments_out:,}"

    def _segments(self) -> str:
        shifted = f" ({self.shifted_in:,} shifted)" if self.shifted_in else ""
        return f"{count_text(self.segments_in, 'segment')}{shifted}"


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
        planned = topic.log.known.version
        worker = Worker(topic.store, topic.runtime.new_id, self.rewrite)
        outcome = self.commit_all(topic, run_units(worker, units), began_ms)
        seconds = topic.runtime.monotonic() - began
        version = outcome.commits[-1].version if outcome.commits else planned
        return self._report(version, outcome, seconds)

    def preview(self, topic: MaintainedTopic) -> tuple[RewriteReport, MaintainedTopic]:
        began = topic.runtime.monotonic()
        units = self.plan(topic)
        segments = [segment for unit in units for segment in unit.inputs]
        report = RewriteReport(
            operation=self.operation,
            version=topic.log.known.version,
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

    def _report(self, version: int, outcome: RewriteOutcome, seconds: float) -> RewriteReport:
        swaps = [swap for rewritten in outcome.committed for swap in rewritten.swaps]
        old = [segment for swap in swaps for segment in swap.inputs]
        new = [segment for swap in swaps for segment in swap.outputs]
        return RewriteReport(
            operation=self.operation,
            version=version,
            units=len(outcome.committed),
            skipped=outcome.skipped,
            partitions=tuple(sorted({rewritten.partition for rewritten in outcome.committed})),
            segments_in=len(old),
            segments_out=len(new),
            bytes_in=sum(segment.size_bytes for segment in old),
            bytes_out=sum(segment.size_bytes for segment in new),
            records_in=sum(rewritten.records_in for rewritten in outcome.committed),
            records_removed=records_removed(outcome.committed),
            tombstones=sum(segment.tombstones for segment in new),
            seconds=seconds,
            shifted_in=_count_shifted(old),
        )


def _count_shifted(segments: Sequence[Segment]) -> int:
    return sum(segment.shift > 0 for segment in segments)
