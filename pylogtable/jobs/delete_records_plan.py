"""Plans to delete the first records of partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pylogtable.arguments import check_mapping, is_whole
from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.lookup import LoadLeaf, totals_below
from pylogtable.format.mirror_rules import check_may_remove
from pylogtable.format.model import (
    Change,
    LogStart,
)
from pylogtable.format.snapshot import Snapshot


def plan_delete_records(
    snapshot: Snapshot, leaves: LoadLeaf, offsets: Mapping[int, int | None]
) -> Change:
    """Move log starts to `offsets`; None means the end. A log start never moves back [LOG-6]."""
    check_mapping("offsets", offsets, "{0: 100}, offsets by partition")
    check_may_remove(snapshot.mirror, "delete_records")
    if not snapshot.config.deletes:
        raise InvalidRequestError(
            "records can be deleted only if cleanup.policy contains 'delete'; the topic has "
            f"{snapshot.info.config.get('cleanup.policy')!r}"
        )
    moves: list[LogStart] = []
    for partition in offsets:
        snapshot.check_partition(partition)
    for partition, wanted in sorted(offsets.items()):
        state = snapshot.partitions[partition]
        offset = state.end if wanted is None else wanted
        if not is_whole(offset):
            raise InvalidRequestError(
                f"{offset!r} is not an offset of partition {partition}: give a whole number, or "
                "None for the end"
            )
        if not 0 <= offset <= state.end:
            raise OffsetOutOfRangeError(partition, offset, state.log_start, state.end)
        if offset > state.log_start:
            dropped = totals_below(snapshot, leaves, partition, offset)
            move = LogStart(partition=int(partition), offset=int(offset), dropped=dropped)
            moves.append(move)
    return Change(operation="delete_records", log_starts=tuple(moves))
