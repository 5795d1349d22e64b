"""Replacing the segments of a range by others with the same records or fewer. Pure.

Merge and compaction differ in what they write; they are the same change to the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from pylogtable.errors import CommitConflictError
from pylogtable.lookup import LoadLeaf, segments_between
from pylogtable.model import Change, Replaced, Segment
from pylogtable.snapshot import Snapshot, totals_of


def plan_rewrite(
    snapshot: Snapshot,
    leaves: LoadLeaf,
    operation: str,
    inputs: Sequence[Segment],
    outputs: Sequence[Segment],
) -> Change:
    """Swap `inputs`, neighbours in one partition, for `outputs`, which tile the same range.

    It holds only while every input is live as it was read [LOG-8]; appends do not disturb it.
    """
    partition = inputs[0].partition
    start, end = inputs[0].base_offset, inputs[-1].end_offset
    live = list(segments_between(snapshot, leaves, partition, start, end))
    if live != list(inputs):
        raise CommitConflictError(
            f"{operation} of partition {partition}, offsets [{start}, {end}): its input is no "
            "longer what it was; another job or a log start came first"
        )
    dropped = totals_of(inputs)
    swap = Replaced(partition=partition, start=start, end=end, dropped=dropped)
    return Change(operation=operation, add=tuple(outputs), replaced=(swap,))
