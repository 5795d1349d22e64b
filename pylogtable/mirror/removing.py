"""Replaces segments of a copy that have records which its source no longer has [MIR-6]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Commit, Mirror, Segment
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.topic_log import TopicLog
from pylogtable.mirror.copy_and_commit import Transfer
from pylogtable.mirror.copying import Copied, copy_tasks, discard_copies, files_there
from pylogtable.mirror.plan import OvertakenError, having_seen
from pylogtable.mirror.removals_plan import (
    Side,
    Stretch,
    in_commits,
    new_files,
    plan_removal_commit,
    plan_removals,
)
from pylogtable.segments.read_segment import count_from

#: What the copy knows about its source in a state. Raises if it is no copy any more.
Check = Callable[[Snapshot], Mirror]


def remove_records(
    transfer: Transfer,
    copy: Snapshot,
    source: Snapshot,
    partitions: Iterable[int],
    commits: Sequence[Commit],
    check: Check,
) -> None:
    """Bring these partitions of the copy to what the source still has. `commits` are those of the
    source after the version that the copy shows, if they are known."""
    new = new_files(commits, source.topic_id, check(copy).seen_version or 0)
    sides = _side(transfer.copy, copy), _side(transfer.source, source)
    found = chain.from_iterable(plan_removals(*sides, number) for number in partitions)
    for stretches in in_commits(found, transfer.copy.store.limits):
        _replace(transfer, copy, source, stretches, new, check)


def _side(log: TopicLog, snapshot: Snapshot) -> Side:
    return Side(log.manifest.state(snapshot), partial(count_from, log.store))


def _replace(
    transfer: Transfer,
    copy: Snapshot,
    source: Snapshot,
    stretches: Sequence[Stretch],
    new: frozenset[str],
    check: Check,
) -> None:
    began_ms = transfer.runtime.clock()
    target = transfer.copy.store
    units = [unit for stretch in stretches for unit in stretch.units]
    # A vacuum may be about to remove a file that the copy had once, but never a live one.
    there = set(files_there(target, units))
    there |= {unit.whole.path for unit in units if unit.whole is not None} - new
    live = {segment.path for stretch in stretches for segment in stretch.inputs}
    copied = transfer.copied(source, copy, copy_tasks(units, there, live))
    results: list[tuple[Stretch, Sequence[Segment]]] = []
    written: dict[tuple[int, int], list[Copied]] = {}
    rest = iter(copied)
    for stretch in stretches:
        mine = [next(rest) for _ in stretch.units]
        results.append((stretch, [s for one in mine for s in one.segments]))
        written[stretch.partition, stretch.inputs[0].base_offset] = mine

    def plan(state: LogState) -> Change:
        return plan_removal_commit(state, having_seen(check(state.snapshot), source), results)

    change = transfer.commit(plan, copied, began_ms)
    transfer.account.records_removed += change.summary["records_removed"]
    for swap in change.replaced:
        del written[swap.partition, swap.start]
    if written:
        discard_copies(target, chain.from_iterable(written.values()))
        raise OvertakenError("another job has changed segments of the copy meanwhile")
