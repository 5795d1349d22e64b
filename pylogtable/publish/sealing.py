"""Sealed copies of segments that would mislead a plain reader [PUB-2]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pylogtable.errors import CommitConflictError
from pylogtable.format.config import STALE_AFTER_MS
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.jobs.merge import Merge
from pylogtable.jobs.merge_plan import MergeUnit
from pylogtable.jobs.replace_plan import Swap, plan_swap_commit, still_fits
from pylogtable.jobs.work import RunUnits, Worker
from pylogtable.publish.plan import Copies
from pylogtable.storage.base import ObjectStore


@dataclass(frozen=True)
class Sealed:
    """Sealed copies that were written. They stand for segments of the version that they were
    planned on, also if the topic never gets them. `began_ms` is when the first was begun."""

    swaps: tuple[Swap, ...]
    began_ms: int

    @property
    def copies(self) -> Copies:
        """The copies, by the path of the first segment that they stand for."""
        return {swap.inputs[0].path: swap.outputs for swap in self.swaps}

    @property
    def segments(self) -> int:
        """How many segments they stand for."""
        return sum(len(swap.inputs) for swap in self.swaps)


def write_copies(
    topic: MaintainedTopic, store: ObjectStore, run_units: RunUnits, units: Sequence[MergeUnit]
) -> Sealed:
    """Write sealed copies to `store`."""
    began_ms = topic.runtime.clock()
    worker = Worker(store, topic.runtime.new_id, Merge().rewrite)
    results = list(run_units(worker, units))
    if len(results) < len(units):  # it is being stopped: what is missing must not be shown raw
        for rewritten in results:
            rewritten.discard(store)
        raise CommitConflictError(
            "the publication was stopped before all segments were sealed; publish again"
        )
    for rewritten in results:
        rewritten.check()
    return Sealed(tuple(swap for rewritten in results for swap in rewritten.swaps), began_ms)


def commit(topic: MaintainedTopic, sealed: Sealed, tries: int) -> Snapshot | None:
    """Put those copies into the topic that still fit. Returns the state after that; None if none
    fits, if another commit was faster each time, or if they are too old [COMMIT-8]: then the copies
    belong to tables alone."""
    known = topic.log.first_state()
    for _ in range(tries):
        change = _plan(topic.log.manifest.state(known), sealed.swaps)
        if change is None or topic.runtime.clock() - sealed.began_ms > STALE_AFTER_MS:
            return None
        landed = topic.log.attempt(
            known,
            change,
            topic.runtime.new_id(),
            root_may_wait=True,
            looks_ahead=topic.store.limits.race_looks_ahead,
        )
        if landed is not None:
            return landed[0]
        known = topic.log.after_lost_race(known.version)
    return None


def _plan(state: LogState, swaps: Sequence[Swap]) -> Change | None:
    """What the topic gets, so that the copies are needed once [PUB-2]."""
    live = [swap for swap in swaps if still_fits(state, swap)]
    return plan_swap_commit(state, Merge.operation, live) if live else None
