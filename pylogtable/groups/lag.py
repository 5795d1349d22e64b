"""How far a consumer group is behind the end of a topic."""

from __future__ import annotations

from pylogtable.format.group_model import GroupState
from pylogtable.format.schema import TIMESTAMP
from pylogtable.groups.report import Lag
from pylogtable.operation import Threads
from pylogtable.read.view import View
from pylogtable.storage.base import ObjectStore


def measure_lag(
    store: ObjectStore, view: View, state: GroupState | None, now_ms: int
) -> dict[int, Lag]:
    """The lag of every partition. Reads at most a record or two of each, for the lag in seconds.
    Where there is no position, the group has read nothing: everything from the log start counts."""
    positions = {} if state is None else state.positions
    starts, ends = view.start_offsets, view.end_offsets

    def lag_of(partition: int) -> Lag:
        end, entry = ends[partition], positions.get(partition)
        position = None if entry is None else entry.offset
        start = min(max(position or 0, starts[partition]), end)
        unread = view.range_sizes({partition: (start, end)})[partition]
        seconds = 0.0
        if unread.records:
            seconds = max(0.0, now_ms / 1000 - _first_time_us(view, partition, start) / 1e6)
        return Lag(position, end, unread.records, unread.bytes, seconds)

    partitions = range(view.partition_count)
    with Threads(max(1, min(store.concurrency, len(partitions)))) as pool:
        return dict(zip(partitions, pool.map(lag_of, partitions), strict=True))


def _first_time_us(view: View, partition: int, start: int) -> int:
    """The timestamp of the first record from `start` on. There must be one."""
    batches = view.read(partition, start=start, columns=[TIMESTAMP])
    first = next(batch for batch in batches if batch.num_rows)
    time_us: int = first.column(0)[0].value
    return time_us
