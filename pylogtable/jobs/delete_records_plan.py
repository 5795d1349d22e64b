"""Plans to delete the first records of partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pylogtable.arguments import check_mapping, is_whole
from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.log_state import LogState
from pylogtable.format.mirror_rules import check_may_remove
from pylogtable.format.model import Change, LogStart


def plan_delete_records(state: LogState, offsets: Mapping[int, int | None]) -> Change:
    """Move log starts to `offsets`; None means the end. A log start never moves back [LOG-6]."""
    snapshot = state.snapshot
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
        log = snapshot.partitions[partition]
        offset = log.end if wanted is None else wanted
        if not is_whole(offset):
            raise InvalidRequestError(
                f"{offset!r} is not an offset of partition {partition}: give a whole number, or "
                "None for the end"
            )
        if not 0 <= offset <= log.end:
            raise OffsetOutOfRangeError(partition, offset, log.log_start, log.end)
        if offset > log.log_start:
            moves.append(state.log_start_at(int(partition), int(offset)))
    return Change(operation="delete_records", log_starts=tuple(moves))
