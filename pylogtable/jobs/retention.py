"""Retention: move log starts past records that are too old or too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pylogtable.errors import LogTableError
from pylogtable.format.config import TopicConfig
from pylogtable.format.log_state import LogState
from pylogtable.format.mirror_rules import check_may_remove
from pylogtable.format.model import Change
from pylogtable.jobs.job import MaintainedTopic, MaintainOptions
from pylogtable.jobs.retention_plan import plan_retention
from pylogtable.jobs.work import RunUnits
from pylogtable.presentation import count_text, offsets_text
from pylogtable.segments.read_segment import count_from


@dataclass(frozen=True)
class RetentionReport:
    """What retention removed, or would remove in a dry run. `log_starts` has the new start offset
    of each changed partition. `records_removed` does not count records that `delete_records` had
    removed before."""

    version: int
    log_starts: dict[int, int]
    segments_removed: int
    records_removed: int
    bytes_removed: int
    seconds: float
    dry_run: bool = False

    def __str__(self) -> str:
        verb, moves = ("would remove", "would be") if self.dry_run else ("removed", "is now")
        records = count_text(self.records_removed, "record")
        text = f"{verb} {records} in {count_text(self.segments_removed, 'segment')}"
        if self.log_starts:
            text += f", log start {moves} {offsets_text(self.log_starts)}"
        return f"{text}; {self.seconds:.1f} s"


@dataclass(frozen=True)
class Retention:
    """Removes whole segments from the beginning of each partition, as `retention.ms` and
    `retention.bytes` say. Records at or after the offsets of `keep_from` are kept, and so are
    records that one of `groups` has not read. It touches no data, so it has no units of work."""

    keep_from: Mapping[int, int] | None = None
    groups: Sequence[str] | None = None

    name: ClassVar[str] = "retention"

    @classmethod
    def for_maintain(cls, config: TopicConfig, options: MaintainOptions) -> Retention | None:
        return cls(groups=options.protect_groups) if config.deletes else None

    def run(self, topic: MaintainedTopic, run_units: RunUnits) -> RetentionReport:
        began = topic.runtime.monotonic()
        before = topic.newest()

        def plan(state: LogState) -> Change | None:
            nonlocal before
            before = state
            return self._plan(topic, state)

        after, change = topic.log.change(plan)
        return _report(topic, before, after.version, change, began)

    def preview(self, topic: MaintainedTopic) -> tuple[RetentionReport, MaintainedTopic]:
        began = topic.runtime.monotonic()
        state = topic.newest()
        change = self._plan(topic, state)
        report = _report(topic, state, state.snapshot.version, change, began)
        return replace(report, dry_run=True), topic.after(change)

    def _plan(self, topic: MaintainedTopic, state: LogState) -> Change | None:
        check_may_remove(state.snapshot.mirror, "retention")
        keep_from = topic.unread_from(self.groups, state.snapshot)
        for number, offset in (self.keep_from or {}).items():
            keep_from[number] = min(offset, keep_from.get(number, offset))
        return plan_retention(state, topic.runtime.clock(), keep_from)


def _report(
    topic: MaintainedTopic, before: LogState, version: int, change: Change | None, began: float
) -> RetentionReport:
    moves = change.log_starts if change is not None else ()
    gone = sum(_below_log_start(topic, before, move.partition) for move in moves)
    return RetentionReport(
        version=version,
        log_starts={move.partition: move.offset for move in moves},
        segments_removed=sum(move.dropped.segments for move in moves),
        records_removed=sum(move.dropped.records for move in moves) - gone,
        bytes_removed=sum(move.dropped.size_bytes for move in moves),
        seconds=topic.runtime.monotonic() - began,
    )


def _below_log_start(topic: MaintainedTopic, state: LogState, partition: int) -> int:
    """How many records the first segment has that nobody could read before this retention."""
    log_start = state.snapshot.partitions[partition].log_start
    first = state.segment_at(partition, log_start)
    if first is None or not first.has_below(log_start):
        return 0
    try:
        return first.records - count_from(topic.store, first, log_start)
    except LogTableError:
        return 0  # Retention has to work on a damaged file too: then all its records are counted.
