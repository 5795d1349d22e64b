"""Which records are tombstones, and which have no key. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.model import TopicInfo
from pylogtable.lazy_arrow import pc


def count_keyless(rows: pa.Table, topic: TopicInfo) -> int:
    """How many of these rows have no key; 0 if the topic has no key columns."""
    if not topic.key or all(rows[name].null_count == 0 for name in topic.key):
        return 0
    return int(pc.sum(_all_null(rows, topic.key)).as_py() or 0)


def count_tombstones(rows: pa.Table, key: Sequence[str], values: Sequence[str]) -> int:
    """How many of these rows are tombstones: with a key, and all value columns null [REC-3]."""
    if not key or not values or any(rows[name].null_count == 0 for name in values):
        return 0
    return int(np.count_nonzero(tombstone_mask(rows, key, values)))


def tombstone_mask(
    rows: pa.Table, key: Sequence[str], values: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """Which of these rows are tombstones [REC-3]."""
    if not key or not values:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    dead = pc.and_not(_all_null(rows, values), _all_null(rows, key))
    mask: npt.NDArray[np.bool_] = dead.to_numpy()
    return mask


def _all_null(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    mask = pc.is_null(rows[names[0]])
    for name in names[1:]:
        mask = pc.and_(mask, pc.is_null(rows[name]))
    return mask


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The whole column as one array. It is copied only if it has several chunks."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
