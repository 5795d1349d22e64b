"""Plans the commit that swaps segments for rewritten ones. Pure.

Merge and compaction write different files, but they change the log in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pylogtable.errors import CommitConflictError, CorruptTopicError
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, Replaced, Segment, TopicInfo
from pylogtable.format.partition_state import dropped_inline, inline_of, totals_of


@dataclass(frozen=True)
class RewriteUnit:
    """Segments of one partition, and where its log starts. Plain data that pickles."""

    topic: TopicInfo
    log_start: int
    inputs: tuple[Segment, ...]

    @property
    def partition(self) -> int:
        return self.inputs[0].partition


@dataclass(frozen=True)
class Swap:
    """Neighbouring segments of one partition and the new ones that replace them. Both cover the
    same offsets; the outputs have the same records or fewer."""

    inputs: tuple[Segment, ...]
    outputs: tuple[Segment, ...]

    @property
    def keeps_file(self) -> bool:
        """True if only an entry changes: its file stays."""
        return [s.path for s in self.inputs] == [s.path for s in self.outputs]

    def check(self, kept: int) -> None:
        """Raise if the outputs cannot be `kept` records of the inputs, at the same offsets
        [LOG-10]."""
        first, last = self.inputs[0], self.inputs[-1]
        bounds = [first.base_offset, *(output.end_offset for output in self.outputs)]
        starts = [output.base_offset for output in self.outputs]
        if starts != bounds[:-1] or bounds[-1] != last.end_offset:
            raise self._refused(f"cover other offsets than [{first.base_offset}, {bounds[-1]})")
        written, had = (sum(s.records for s in part) for part in (self.outputs, self.inputs))
        if written != kept or kept > had:
            raise self._refused(
                f"have {written} records, where {kept} of {had} were to be kept of the inputs"
            )
        low, high = _times(self.inputs)
        if written and (_times(self.outputs)[0] < low or _times(self.outputs)[1] > high):
            raise self._refused("have timestamps that the inputs do not have")

    def _refused(self, detail: str) -> CorruptTopicError:
        return CorruptTopicError(
            self.inputs[0].path,
            "LOG-10",
            f"the files that a job wrote for it and for {len(self.inputs) - 1} more segments "
            f"{detail}; nothing was committed",
        )


def _times(segments: Sequence[Segment]) -> tuple[int, int]:
    """The time bounds of segments, of which one must have records."""
    filled = [segment for segment in segments if segment.records]
    return (
        min((segment.min_timestamp_us for segment in filled), default=0),
        max((segment.max_timestamp_us for segment in filled), default=0),
    )


def still_fits(state: LogState, swap: Swap) -> bool:
    """True if the inputs are live and have not changed [LOG-8], and the log start has not passed an
    output [LOG-7]."""
    first, last = swap.inputs[0], swap.inputs[-1]
    live = state.segments(first.partition, first.base_offset, last.end_offset)
    log_start = state.snapshot.partitions[first.partition].log_start
    is_passed = any(output.end_offset <= log_start for output in swap.outputs)
    return not is_passed and tuple(live) == swap.inputs


def plan_swap_commit(
    state: LogState,
    operation: str,
    swaps: Sequence[Swap],
    *,
    cleaned: Mapping[int, int] | None = None,
    summary: Mapping[str, int] | None = None,
) -> Change:
    """One commit with these swaps. Raises `CommitConflictError` if an input is no longer live or
    has changed since it was read [LOG-8], or if the log start has passed an output [LOG-7]. Appends
    never conflict.

    `cleaned` has the new clean end by partition. An entry is ignored if another job has already
    cleaned further [LOG-9].
    """
    replaced = []
    for swap in swaps:
        partition = swap.inputs[0].partition
        start, end = swap.inputs[0].base_offset, swap.inputs[-1].end_offset
        if not still_fits(state, swap):
            raise CommitConflictError(
                f"{operation} of partition {partition}, offsets [{start}, {end}): another job or a "
                "new log start has changed these segments"
            )
        log = state.snapshot.partitions[partition]
        replaced.append(
            Replaced(
                partition=partition,
                start=start,
                end=end,
                dropped=totals_of(swap.inputs),
                dropped_inline=dropped_inline(log, inline_of(swap.inputs)),
            )
        )
    newly_cleaned = {
        partition: offset
        for partition, offset in (cleaned or {}).items()
        if offset > state.snapshot.partitions[partition].clean_end
    }
    if not swaps and not newly_cleaned:
        raise CommitConflictError(f"{operation}: another job has already done this work")
    return Change(
        operation=operation,
        add=tuple([segment for swap in swaps for segment in swap.outputs]),
        replaced=tuple(replaced),
        cleaned=newly_cleaned,
        summary=dict(summary or {}),
    )
