"""What was read or written a moment ago, kept in memory because it will be asked for again.

A commit that has records is read twice: once for what it changes, once for its records. On a far
store the second request costs as much as the first. Only what never changes is kept.

All caches of a process share one budget: a process that looks after a thousand topics needs no more
memory than one that looks after ten.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from pylogtable.storage.base import ObjectStore

Value = TypeVar("Value")

PROCESS_BYTES = 128 << 20
#: What Python needs for an entry besides its value.
ENTRY_BYTES = 512
#: A value that is larger than this part of the budget would push out too many others.
LARGEST_PART = 8


class Memory:
    """The values of several caches, up to a number of bytes. Those go first that were not used for
    the longest time."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._kept: OrderedDict[tuple[int, str], tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def keep(self, key: tuple[int, str], value: Any, size: int) -> None:
        size += ENTRY_BYTES
        with self._lock:
            self.used_bytes -= self._kept.pop(key, (None, 0))[1]
            if size > self.max_bytes // LARGEST_PART:
                return
            self._kept[key] = value, size
            self.used_bytes += size
            while self.used_bytes > self.max_bytes:
                self.used_bytes -= self._kept.popitem(last=False)[1][1]

    def find(self, key: tuple[int, str]) -> Any:
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]


_PROCESS = Memory(PROCESS_BYTES)
_numbers = count()


class Recent(Generic[Value]):
    """One cache. What it keeps when it is gone is pushed out by others."""

    def __init__(self, memory: Memory = _PROCESS) -> None:
        self._memory = memory
        self._number = next(_numbers)

    def keep(self, key: str, value: Value, size: int) -> None:
        """Keep a value that takes about so many bytes."""
        self._memory.keep((self._number, key), value, size)

    def find(self, key: str) -> Value | None:
        """The value, if it is still there."""
        found: Value | None = self._memory.find((self._number, key))
        return found


_objects: WeakKeyDictionary[ObjectStore, Recent[bytes]] = WeakKeyDictionary()


def recent_objects(store: ObjectStore) -> Recent[bytes]:
    """The objects that are kept for this store."""
    return _objects.setdefault(store.origin, Recent())
