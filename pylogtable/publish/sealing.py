"""Sealed copies of segments that would mislead a plain reader [PUB-2]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pylogtable.errors import CommitConflictError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit
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
    """Copies that were made, and the state after the commit that has put them into the topic. It is
    None if nothing was committed. Then, and if other commits came before it, the copies stand for
    segments of the version that they were planned on."""

    copies: Copies
    segments: int
    after: Snapshot | None


def seal(
    topic: MaintainedTopic, store: ObjectStore, run_units: RunUnits, units: Sequence[MergeUnit]
) -> Sealed:
    """Write sealed copies to `store`. The topic gets them as well, if their segments are still
    live: then they are needed once [PUB-2]."""
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
    swaps = [swap for rewritten in results for swap in rewritten.swaps]
    return Sealed(
        copies={swap.inputs[0].path: swap.outputs for swap in swaps},
        segments=sum(len(swap.inputs) for swap in swaps),
        after=_commit(topic, swaps),
    )


def _commit(topic: MaintainedTopic, swaps: Sequence[Swap]) -> Snapshot | None:
    """The state after a commit of those swaps that still fit; None if none does. If the log has
    moved since the known state, the put is refused, and it is planned again."""

    def plan(state: LogState) -> Change | None:
        live = [swap for swap in swaps if still_fits(state, swap)]
        return plan_swap_commit(state, Merge.operation, live) if live else None

    after, commit = topic.log.change(plan, refresh=False, root_may_wait=True)
    return after if isinstance(commit, Commit) else None
