"""Replacing the segments of ranges by others with the same records or fewer. Pure.

Merge and compaction differ in what they write; they are the same change to the log.
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
    """`inputs`, neighbours in one partition, give way to `outputs`, which tile the same range."""

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
    """Swaps in one commit. They hold only while every input is live as it was read [LOG-8];
    appends do not disturb them. What is `cleaned` stays so whoever else removes records; where
    another job has cleaned further already it is no news [LOG-9]."""
    replaced = []
    for swap in swaps:
        partition = swap.inputs[0].partition
        start, end = swap.inputs[0].base_offset, swap.inputs[-1].end_offset
        live = tuple(segments_between(snapshot, leaves, partition, start, end))
        if live != swap.inputs:
            raise CommitConflictError(
                f"{operation} of partition {partition}, offsets [{start}, {end}): its input is no "
                "longer what it was; another job or a log start came first"
            )
        dropped = totals_of(swap.inputs)
        replaced.append(Replaced(partition=partition, start=start, end=end, dropped=dropped))
    news = {
        partition: offset
        for partition, offset in (cleaned or {}).items()
        if offset > snapshot.partitions[partition].clean_end
    }
    if not swaps and not news:
        raise CommitConflictError(f"{operation}: another job has done all of it")
    return Change(
        operation=operation,
        add=tuple(segment for swap in swaps for segment in swap.outputs),
        replaced=tuple(replaced),
        cleaned=news,
        summary=dict(summary or {}),
    )
