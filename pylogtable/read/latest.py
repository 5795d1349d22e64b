"""The newest record of every key of a partition: what compaction would keep, at read time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pylogtable.format.model import Segment, TopicInfo
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.format.schema import OFFSET, PARTITION, TIMESTAMP
from pylogtable.format.shaping import one_chunk
from pylogtable.format.snapshot import PartitionState
from pylogtable.lazy_arrow import pc
from pylogtable.segments.newest import BUDGET_BYTES, find_newest
from pylogtable.segments.reader import read_masked
from pylogtable.storage.base import ObjectStore


def latest_of_partition(
    store: ObjectStore,
    segments: Sequence[Segment],
    state: PartitionState,
    info: TopicInfo,
    schema: pa.Schema,
    topic: str,
) -> Iterator[pa.RecordBatch]:
    """Keys first, in memory that does not grow with their number, and of those that an earlier
    compaction left only if there is something newer; then the rows that survive. `schema` has
    `offset`."""
    dirty_from = max(state.clean_end, state.log_start)
    masks = find_newest(store, info, segments, dirty_from, BUDGET_BYTES)
    for segment, mask in zip(segments, masks, strict=True):
        for batch in read_masked(store, segment, mask, schema, topic):
            if segment.has_below(state.log_start):
                batch = batch.filter(pc.greater_equal(batch[OFFSET], state.log_start))
            yield batch


def newest_across_partitions(found: pa.Table, info: TopicInfo) -> pa.Table:
    """One row per key where several partitions gave one: the one with the latest timestamp and, of
    equal ones, in the partition that the key belongs to now [READ-6]."""
    keys = key_bytes([one_chunk(found[name]) for name in info.key])
    belongs = partition_for(keys, info.partitions) == found[PARTITION].to_numpy()
    times = found[TIMESTAMP].cast(pa.int64()).to_numpy()
    order = np.lexsort((belongs, times))
    ranked = pa.table({"key": keys.take(pa.array(order)), "rank": np.arange(len(order))})
    last = ranked.group_by("key").aggregate([("rank", "max")])["rank_max"].to_numpy()
    if len(last) == found.num_rows:
        return found
    return found.take(pa.array(np.sort(order[last])))
