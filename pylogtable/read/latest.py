"""The newest record of every key, found at read time: what compaction would keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partition_state import PartitionState
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP
from pylogtable.format.tombstones import one_chunk
from pylogtable.lazy_arrow import pc
from pylogtable.segments.newest_per_key import BUDGET_BYTES, find_newest
from pylogtable.segments.prefetch import pairs_ahead
from pylogtable.segments.projection import Projection
from pylogtable.segments.scan import read_masked
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
    masks = find_newest(store, info, segments, dirty_from, BUDGET_BYTES)
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
