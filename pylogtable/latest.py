"""The newest record of every key of a partition: what compaction would keep, at read time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.model import TopicInfo
from pylogtable.plan.read import ReadTask
from pylogtable.rows import newest_per_key
from pylogtable.schema import OFFSET, TIMESTAMP, column_schema
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


def newest_across_partitions(found: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row per key where several partitions gave one: the one with the latest timestamp."""
    numbered = found.append_column("row", pa.array(np.arange(found.num_rows)))
    order = pc.sort_indices(numbered, sort_keys=[(TIMESTAMP, "ascending"), ("row", "ascending")])
    last = (
        numbered.take(order)
        .append_column("rank", pa.array(np.arange(found.num_rows)))
        .group_by(list(key))
        .aggregate([("rank", "max")])
    )
    if last.num_rows == found.num_rows:
        return found
    rows = np.sort(order.to_numpy()[last["rank_max"].to_numpy()])
    return found.take(pa.array(rows))
