"""Where a consumer begins in a partition: at its committed position, or where the policy says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.read.position import EARLIEST, LATEST, Position, parse_position, resolve
from pylogtable.read.view import View
from pylogtable.times import parse_duration

BY_DURATION = "by_duration:"

_log = logging.getLogger(__name__)


def parse_policy(text: object) -> Position | None:
    """Parse Kafka's `auto.offset.reset`: earliest, latest, by_duration:PnDTnHnMnS or none."""
    words = {"earliest": EARLIEST, "latest": LATEST, "none": None}
    if isinstance(text, str) and text in words:
        return words[text]
    if isinstance(text, str) and text.startswith(BY_DURATION):
        return parse_position(parse_duration(text.removeprefix(BY_DURATION)))
    raise InvalidRequestError(
        f"auto_offset_reset is 'earliest', 'latest', 'none' or 'by_duration:PT1H', not {text!r}"
    )


@dataclass(frozen=True)
class StartingPoint:
    """The rule of one consumer. `policy` is its `auto_offset_reset`, None for `none`. `first_new`
    is how many partitions there were when it started, and so the number of the first one that was
    added later."""

    topic_name: str
    group: str
    policy: Position | None
    first_new: int

    def positions(self, view: View, committed: Mapping[int, int | None]) -> dict[int, int]:
        """The committed position of each partition if it is in the log. Otherwise what the reset
        policy says."""
        resets: dict[int, Position] = {}
        for partition, at in committed.items():
            log = view.snapshot.partitions[partition]
            if at is not None and log.log_start <= at <= log.end:
                continue
            if self.policy is None:
                if at is not None:
                    raise OffsetOutOfRangeError(partition, at, log.log_start, log.end)
                raise InvalidRequestError(
                    f"group {self.group!r} has no position for partition {partition} of topic "
                    f"{self.topic_name!r}, and auto_offset_reset is 'none'. Commit a position, "
                    "reset the group, or use another auto_offset_reset"
                )
            # In a partition that was added after the consumer started, every record is new.
            is_new = at is None and partition >= self.first_new
            resets[partition] = EARLIEST if is_new else self.policy
        found = {n: at for n, at in committed.items() if at is not None} | resolve(view, resets)
        for partition in resets:
            if committed[partition] is not None:
                _log.warning(
                    "position %d of partition %d of topic %s is no longer in the log; group %s "
                    "continues at %d (auto_offset_reset %s)",
                    committed[partition],
                    partition,
                    self.topic_name,
                    self.group,
                    found[partition],
                    self.policy,
                )
        return found
