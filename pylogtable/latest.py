"""The newest record of every key of a partition: what compaction would keep, at read time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pylogtable.model import TopicInfo
from pylogtable.partitioner import key_bytes, partition_for
from pylogtable.plan.read import ReadTask
from pylogtable.rows import newest_per_key, one_chunk
from pylogtable.schema import OFFSET, PARTITION, TIMESTAMP, column_schema
from pylogtable.segment_file import read_task
from pylogtable.storage.base import ObjectStore


def latest_of_partition(
    store: ObjectStore, tasks: Sequence[ReadTask], info: TopicInfo, schema: pa.Schema, topic: str
) -> Iterator[pa.RecordBatch]:
    """Two passes over the partition: keys and offsets first, then the rows that survive."""
    keys = column_schema(info.fields, [*info.key, OFFSET])
    batches = [batch for task in tasks for batch in read_task(store, task, keys, topic)]
    if not batches:
        return
    seen = pa.Table.from_batches(batches, keys)
    survivors = newest_per_key([seen[name] for name in info.key], seen[OFFSET])
    del seen, batches
    for task in tasks:
        low, high = np.searchsorted(survivors, [task.start, task.end])
        if low == high:
            continue
        for batch in read_task(store, task, schema, topic):
            mine = np.isin(batch.column(OFFSET).to_numpy(), survivors[low:high])
            if mine.any():
                yield batch.filter(pa.array(mine))


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
