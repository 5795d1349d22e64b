"""Keeping a topic in shape: plan, do the work, commit. Safe beside writers, readers and itself.

Every job is planned on a snapshot and committed only if what it read is still live; a job that
finds out that another was there first has done nothing. Work is done in this process by threads, or
by a caller that runs `run` elsewhere, such as a Spark job, and hands the results to `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pylogtable.arguments import check_number, names_in
from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    LogTableError,
)
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.group_objects import load_groups
from pylogtable.log.head import Head
from pylogtable.maintenance.work import Done, Work, discard, run
from pylogtable.plan.compaction import plan_compaction
from pylogtable.plan.merge import plan_merge
from pylogtable.plan.positions import unread_from
from pylogtable.plan.retention import plan_retention
from pylogtable.plan.swap import plan_swap_commit
from pylogtable.results.operations import (
    MaintainReport,
    RetentionReport,
    RewriteReport,
    VacuumReport,
)
from pylogtable.segments.newest import BUDGET_BYTES
from pylogtable.storage.base import ObjectStore

Run = Callable[[Sequence[Work]], Iterable[Done]]


@dataclass(frozen=True)
class Worker:
    """What does a unit of work, in whichever process; plain data but for the store."""

    store: ObjectStore
    new_id: Callable[[], str]
    budget_bytes: int = BUDGET_BYTES

    def __call__(self, work: Work) -> Done:
        return run(self.store, work, self.new_id, self.budget_bytes)


class Maintenance:
    """The jobs of one topic."""

    def __init__(self, name: str, store: ObjectStore, head: Head) -> None:
        self._name = name
        self._store = store
        self._head = head
        self._runtime = head.runtime

    def worker(self, budget_bytes: int = BUDGET_BYTES) -> Worker:
        return Worker(self._store, self._runtime.new_id, budget_bytes)

    def plan_compaction(
        self, *, force: bool, protect_groups: Sequence[str] | None = None
    ) -> list[Work]:
        """A unit of work for each partition that is dirty enough. Where one of `protect_groups` has
        something to read, records are superseded as ever and none is dropped for its age."""
        snapshot = self._head.latest()
        if not snapshot.config.is_compacted:
            policy = ",".join(sorted(snapshot.config.cleanup_policy))
            raise InvalidRequestError(
                f"topic {self._name!r} has cleanup.policy={policy}: it is compacted only if that "
                "contains 'compact'; topic.alter(config={'cleanup.policy': 'compact'}) sets it"
            )
        now_ms = self._runtime.clock()
        leaves = self._head.manifest.leaf
        unread = self._unread(protect_groups, snapshot)
        planned = (
            plan_compaction(
                snapshot, leaves, number, now_ms, force=force, keep_from=unread.get(number)
            )
            for number in range(len(snapshot.partitions))
        )
        return [work for work in planned if work is not None]

    def plan_merge(self) -> list[Work]:
        snapshot = self._head.latest()
        leaves = self._head.manifest.leaf
        return [
            work
            for number in range(len(snapshot.partitions))
            for work in plan_merge(snapshot, leaves, number)
        ]

    def rewrite(self, operation: str, works: Sequence[Work], run_all: Run) -> RewriteReport:
        """Do all of the work and commit it, one commit for each partition."""
        began, began_ms = self._runtime.monotonic(), self._runtime.clock()
        committed: list[Done] = []
        skipped = 0
        version = self._head.known.version
        by_partition: dict[int, list[Done]] = {}
        for done in run_all(works):
            by_partition.setdefault(done.partition, []).append(done)
        waiting = [dones for _, dones in sorted(by_partition.items())]
        try:
            while waiting:
                dones = waiting.pop(0)
                landed = self._commit_or_drop(operation, dones, began_ms)
                if landed is None:
                    skipped += len(dones)
                else:
                    version = landed
                    committed += dones
        except LogTableError:
            # Of these no commit was tried, so none can name their files.
            for done in chain.from_iterable(waiting):
                discard(self._store, done)
            raise
        return RewriteReport(
            operation=operation,
            version=version,
            units=len(committed),
            skipped=skipped,
            segments_in=_sum(len(swap.inputs) for d in committed for swap in d.swaps),
            segments_out=_sum(len(swap.outputs) for d in committed for swap in d.swaps),
            bytes_in=_sum(s.size_bytes for d in committed for w in d.swaps for s in w.inputs),
            bytes_out=_sum(s.size_bytes for d in committed for w in d.swaps for s in w.outputs),
            records_in=_sum(done.records_in for done in committed),
            records_removed=_sum(done.records_in - done.records_out for done in committed),
            tombstones=_sum(s.tombstones for d in committed for w in d.swaps for s in w.outputs),
            seconds=self._runtime.monotonic() - began,
        )

    def _commit_or_drop(self, operation: str, dones: Sequence[Done], began_ms: int) -> int | None:
        """The version it became; None if what it read was no longer there [LOG-8]. Files stay only
        where a commit may name them [COMMIT-5]."""
        try:
            return self._commit(operation, dones, began_ms)
        except CommitUnknownError:
            raise
        except LogTableError as error:
            for done in dones:
                discard(self._store, done)
            if isinstance(error, CommitConflictError):
                return None
            raise

    def _commit(self, operation: str, dones: Sequence[Done], began_ms: int) -> int:
        swaps = [swap for done in dones for swap in done.swaps]
        cleaned = {d.partition: d.clean_end for d in dones if d.clean_end is not None}
        removed = _sum(done.records_in - done.records_out for done in dones)
        leaves = self._head.manifest.leaf

        def plan(snapshot: Snapshot) -> Change:
            if self._runtime.clock() - began_ms > STALE_AFTER_MS:  # [COMMIT-8]
                raise CommitConflictError(f"{operation} took so long that its files are too old")
            if operation == "compact" and not snapshot.config.is_compacted:
                raise CommitConflictError("the topic is not compacted any more")
            return plan_swap_commit(
                snapshot,
                leaves,
                operation,
                swaps,
                cleaned=cleaned,
                summary={"records_removed": removed} if removed else {},
            )

        snapshot, _ = self._head.change(plan)
        return snapshot.version

    def maintain(
        self,
        run_all: Run,
        vacuum: Callable[[], VacuumReport] | None,
        protect_groups: Sequence[str] | None = None,
        *,
        report_errors: bool = False,
    ) -> MaintainReport:
        began = self._runtime.monotonic()
        done: dict[str, Any] = {}
        try:
            # What was done before an error stays in it.
            done.update(self._jobs(run_all, vacuum, protect_groups))
        except LogTableError as error:
            if not report_errors:
                raise
            done["error"] = f"{type(error).__name__}: {error}"
        return MaintainReport(topic=self._name, **done, seconds=self._runtime.monotonic() - began)

    def _jobs(
        self,
        run_all: Run,
        vacuum: Callable[[], VacuumReport] | None,
        protect_groups: Sequence[str] | None,
    ) -> Iterator[tuple[str, object]]:
        """Retention first, since what is gone need not be compacted; then compaction, which leaves
        small segments; then merge; then vacuum, for what all of them left behind."""
        config = self._head.latest().config
        self._unread(protect_groups, self._head.latest())
        if config.deletes:
            yield "retention", self.apply_retention(groups=protect_groups)
        if config.is_compacted:
            works = self.plan_compaction(force=False, protect_groups=protect_groups)
            yield "compaction", self.rewrite("compact", works, run_all)
        yield "merge", self.rewrite("merge", self.plan_merge(), run_all)
        if vacuum is not None:
            yield "vacuum", vacuum()

    def apply_retention(
        self, keep_from: Mapping[int, int] | None = None, groups: Sequence[str] | None = None
    ) -> RetentionReport:
        began = self._runtime.monotonic()
        leaves = self._head.manifest.leaf

        def plan(snapshot: Snapshot) -> Change | None:
            kept = self._unread(groups, snapshot)
            for number, offset in (keep_from or {}).items():
                kept[number] = min(offset, kept.get(number, offset))
            return plan_retention(snapshot, leaves, self._runtime.clock(), kept)

        snapshot, change = self._head.change(plan)
        moves = change.log_starts if change is not None else ()
        return RetentionReport(
            version=snapshot.version,
            log_starts={move.partition: move.offset for move in moves},
            segments_removed=_sum(move.dropped.segments for move in moves),
            records_removed=_sum(move.dropped.records for move in moves),
            bytes_removed=_sum(move.dropped.size_bytes for move in moves),
            seconds=self._runtime.monotonic() - began,
        )

    def _unread(self, groups: Sequence[str] | None, snapshot: Snapshot) -> dict[int, int]:
        """From where on these groups have something to read; one that there is not is an error,
        since the caller counts on it."""
        groups = names_in("groups", () if groups is None else groups)
        if not groups:
            return {}
        known = load_groups(self._store, snapshot.topic_id)
        missing = [name for name in groups if name not in known]
        if missing:
            raise InvalidRequestError(
                f"topic {self._name!r} has no group {', '.join(map(repr, missing))} to keep "
                f"records for; it has {', '.join(sorted(known)) or 'none'}"
            )
        return unread_from([known[name] for name in groups], snapshot)


def in_threads(worker: Worker, threads: int) -> Run:
    """Run units of work in this process."""

    check_number("threads", threads, least=1)

    def run_all(works: Sequence[Work]) -> Iterable[Done]:
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(worker, work) for work in works]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    if not future.cancel() and future.exception() is None:
                        discard(worker.store, future.result())
                raise

    return run_all


def _sum(numbers: Iterable[int]) -> int:
    return sum(numbers)
