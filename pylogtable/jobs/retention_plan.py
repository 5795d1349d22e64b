"""Plans retention: which segments to remove from the beginning of a partition. Pure.

The rules are Kafka's. By time, a segment is removed if its latest record is older than
`retention.ms`. By size, segments are removed while the rest has at least `retention.bytes`. Removal
stops at the first segment that stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pylogtable.format.config import TopicConfig
from pylogtable.format.log_state import LogState
from pylogtable.format.model import Change, StagedSegment, Totals


def plan_retention(
    state: LogState, now_ms: int, keep_from: Mapping[int, int] | None = None
) -> Change | None:
    """The change that moves log starts as the topic's settings say, or None if none moves. In each
    partition of `keep_from` everything from that offset on is kept [RET-1]."""
    config = state.snapshot.config
    if not config.deletes or (config.retention_ms is None and config.retention_bytes is None):
        return None
    moves = []
    for number, log in enumerate(state.snapshot.partitions):
        offset = _first_kept(state, number, now_ms)
        if keep_from is not None and number in keep_from:
            offset = _segment_start_at_or_below(state, number, offset, keep_from[number])
        if offset > log.log_start:
            moves.append(state.log_start_at(number, offset))
    if not moves:
        return None
    summary = {
        "segments_removed": sum(move.dropped.segments for move in moves),
        "records_removed": sum(move.dropped.records for move in moves),
        "bytes_removed": sum(move.dropped.size_bytes for move in moves),
    }
    return Change(operation="retention", log_starts=tuple(moves), summary=summary)


def expired_on_arrival(
    config: TopicConfig, files: Iterable[StagedSegment], now_ms: int
) -> Totals | None:
    """The files that are about to be appended and have records older than `retention.ms`. `records`
    counts those of files whose latest record is too old, which the next retention may remove. None
    if there are no such files."""
    if not config.deletes or config.retention_ms is None:
        return None
    oldest_us = (now_ms - config.retention_ms) * 1000
    old = [f for f in files if f.min_timestamp_us < oldest_us and f.records and not f.append_time]
    if not old:
        return None
    return Totals(
        segments=len(old),
        records=sum(file.records for file in old if file.max_timestamp_us < oldest_us),
        size_bytes=sum(file.size_bytes for file in old),
    )


def _first_kept(state: LogState, partition: int, now_ms: int) -> int:
    config = state.snapshot.config
    log = state.snapshot.partitions[partition]
    excess_bytes = None
    if config.retention_bytes is not None:
        excess_bytes = log.live.size_bytes - config.retention_bytes
    oldest_us = None
    if config.retention_ms is not None:
        oldest_us = (now_ms - config.retention_ms) * 1000
    at = log.log_start
    for segment in state.segments(partition):
        is_too_old = oldest_us is not None and segment.max_timestamp_us < oldest_us
        is_too_much = False
        if excess_bytes is not None:
            excess_bytes -= segment.size_bytes
            is_too_much = excess_bytes >= 0
        if not is_too_old and not is_too_much:
            return at
        at = segment.end_offset
    return at


def _segment_start_at_or_below(state: LogState, partition: int, offset: int, bound: int) -> int:
    """The greatest segment boundary that exceeds neither `offset` nor `bound`."""
    at = state.snapshot.partitions[partition].log_start
    wanted = min(offset, bound)
    for segment in state.segments(partition, at, offset):
        if segment.end_offset > wanted:
            break
        at = segment.end_offset
    return at
