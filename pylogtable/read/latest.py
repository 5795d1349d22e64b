"""The newest record of every key, found at read time: what compaction would keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partition_state import PartitionState
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP
from pylogtable.format.tombstones import one_chunk
from pylogtable.lazy_arrow import pc
from pylogtable.segments.key_filter import Mask, WantedKeys
from pylogtable.segments.newest_per_key import find_newest
from pylogtable.segments.projection import Projection, check_column_names
from pylogtable.segments.read_segment import read_masked, read_open
from pylogtable.segments.read_task import task_for
from pylogtable.segments.segment_prefetch import pairs_ahead, segments_ahead
from pylogtable.segments.segment_reader import Records, open_segment
from pylogtable.storage.base import ObjectStore


def latest_of_partition(
    store: ObjectStore,
    segments: Sequence[Segment],
    state: PartitionState,
    info: TopicInfo,
    columns: Projection,
) -> Iterator[pa.RecordBatch]:
    """The newest record of each key of one partition. `columns` must have `offset`.

    The first pass reads keys, in bounded memory, and finds which records are the newest. The second
    reads only those records. Segments that are already compacted are checked only against newer
    ones."""
    dirty_from = max(state.clean_end, state.log_start)
    masks = find_newest(store, info, segments, dirty_from, store.limits.key_budget_bytes)
    wanted = [pair for pair in zip(segments, masks, strict=True) if pair[1].any()]
    for segment, mask, fetched in pairs_ahead(store, wanted):
        for batch in read_masked(fetched, segment, mask, columns):
            if segment.has_below(state.log_start):
                batch = batch.filter(pc.greater_equal(batch[OFFSET], state.log_start))
            yield batch


def newest_across_partitions(found: pa.Table, info: TopicInfo) -> pa.Table:
    """Keep one record per key if several partitions have one: the record with the latest timestamp.
    If timestamps are equal, the record in the key's current partition wins [READ-6]."""
    keys = key_bytes([one_chunk(found[name]) for name in info.key])
    belongs = partition_for(keys, info.partitions) == found[PARTITION].to_numpy()
    times = found[TIMESTAMP].cast(pa.int64()).to_numpy()
    order = np.lexsort((belongs, times))
    ranked = pa.table({"key": keys.take(pa.array(order)), "rank": np.arange(len(order))})
    last = ranked.group_by("key").aggregate([("rank", "max")])["rank_max"].to_numpy()
    if len(last) == found.num_rows:
        return found
    return found.take(pa.array(np.sort(order[last])))


def newest_of(
    store: ObjectStore,
    segments: Iterable[Segment],
    wanted: WantedKeys,
    log_start: int,
    columns: Projection,
) -> Iterator[pa.RecordBatch]:
    """The newest record of each wanted key in one partition. `segments` come newest first.
    `columns` must have `offset`."""
    missing = np.ones(len(wanted), dtype=bool)
    possible_segments = (s for s in segments if (missing & wanted.in_segment(s)).any())
    # The newest segments may have all keys, so few are fetched at first.
    for segment, fetched in segments_ahead(store, possible_segments, first=1):
        candidates = missing & wanted.in_segment(segment)
        if not candidates.any():
            continue
        reader = open_segment(fetched, segment)
        check_column_names(reader, columns.info, wanted.names)
        for group in reversed(task_for(segment, log_start, segment.end_offset).row_groups):
            possible = wanted.in_row_group(reader, group, candidates & missing)
            if not possible.any():
                continue
            found, offsets = _newest_in_row_group(reader, group, wanted, possible, log_start)
            missing[found] = False
            if offsets.size:
                yield from _fetch(reader, offsets, columns)
        if not missing.any():
            return


def _newest_in_row_group(
    reader: Records, group: int, wanted: WantedKeys, possible: Mask, log_start: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which keys the row group has, and the last offset of each, in offset order."""
    newest = np.full(len(wanted), -1, dtype=np.int64)
    for batch in reader.batches([group], [*wanted.names, OFFSET]):
        keys = key_bytes([batch.column(name) for name in wanted.names])
        number = pc.index_in(keys, value_set=wanted.bytes).fill_null(-1).to_numpy()
        offsets = reader.true_offsets(batch).to_numpy()
        hits = np.flatnonzero((number >= 0) & (offsets >= log_start))
        hits = hits[possible[number[hits]]]
        # If numpy is given several values for one index, it keeps the last: the greatest offset.
        newest[number[hits]] = offsets[hits]
    which = np.flatnonzero(newest >= 0)
    return which, np.sort(newest[which])


def _fetch(
    reader: Records, offsets: npt.NDArray[np.int64], columns: Projection
) -> Iterator[pa.RecordBatch]:
    task = task_for(reader.segment, int(offsets[0]), int(offsets[-1]) + 1)
    for batch in read_open(reader, task, columns):
        mine = np.isin(batch.column(OFFSET).to_numpy(), offsets)
        if mine.any():
            yield batch.filter(pa.array(mine))
