"""What was read or written a moment ago, kept in memory because it will be asked for again.

A commit that has records is read twice: once for what it changes, once for its records. On a far
store the second request costs as much as the first. Only what never changes is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from pylogtable.storage.base import ObjectStore

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The last values, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, tuple[Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, key: str, value: Value, size: int) -> None:
        with self._lock:
            self._bytes += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = value, size
            while self._bytes > self._max_bytes:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def find(self, key: str) -> Value | None:
        with self._lock:
            found = self._kept.get(key)
        return None if found is None else found[0]


_objects: WeakKeyDictionary[ObjectStore, Recent[bytes]] = WeakKeyDictionary()


def recent_objects(store: ObjectStore) -> Recent[bytes]:
    """The objects that are kept for this store, as long as it lives."""
    return _objects.setdefault(store.origin, Recent(store.limits.cached_object_bytes))
