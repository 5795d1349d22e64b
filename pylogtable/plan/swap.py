"""Plans the commit that swaps segments for rewritten ones. Pure.

Merge and compaction write different files, but they change the log in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pylogtable.errors import CommitConflictError
from pylogtable.format.lookup import LoadLeaf, segments_between
from pylogtable.format.model import Change, Replaced, Segment
from pylogtable.format.snapshot import Snapshot, totals_of


@dataclass(frozen=True)
class Swap:
    """Neighbouring segments of one partition and the new ones that replace them. Both cover the
    same offsets; the outputs have the same records or fewer."""

    inputs: tuple[Segment, ...]
    outputs: tuple[Segment, ...]


def plan_swap_commit(
    snapshot: Snapshot,
    leaves: LoadLeaf,
    operation: str,
    swaps: Sequence[Swap],
    *,
    cleaned: Mapping[int, int] | None = None,
    summary: Mapping[str, int] | None = None,
) -> Change:
    """One commit with these swaps. Raises `CommitConflictError` if an input is no longer live or
    has changed since it was read [LOG-8]. Appends never conflict.

    `cleaned` has the new clean end by partition. An entry is ignored if another job has already
    cleaned further [LOG-9].
    """
    replaced = []
    for swap in swaps:
        partition = swap.inputs[0].partition
        start, end = swap.inputs[0].base_offset, swap.inputs[-1].end_offset
        live = tuple(segments_between(snapshot, leaves, partition, start, end))
        if live != swap.inputs:
            raise CommitConflictError(
                f"{operation} of partition {partition}, offsets [{start}, {end}): another job or a "
                "new log start has changed these segments"
            )
        dropped = totals_of(swap.inputs)
        replaced.append(Replaced(partition=partition, start=start, end=end, dropped=dropped))
    newly_cleaned = {
        partition: offset
        for partition, offset in (cleaned or {}).items()
        if offset > snapshot.partitions[partition].clean_end
    }
    if not swaps and not newly_cleaned:
        raise CommitConflictError(f"{operation}: another job has already done this work")
    return Change(
        operation=operation,
        add=tuple(segment for swap in swaps for segment in swap.outputs),
        replaced=tuple(replaced),
        cleaned=newly_cleaned,
        summary=dict(summary or {}),
    )
