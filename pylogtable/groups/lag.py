"""How far a reader is behind the end of a topic, such as a consumer group."""

from __future__ import annotations

from collections.abc import Mapping

from pylogtable.format.group_model import GroupState
from pylogtable.format.schema import TIMESTAMP
from pylogtable.groups.report import Lag
from pylogtable.operation import Threads
from pylogtable.read.view import View
from pylogtable.storage.base import ObjectStore


def measure_lag(
    store: ObjectStore, view: View, positions: Mapping[int, int | None], now_ms: int
) -> dict[int, Lag]:
    """The lag of each of these partitions. Reads at most a record or two of each, for the lag in
    seconds. Where the position is None, nothing was read: everything from the log start counts."""
    starts, ends = view.start_offsets, view.end_offsets

    def lag_of(partition: int) -> Lag:
        end, position = ends[partition], positions[partition]
        start = min(max(position or 0, starts[partition]), end)
        unread = view.range_sizes({partition: (start, end)})[partition]
        seconds = 0.0
        if unread.records:
            seconds = max(0.0, now_ms / 1000 - _first_time_us(view, partition, start) / 1e6)
        return Lag(position, end, unread.records, unread.bytes, seconds)

    with Threads(max(1, min(store.concurrency, len(positions)))) as pool:
        return dict(zip(positions, pool.map(lag_of, positions), strict=True))


def positions_of(view: View, state: GroupState | None) -> dict[int, int | None]:
    """The committed position of every partition; None where there is none."""
    entries = {} if state is None else state.positions
    return {
        number: entry.offset if (entry := entries.get(number)) is not None else None
        for number in range(view.partition_count)
    }


def _first_time_us(view: View, partition: int, start: int) -> int:
    """The timestamp of the first record from `start` on. There must be one."""
    batches = view.read(partition, start=start, columns=[TIMESTAMP])
    first = next(batch for batch in batches if batch.num_rows)
    time_us: int = first.column(0)[0].value
    return time_us
