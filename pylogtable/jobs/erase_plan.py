"""Plans which segments an erase searches. Pure.

An erase removes the records that somebody chooses, and keeps all others at their offsets [ERASE-1].
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from pylogtable.format.log_state import LogState
from pylogtable.format.model import Segment
from pylogtable.jobs.replace_plan import RewriteUnit

#: Those of some segments that may have records to be erased.
MayMatch = Callable[[Sequence[Segment]], Sequence[Segment]]


@dataclass(frozen=True)
class EraseUnit(RewriteUnit):
    """Segments to be searched. Those that have records to be erased are rewritten one by one,
    without them."""


def plan_erase(
    state: LogState,
    partition: int,
    end: int,
    may_match: MayMatch,
    searched: Collection[str] = (),
) -> Iterator[EraseUnit]:
    """Units that search the segments with offsets below `end`, except those whose files are
    `searched` and have no such records. A segment that the log start cuts is searched as a whole:
    its file still has the records below [ERASE-1]."""
    info, log_start = state.snapshot.info, state.snapshot.partitions[partition].log_start
    live = state.segments(partition, log_start, end)
    wanted = may_match([s for s in live if s.records and s.path not in searched])
    gathered: list[Segment] = []
    cost = 0
    for segment in wanted:
        size = segment.size_bytes + state.limits.open_bytes
        if gathered and cost + size > state.limits.part_bytes:
            yield EraseUnit(info, log_start, tuple(gathered))
            gathered, cost = [], 0
        gathered.append(segment)
        cost += size
    if gathered:
        yield EraseUnit(info, log_start, tuple(gathered))
