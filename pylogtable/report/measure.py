"""Measures a topic from its manifest. Pure.

Every segment counts, up to millions, so they are handled as columns. The result is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from pylogtable.format.config import MANIFEST_RETENTION_MS, TopicConfig
from pylogtable.format.partition_state import PartitionState
from pylogtable.format.segment_checks import are_inline
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.report import GroupLag
from pylogtable.read.description import described_settings
from pylogtable.report.bins import Int64s, bins_by_offset, bins_by_size, bins_by_time
from pylogtable.report.due import (
    Segments,
    dirtiness,
    expired_segments,
    mergeable_segments,
    records_not_compacted,
)
from pylogtable.report.health import (
    Bin,
    GroupHealth,
    Growth,
    OperationTotals,
    PartitionHealth,
    TopicHealth,
)

#: The segments of this many partitions are drawn over their offsets.
PARTITIONS_DRAWN = 24
#: The number of bins for all of them together.
MAX_OFFSET_BINS = 960


def measure_topic(
    name: str,
    snapshot: Snapshot,
    segments: pa.Table,
    history: pa.Table,
    lags: Mapping[str, GroupLag | str],
    now_ms: int,
) -> TopicHealth:
    """The health of a topic. `segments` has all live segments, `history` the newest commits, and
    `lags` the lag of each group, or why it is not known."""
    columns = _columns(segments)
    config = snapshot.config
    by_partition = _by_partition(snapshot, columns)
    partitions = _measured(snapshot, segments, by_partition, now_ms)
    drawn = min(len(snapshot.partitions), PARTITIONS_DRAWN)
    low = min((state.log_start for state in snapshot.partitions[:drawn]), default=0)
    high = max((state.end for state in snapshot.partitions[:drawn]), default=0)
    max_bins = MAX_OFFSET_BINS // max(1, drawn)
    return TopicHealth(
        name=name,
        version=snapshot.version,
        committed_at_ms=snapshot.committed_at_ms,
        now_ms=now_ms,
        key=snapshot.info.key,
        config=config,
        settings=described_settings(snapshot),
        partitions=partitions,
        bins_by_offset={
            number: bins_by_offset(by_partition[number], low, high, max_bins)
            for number in range(drawn)
        },
        bins_by_time=_bins_by_newest_record(columns),
        bins_by_size=bins_by_size(columns, config.segment_bytes),
        growth=measure_growth(history, now_ms),
        groups=tuple(
            _measure_group(group, lag, snapshot, by_partition, partitions, now_ms)
            for group, lag in lags.items()
        ),
    )


def measure_partitions(
    snapshot: Snapshot, segments: pa.Table, now_ms: int
) -> tuple[PartitionHealth, ...]:
    """The health of each partition. `segments` has all live segments of the topic."""
    return _measured(snapshot, segments, _by_partition(snapshot, _columns(segments)), now_ms)


def _measured(
    snapshot: Snapshot,
    segments: pa.Table,
    by_partition: Sequence[Segments],
    now_ms: int,
) -> tuple[PartitionHealth, ...]:
    firsts = np.cumsum([0, *(len(mine["shift"]) for mine in by_partition)])[:-1].tolist()
    return tuple(
        _measure_partition(
            number,
            state,
            mine,
            segments["row_groups"][first].as_py() if len(mine["shift"]) else [],
            snapshot.config,
            now_ms,
        )
        for number, (state, mine, first) in enumerate(
            zip(snapshot.partitions, by_partition, firsts, strict=True)
        )
    )


def _by_partition(snapshot: Snapshot, columns: Segments) -> list[dict[str, Int64s]]:
    """The segments of each partition."""
    count = len(snapshot.partitions)
    bounds = np.searchsorted(columns["partition"], np.arange(count + 1))
    return [
        {key: column[bounds[number] : bounds[number + 1]] for key, column in columns.items()}
        for number in range(count)
    ]


def _columns(segments: pa.Table) -> dict[str, Int64s]:
    table = segments.drop_columns(["path", "row_groups"])
    filled = {"delete_horizon_ms": -1, "hashed_over": 0}
    columns: dict[str, Int64s] = {}
    for name in table.column_names:
        column = table[name]
        columns[name] = (column.fill_null(filled[name]) if name in filled else column).to_numpy()
    columns["inline"] = are_inline(segments).astype(np.int64)
    return columns


def _measure_partition(
    number: int,
    state: PartitionState,
    segments: Segments,
    first_row_groups: Sequence[int],
    config: TopicConfig,
    now_ms: int,
) -> PartitionHealth:
    size, is_inline = segments["size_bytes"], segments["inline"] > 0
    expired = expired_segments(segments, state, config, now_ms)
    dirty = dirtiness(segments, state, config, now_ms) if config.is_compacted else None
    mergeable = mergeable_segments(segments, state, first_row_groups, config.segment_bytes)
    return PartitionHealth(
        partition=number,
        log_start=state.log_start,
        end=state.end,
        clean_end=state.clean_end,
        segments=state.live.segments,
        records=state.live.records,
        size_bytes=state.live.size_bytes,
        small_segments=int((~is_inline & (size <= config.segment_bytes // 2)).sum()),
        shifted_segments=int((segments["shift"] > 0).sum()),
        inline_segments=int(is_inline.sum()),
        inline_records=int(segments["records"][is_inline].sum()),
        inline_bytes=int(size[is_inline].sum()),
        mergeable_segments=int(mergeable.sum()),
        mergeable_bytes=int(size[mergeable].sum()),
        expired_segments=expired,
        expired_records=int(segments["records"][:expired].sum()),
        expired_bytes=int(size[:expired].sum()),
        records_not_compacted=records_not_compacted(segments, state) if config.is_compacted else 0,
        dirty_ratio=None if dirty is None else dirty.ratio,
        cleanable=dirty is not None and dirty.cleanable,
    )


def _measure_group(
    group: str,
    lag: GroupLag | str,
    snapshot: Snapshot,
    by_partition: Sequence[Segments],
    partitions: Sequence[PartitionHealth],
    now_ms: int,
) -> GroupHealth:
    if isinstance(lag, str):
        return GroupHealth(group, error=lag)
    config = snapshot.config
    lost = expiring = 0
    left_ms: list[int] = []
    for number, behind in lag.items():
        # A partition that was added after the snapshot is left for the next report.
        if number >= len(by_partition):
            continue
        segments, state = by_partition[number], snapshot.partitions[number]
        # Without a position the group has read nothing, and so it has lost nothing either.
        position = state.log_start if behind.position is None else behind.position
        lost += max(0, state.log_start - position)
        unread = int(np.searchsorted(segments["end_offset"], position, side="right"))
        expired = partitions[number].expired_segments
        expiring += int(segments["records"][unread:expired].sum())
        first = max(unread, expired)
        has_more = first < len(segments["end_offset"])
        if config.deletes and config.retention_ms is not None and has_more:
            age_ms = now_ms - int(segments["max_timestamp_us"][first]) // 1000
            left_ms.append(config.retention_ms - age_ms)
    return GroupHealth(group, lag, lost, expiring, min(left_ms, default=None))


def _bins_by_newest_record(columns: Segments) -> tuple[Bin, ...]:
    held = columns["records"] > 0
    at_ms = columns["max_timestamp_us"][held] // 1000
    ones = np.ones(len(at_ms), dtype=np.int64)
    return bins_by_time(at_ms, ones, columns["records"][held], columns["size_bytes"][held])


def measure_growth(history: pa.Table, now_ms: int) -> Growth:
    """The growth of a topic. `history` is the result of `Topic.history`: commits, newest first."""
    if not history.num_rows:
        return Growth()
    at_ms = history["committed_at"].cast(pa.int64()).to_numpy()
    names = np.array(history["operation"].to_pylist(), dtype=object)
    added, records, size_bytes, removed = (
        history[name].to_numpy()
        for name in ("segments_added", "records_added", "bytes_added", "segments_removed")
    )
    operations = []
    for name in sorted(set(names)):
        mine = names == name
        sums = [int(column[mine].sum()) for column in (added, records, size_bytes, removed)]
        operations.append(OperationTotals(name, int(mine.sum()), *sums))
    vacuums = at_ms[names == "vacuum"]
    is_old = at_ms < now_ms - MANIFEST_RETENTION_MS
    is_removable = is_old
    if len(vacuums):
        # The last vacuum removed files that had been replaced longer ago than the manifest's
        # retention.
        is_removable = is_old & (at_ms >= int(vacuums[0]) - MANIFEST_RETENTION_MS)
    appends = names == "append"
    return Growth(
        commits=history.num_rows,
        is_complete=int(history["version"][-1].as_py()) == 0 or names[-1] == "create",
        appended=bins_by_time(
            at_ms[appends], added[appends], records[appends], size_bytes[appends]
        ),
        operations=tuple(operations),
        removable_files=int(removed[is_removable].sum()),
        waiting_files=int(removed[~is_old].sum()),
    )
