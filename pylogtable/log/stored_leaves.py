"""Reads and writes the leaves of the index: Parquet files below `_manifest/`."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import pyarrow as pa

from pylogtable.errors import CorruptTopicError
from pylogtable.format.footer_shape import shape_fault
from pylogtable.format.json_bytes import checksum
from pylogtable.format.leaf import Leaf, check_leaf, leaf_table
from pylogtable.format.paths import leaf_path
from pylogtable.lazy_arrow import pq
from pylogtable.storage.base import ObjectStore

CODEC = "zstd"


class LeafObjects:
    """The leaves of one topic. The last ones used are kept in memory."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._cached: OrderedDict[str, Leaf] = OrderedDict()
        self._loading: dict[str, Lock] = {}
        self._lock = Lock()

    def load(self, leaf_id: str, expected: str | None) -> Leaf:
        """The leaf. Raises if it is missing or damaged [LEAF-1], or has another checksum than the
        root `expected`."""
        with self._lock:
            loading = self._loading.setdefault(leaf_id, Lock())
        with loading:  # partitions share leaves, and are looked at side by side
            with self._lock:
                if leaf_id in self._cached:
                    self._cached.move_to_end(leaf_id)
                    _check_sum(leaf_id, self._cached[leaf_id].checksum, expected)
                    return self._cached[leaf_id]
            leaf = self._read(leaf_id, expected)
            with self._lock:
                self._cached[leaf_id] = leaf
                while len(self._cached) > self._store.limits.leaves_cached:
                    # Another thread may have had this lock for longer than the leaf was kept.
                    self._loading.pop(self._cached.popitem(last=False)[0], None)
        return leaf

    def write(self, leaf: Leaf) -> str:
        """Write a new leaf, and return the checksum that its root has to name."""
        sink = pa.BufferOutputStream()
        pq.write_table(leaf.table, sink, compression=CODEC)
        data: bytes = sink.getvalue().to_pybytes()
        self._store.write(leaf_path(leaf.id), data)
        return checksum(data)

    def _read(self, leaf_id: str, expected: str | None) -> Leaf:
        path = leaf_path(leaf_id)
        data = self._store.read(path)
        if data is None:
            raise CorruptTopicError(path, "LEAF-1", "a root names it, but it is missing")
        found = checksum(data)
        # Before Arrow parses it: damage could end the process.
        _check_sum(leaf_id, found, expected)
        fault = shape_fault(data) if expected is None else None
        if fault is not None:
            raise CorruptTopicError(path, "LEAF-1", fault)
        try:
            table = pq.read_table(pa.BufferReader(data), use_threads=False)
            leaf = Leaf(leaf_id, leaf_table(table), found)
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise CorruptTopicError(path, "LEAF-1", str(error)) from error
        check_leaf(leaf)
        return leaf


def _check_sum(leaf_id: str, found: str | None, expected: str | None) -> None:
    """Raise if a leaf was changed since its root was written [SUM-2]."""
    if expected is not None and found != expected:
        detail = f"its checksum is {found}, but the root says {expected}"
        raise CorruptTopicError(leaf_path(leaf_id), "SUM-2", detail)
