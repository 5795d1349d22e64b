"""What maintenance would do to a partition now: retention, compaction, merge. Pure.

The rules themselves are in the plans of `jobs/`: they decide segment by segment, because a plan
must name its segments and load only the leaves it needs. A report looks at every segment of a
topic, up to millions, and wants only counts. So these functions apply the same rules to whole
columns at once. `tests/library/report/test_measure.py` compares both on random topics, so that they
cannot drift apart.

A `Segments` mapping has the columns of `Topic.segments` for one partition, in offset order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pylogtable.format.config import TopicConfig
from pylogtable.format.partition_state import PartitionState
from pylogtable.report.bins import Int64s

Segments = Mapping[str, Int64s]


class Dirtiness(NamedTuple):
    """The share of dirty bytes, and whether a compaction would do something now."""

    ratio: float
    cleanable: bool


def expired_segments(
    segments: Segments, state: PartitionState, config: TopicConfig, now_ms: int
) -> int:
    """How many of the first segments retention would remove [RET-1]."""
    if not config.deletes or not len(segments["size_bytes"]):
        return 0
    goes = np.zeros(len(segments["size_bytes"]), dtype=bool)
    if config.retention_ms is not None:
        goes |= segments["max_timestamp_us"] < (now_ms - config.retention_ms) * 1000
    if config.retention_bytes is not None:
        remains = state.live.size_bytes - np.cumsum(segments["size_bytes"])
        goes |= remains >= config.retention_bytes
    return len(goes) if goes.all() else int(np.argmin(goes))


def dirtiness(
    segments: Segments, state: PartitionState, config: TopicConfig, now_ms: int
) -> Dirtiness:
    """How dirty a partition of a compacted topic is [CLEAN-1], [CLEAN-2]."""
    dirty = segments["end_offset"] > max(state.clean_end, state.log_start)
    if config.min_compaction_lag_ms:
        young = segments["max_timestamp_us"] > (now_ms - config.min_compaction_lag_ms) * 1000
        blocked = dirty & young
        stop = int(np.argmax(blocked)) if blocked.any() else len(blocked)
        segments = {name: column[:stop] for name, column in segments.items()}
        dirty = dirty[:stop]
    horizon = segments["delete_horizon_ms"]
    tombstones_go = (segments["tombstones"] > 0) & (horizon >= 0) & (horizon <= now_ms)
    # A Python number: without a maximum lag this is far below what 64 bits hold.
    overdue_us = (now_ms - config.max_compaction_lag_ms) * 1000
    first_us = segments["min_timestamp_us"][dirty & (segments["records"] > 0)]
    overdue = bool(len(first_us)) and int(first_us.min()) < overdue_us
    total = int(segments["size_bytes"].sum())
    dirty_bytes = int(segments["size_bytes"][dirty].sum())
    enough = dirty_bytes > config.min_cleanable_dirty_ratio * total
    cleanable = bool(tombstones_go.any()) or bool(dirty.any() and (overdue or enough))
    return Dirtiness(dirty_bytes / total if total else 0.0, cleanable)


def records_not_compacted(segments: Segments, state: PartitionState) -> int:
    """How many records lie above the clean end [LOG-9]."""
    dirty_from = max(state.clean_end, state.log_start)
    offsets = segments["end_offset"] - np.maximum(segments["base_offset"], dirty_from)
    return int(np.minimum(segments["records"], offsets)[offsets > 0].sum())


def mergeable_segments(
    segments: Segments,
    state: PartitionState,
    first_row_groups: Sequence[int],
    segment_bytes: int,
) -> npt.NDArray[np.bool_]:
    """Which segments a merge would rewrite: shifted segments, those in commits, a segment with
    records below the log start, and small segments next to a small one of the same kind [MERGE-1].
    `first_row_groups` are the row groups of the first segment: only that one can have records below
    the log start [SEG-6]."""
    size = segments["size_bytes"].copy()
    must_go = (segments["shift"] > 0) | (segments["inline"] > 0)
    base, end = segments["base_offset"], segments["end_offset"]
    first = base[0] + first_row_groups[0] if first_row_groups else state.log_start
    if first < state.log_start and segments["records"][0]:
        must_go[0] = True
        size[0] = size[0] * (end[0] - state.log_start) // (end[0] - base[0])
    wanted = must_go | (segments["size_bytes"] <= segment_bytes // 2)
    mergeable = must_go.copy()
    pairs = wanted[1:] & wanted[:-1] & (size[1:] + size[:-1] <= segment_bytes)
    is_clean = end <= state.clean_end
    for kind in (is_clean, segments["append_time"], segments["hashed_over"]):
        pairs &= kind[1:] == kind[:-1]
    horizon, buried = segments["delete_horizon_ms"], segments["tombstones"] > 0
    pairs &= ~(buried[1:] & buried[:-1] & (horizon[1:] != horizon[:-1]))
    mergeable[1:] |= pairs
    mergeable[:-1] |= pairs
    return mergeable
