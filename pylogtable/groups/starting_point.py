"""Where a consumer begins in a partition: at its committed position, or where the policy says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.groups.reset_policy import LATEST, NONE, ResetPolicy
from pylogtable.read.view import View

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StartingPoint:
    """The rule of one consumer. `first_new` is how many partitions there were when it started, and
    so the number of the first one that was added later. `clock` gives milliseconds."""

    topic_name: str
    group: str
    policy: ResetPolicy
    first_new: int
    clock: Callable[[], int]

    def position(self, view: View, partition: int, committed: int | None) -> int:
        """The committed position if it is in the log. Otherwise what the reset policy says."""
        if committed is not None and is_inside(view, partition, committed):
            return committed
        if self.policy.at == NONE:
            if committed is not None:
                raise out_of_range(view, partition, committed)
            raise InvalidRequestError(
                f"group {self.group!r} has no position for partition {partition} of topic "
                f"{self.topic_name!r}, and auto_offset_reset is 'none'. Commit a position, reset "
                "the group, or use another auto_offset_reset"
            )
        if committed is None and partition >= self.first_new:
            # The partition was added after the consumer started: every record in it is new.
            offset = view.snapshot.partitions[partition].log_start
        elif self.policy.ago is not None:
            since_ms = self.clock() - self.policy.ago // timedelta(milliseconds=1)
            offset = offset_at_time(view, partition, since_ms)
        elif self.policy.at == LATEST:
            offset = view.snapshot.partitions[partition].end
        else:
            offset = view.snapshot.partitions[partition].log_start
        if committed is not None:
            _logger.warning(
                "position %d of partition %d of topic %s is no longer in the log; group %s "
                "continues at %d (auto_offset_reset %s)",
                committed,
                partition,
                self.topic_name,
                self.group,
                offset,
                self.policy.at,
            )
        return offset


def is_inside(view: View, partition: int, offset: int) -> bool:
    """True if a consumer can continue at this offset."""
    log = view.snapshot.partitions[partition]
    return log.log_start <= offset <= log.end


def out_of_range(view: View, partition: int, offset: int) -> OffsetOutOfRangeError:
    """The error for an offset that is outside of the log."""
    log = view.snapshot.partitions[partition]
    return OffsetOutOfRangeError(partition, offset, log.log_start, log.end)


def offset_at_time(view: View, partition: int, when: datetime | int) -> int:
    """The first record at or after a time, or the end if there is none."""
    found = view.offsets_for_time(when, [partition])[partition]
    return view.snapshot.partitions[partition].end if found is None else found
