"""Measuring a topic from its manifest. Pure.

All segments are looked at, however many, but as columns; what comes out is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.config import TopicConfig, describe_config
from pylogtable.format.snapshot import PartitionState, Snapshot
from pylogtable.report.growth import Numbers, cells_of_time, make_cells, measure_growth
from pylogtable.report.health import (
    Cell,
    GroupHealth,
    PartitionHealth,
    TopicHealth,
)
from pylogtable.results.groups import GroupLag

#: Of how many partitions the segments are drawn, and in how many cells altogether.
STRIPS = 24
CELLS = 960


def measure(
    name: str,
    snapshot: Snapshot,
    segments: pa.Table,
    history: pa.Table,
    lags: Mapping[str, GroupLag | str],
    now_ms: int,
) -> TopicHealth:
    """The health of a topic: `segments` are all of them, `history` has the newest commits, `lags`
    the lag of each group, or why it is not known."""
    columns = _columns(segments)
    config = snapshot.config
    count = len(snapshot.partitions)
    bounds = np.searchsorted(columns["partition"], np.arange(count + 1))
    parts = [
        {key: column[bounds[number] : bounds[number + 1]] for key, column in columns.items()}
        for number in range(count)
    ]
    drawn = min(count, STRIPS)
    low = min((state.log_start for state in snapshot.partitions[:drawn]), default=0)
    high = max((state.end for state in snapshot.partitions[:drawn]), default=0)
    # Of each partition the log start can cut only the first segment [SEG-6].
    firsts = [
        segments["row_groups"][at].as_py() if len(part["shift"]) else []
        for at, part in zip(bounds[:-1].tolist(), parts, strict=True)
    ]
    partitions = tuple(
        _partition(number, state, part, firsts[number], config, now_ms)
        for number, (state, part) in enumerate(zip(snapshot.partitions, parts, strict=True))
    )
    return TopicHealth(
        name=name,
        version=snapshot.version,
        committed_at_ms=snapshot.committed_at_ms,
        now_ms=now_ms,
        key=snapshot.info.key,
        config=config,
        settings=describe_config(snapshot.info.config),
        partitions=partitions,
        strips={n: _strip(parts[n], low, high, CELLS // max(1, drawn)) for n in range(drawn)},
        times=_over_time(columns),
        sizes=_by_size(columns, config.segment_bytes),
        growth=measure_growth(history, now_ms),
        groups=tuple(
            _group(group, lag, snapshot, parts, partitions, now_ms) for group, lag in lags.items()
        ),
    )


def _columns(segments: pa.Table) -> dict[str, npt.NDArray[Any]]:
    table = segments.drop_columns(["path", "row_groups"])
    filled = {"delete_horizon_ms": -1, "hashed_over": 0}
    columns: dict[str, npt.NDArray[Any]] = {}
    for name in table.column_names:
        column = table[name]
        columns[name] = (column.fill_null(filled[name]) if name in filled else column).to_numpy()
    return columns


def _partition(
    number: int,
    state: PartitionState,
    part: Mapping[str, Numbers],
    row_groups: Sequence[int],
    config: TopicConfig,
    now_ms: int,
) -> PartitionHealth:
    size = part["size_bytes"]
    small = size <= config.segment_bytes // 2
    shifted = part["shift"] > 0
    expired = _expired(part, state, config, now_ms)
    ratio, cleanable = _dirty(part, state, config, now_ms) if config.is_compacted else (None, False)
    joinable = _joinable(part, state, row_groups, config.segment_bytes)
    return PartitionHealth(
        partition=number,
        log_start=state.log_start,
        end=state.end,
        clean_end=state.clean_end,
        segments=state.live.segments,
        records=state.live.records,
        size_bytes=state.live.size_bytes,
        small=int(small.sum()),
        shifted=int(shifted.sum()),
        joinable=int(joinable.sum()),
        joinable_bytes=int(size[joinable].sum()),
        expired_segments=expired,
        expired_records=int(part["records"][:expired].sum()),
        expired_bytes=int(size[:expired].sum()),
        dirty_ratio=ratio,
        cleanable=cleanable,
    )


def _joinable(
    part: Mapping[str, Numbers], state: PartitionState, row_groups: Sequence[int], limit: int
) -> npt.NDArray[np.bool_]:
    """What a merge would take: shifted segments, one that has records below the log start, and
    small ones beside one of their kind [MERGE-1]."""
    size, must_go = part["size_bytes"].copy(), part["shift"] > 0
    if (
        row_groups
        and part["records"][0]
        and part["base_offset"][0] + row_groups[0] < state.log_start
    ):
        must_go[0] = True
        claimed = part["end_offset"][0] - part["base_offset"][0]
        size[0] = size[0] * (part["end_offset"][0] - state.log_start) // claimed
    wanted = must_go | (part["size_bytes"] <= limit // 2)
    joinable = must_go.copy()
    like = wanted[1:] & wanted[:-1] & (size[1:] + size[:-1] <= limit)
    is_clean = part["end_offset"] <= state.clean_end
    for kind in (is_clean, part["append_time"], part["hashed_over"]):
        like &= kind[1:] == kind[:-1]
    horizon, buried = part["delete_horizon_ms"], part["tombstones"] > 0
    like &= ~(buried[1:] & buried[:-1] & (horizon[1:] != horizon[:-1]))
    joinable[1:] |= like
    joinable[:-1] |= like
    return joinable


def _expired(
    part: Mapping[str, Numbers], state: PartitionState, config: TopicConfig, now_ms: int
) -> int:
    """How many segments retention would let go of [RET-1]."""
    if not config.deletes or not len(part["size_bytes"]):
        return 0
    goes = np.zeros(len(part["size_bytes"]), dtype=bool)
    if config.retention_ms is not None:
        goes |= part["max_timestamp_us"] < (now_ms - config.retention_ms) * 1000
    if config.retention_bytes is not None:
        remains = state.live.size_bytes - np.cumsum(part["size_bytes"])
        goes |= remains >= config.retention_bytes
    return len(goes) if goes.all() else int(np.argmin(goes))


def _dirty(
    part: Mapping[str, Numbers], state: PartitionState, config: TopicConfig, now_ms: int
) -> tuple[float, bool]:
    """The dirty ratio, and whether a compaction would do something [CLEAN-1], [CLEAN-2]."""
    dirty = part["end_offset"] > max(state.clean_end, state.log_start)
    if config.min_compaction_lag_ms:
        young = part["max_timestamp_us"] > (now_ms - config.min_compaction_lag_ms) * 1000
        blocked = dirty & young
        stop = int(np.argmax(blocked)) if blocked.any() else len(blocked)
        part = {name: column[:stop] for name, column in part.items()}
        dirty = dirty[:stop]
    horizon = part["delete_horizon_ms"]
    tombstones_go = (part["tombstones"] > 0) & (horizon >= 0) & (horizon <= now_ms)
    overdue_us = (now_ms - config.max_compaction_lag_ms) * 1000
    # As Python numbers: with no greatest lag this is far below what 64 bits hold.
    first = part["min_timestamp_us"][dirty & (part["records"] > 0)]
    overdue = bool(len(first)) and int(first.min()) < overdue_us
    total = int(part["size_bytes"].sum())
    dirty_bytes = int(part["size_bytes"][dirty].sum())
    enough = dirty_bytes > config.min_cleanable_dirty_ratio * total
    cleanable = bool(tombstones_go.any()) or bool(dirty.any() and (overdue or enough))
    return (dirty_bytes / total if total else 0.0), cleanable


def _group(
    group: str,
    lag: GroupLag | str,
    snapshot: Snapshot,
    parts: Sequence[Mapping[str, Numbers]],
    partitions: Sequence[PartitionHealth],
    now_ms: int,
) -> GroupHealth:
    if isinstance(lag, str):
        return GroupHealth(group, error=lag)
    config = snapshot.config
    lost = expiring = 0
    left: list[int] = []
    for number, behind in lag.items():
        # A partition that is newer than the snapshot is left for the next report.
        if behind.position is None or number >= len(parts):
            continue
        part, state = parts[number], snapshot.partitions[number]
        lost += max(0, state.log_start - behind.position)
        unread = int(np.searchsorted(part["end_offset"], behind.position, side="right"))
        expired = partitions[number].expired_segments
        expiring += int(part["records"][unread:expired].sum())
        first = max(unread, expired)
        if config.deletes and config.retention_ms is not None and first < len(part["end_offset"]):
            age_ms = now_ms - int(part["max_timestamp_us"][first]) // 1000
            left.append(config.retention_ms - age_ms)
    return GroupHealth(group, lag, lost, expiring, min(left, default=None))


def _strip(part: Mapping[str, Numbers], low: int, high: int, cells: int) -> tuple[Cell, ...]:
    """Each segment for itself if there are few enough, else those that lie side by side."""
    base = part["base_offset"]
    if not len(base):
        return ()
    first: Numbers = np.arange(len(base))
    if len(base) > cells:
        place = (base - low).astype(np.float64) * (cells / max(1, high - low))
        first = np.flatnonzero(np.diff(place.astype(np.int64), prepend=-1))
    last = np.append(first[1:], len(base)) - 1
    return make_cells(
        base[first],
        part["end_offset"][last],
        last - first + 1,
        np.add.reduceat(part["records"], first),
        np.add.reduceat(part["size_bytes"], first),
    )


def _over_time(columns: Mapping[str, Numbers]) -> tuple[Cell, ...]:
    held = columns["records"] > 0
    at = columns["max_timestamp_us"][held] // 1000
    ones = np.ones(len(at), dtype=np.int64)
    return cells_of_time(at, ones, columns["records"][held], columns["size_bytes"][held])


def _by_size(columns: Mapping[str, Numbers], wanted: int) -> tuple[Cell, ...]:
    """A cell for every doubling from the smallest segment to the largest, or to the size wanted."""
    size = columns["size_bytes"]
    if not len(size):
        return ()
    power = np.log2(np.maximum(size, 1)).astype(np.int64)
    low = min(int(power.min()), wanted.bit_length() - 1)
    high = max(int(power.max()), wanted.bit_length() - 1)
    ones = np.ones(len(size), dtype=np.int64)
    sums = [
        np.bincount(power - low, weights=column, minlength=high - low + 1)
        for column in (ones, columns["records"], size)
    ]
    edges = [2**exponent for exponent in range(low, high + 2)]
    return make_cells(edges[:-1], edges[1:], *sums)
