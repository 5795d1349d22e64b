"""A job that writes new files for old ones and commits them as swaps, a partition at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import ClassVar, Generic, Protocol, TypeVar

from pylogtable.errors import CommitConflictError, CommitUnknownError, LogTableError
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.model import Change, Segment
from pylogtable.format.snapshot import Snapshot
from pylogtable.maintenance.job import MaintainedTopic
from pylogtable.maintenance.units import Rewritten, RunUnits, Worker, discard_segments
from pylogtable.plan.swap import plan_swap_commit
from pylogtable.results.operations import RewriteReport
from pylogtable.storage.base import ObjectStore


class UnitOfWork(Protocol):
    """Plain data that can be pickled: segments of one partition."""

    @property
    def partition(self) -> int: ...

    @property
    def inputs(self) -> tuple[Segment, ...]: ...


Unit = TypeVar("Unit", bound=UnitOfWork)


class RewriteJob(ABC, Generic[Unit]):
    """Plans units of work, has them run, and commits their results.

    `operation` is the name that its commits have in the log.
    """

    name: ClassVar[str]
    operation: ClassVar[str]

    @abstractmethod
    def plan(self, topic: MaintainedTopic) -> list[Unit]:
        """The units of work that are due now; plain data that can be pickled."""

    @abstractmethod
    def rewrite(self, store: ObjectStore, unit: Unit, new_id: Callable[[], str]) -> Rewritten:
        """Do one unit. It needs only the store, so that any process can run it. If it fails, it
        leaves no file behind."""

    def check(
        self, topic: MaintainedTopic, snapshot: Snapshot, results: Sequence[Rewritten]
    ) -> None:
        """Raise `CommitConflictError` if the topic's settings no longer ask for this job, or no
        longer allow what it did."""

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> RewriteReport:
        began, began_ms = topic.runtime.monotonic(), topic.runtime.clock()
        units = self.plan(topic)
        version = topic.head.known.version
        worker = Worker(topic.store, topic.runtime.new_id, self.rewrite)
        by_partition: dict[int, list[Rewritten]] = {}
        for rewritten in run_units(worker, units):
            by_partition.setdefault(rewritten.partition, []).append(rewritten)
        uncommitted = [results for _, results in sorted(by_partition.items())]
        committed: list[Rewritten] = []
        skipped = 0
        try:
            while uncommitted:
                results = uncommitted.pop(0)
                landed = self._commit_or_discard(topic, results, began_ms)
                if landed is None:
                    skipped += len(results)
                else:
                    version, done = landed
                    committed += done
        except LogTableError:
            # No commit was tried for these, so their files can be removed.
            for rewritten in chain.from_iterable(uncommitted):
                rewritten.discard(topic.store)
            raise
        seconds = topic.runtime.monotonic() - began
        return self._report(version, committed, skipped, seconds)

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
            dry_run=True,
        )
        return report, topic

    def carry_over(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], tried: Sequence[Rewritten]
    ) -> Sequence[Rewritten] | None:
        """The same work for the segments that are live now. None, which is the default, or
        `CommitConflictError` if the work is lost. `tried` was planned and met a conflict."""
        return None

    def _commit_or_discard(
        self, topic: MaintainedTopic, results: Sequence[Rewritten], began_ms: int
    ) -> tuple[int, Sequence[Rewritten]] | None:
        """The version that the commit became and what it committed, or None if another job had
        changed its input [LOG-8]. The new files stay only if a commit may name them [COMMIT-5]."""
        finished = {segment.path for r in results for segment in r.new_segments}
        tried = results
        try:
            while True:
                try:
                    return self._commit(topic, tried, began_ms), tried
                except CommitConflictError:  # noqa: PERF203 (a second try needs it)
                    added = (s for r in tried for s in r.new_segments if s.path not in finished)
                    discard_segments(topic.store, added)
                    carried = self.carry_over(topic, results, tried)
                    if carried is None:
                        raise
                    tried = carried
        except CommitUnknownError:
            raise
        except LogTableError as error:
            for rewritten in (*results, *tried):
                rewritten.discard(topic.store)
            if isinstance(error, CommitConflictError):
                return None
            raise

    def _commit(self, topic: MaintainedTopic, results: Sequence[Rewritten], began_ms: int) -> int:
        for rewritten in results:
            rewritten.check()
        swaps = [swap for rewritten in results for swap in rewritten.swaps]
        cleaned = {r.partition: r.clean_end for r in results if r.clean_end is not None}
        removed = _records_removed(results)

        def plan(snapshot: Snapshot) -> Change:
            if topic.runtime.clock() - began_ms > STALE_AFTER_MS:  # [COMMIT-8]
                raise CommitConflictError(
                    f"{self.operation} took so long that vacuum may have removed its files"
                )
            self.check(topic, snapshot, results)
            return plan_swap_commit(
                snapshot,
                topic.head.manifest.leaf,
                self.operation,
                swaps,
                cleaned=cleaned,
                summary={"records_removed": removed} if removed else {},
            )

        snapshot, _ = topic.head.change(plan)
        return snapshot.version

    def _report(
        self, version: int, committed: Sequence[Rewritten], skipped: int, seconds: float
    ) -> RewriteReport:
        swaps = [swap for rewritten in committed for swap in rewritten.swaps]
        old = [segment for swap in swaps for segment in swap.inputs]
        new = [segment for swap in swaps for segment in swap.outputs]
        return RewriteReport(
            operation=self.operation,
            version=version,
            units=len(committed),
            skipped=skipped,
            partitions=tuple(sorted({rewritten.partition for rewritten in committed})),
            segments_in=len(old),
            segments_out=len(new),
            bytes_in=sum(segment.size_bytes for segment in old),
            bytes_out=sum(segment.size_bytes for segment in new),
            records_in=sum(rewritten.records_in for rewritten in committed),
            records_removed=_records_removed(committed),
            tombstones=sum(segment.tombstones for segment in new),
            seconds=seconds,
        )


def _records_removed(results: Iterable[Rewritten]) -> int:
    return sum(rewritten.records_in - rewritten.records_out for rewritten in results)
