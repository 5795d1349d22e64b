"""A store in the memory of this process, `memory://name/...`, for tests and first steps."""

from __future__ import annotations

import builtins
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from pylogtable.runtime import Runtime
from pylogtable.storage.base import (
    Created,
    ObjectInfo,
    ObjectMissingError,
    ObjectStore,
    check_key,
    check_prefix,
)


class _Space:
    """The objects of all stores with one name, with the times of their last changes. `clock` is the
    one that was given first; None is the clock of the machine."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.clock: Callable[[], int] | None = None

    def now_ms(self) -> int:
        return (self.clock or Runtime().clock)()


_registry_lock = threading.Lock()
_named: dict[str, _Space] = {}
_unnamed: WeakValueDictionary[str, _Space] = WeakValueDictionary()
_serial = itertools.count(1)


def _space(name: str) -> _Space:
    with _registry_lock:
        if name.startswith("#"):
            space = _unnamed.get(name)
            if space is None:
                space = _unnamed[name] = _Space()
            return space
        return _named.setdefault(name, _Space())


class MemoryStore(ObjectStore):
    """A dictionary behind a lock.

    Stores of the same name share their objects within the process. A store without a name is
    private. A store that is unpickled in another process is empty. `clock` gives the store's time,
    for tests; if several are given for one name, the first one counts.
    """

    def __init__(
        self,
        name: str | None = None,
        prefix: str = "",
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._name = f"#{os.getpid()}-{next(_serial)}" if name is None else name
        self._prefix = check_prefix(prefix)
        self._space = _space(self._name)
        if self._space.clock is None:
            self._space.clock = clock

    def __repr__(self) -> str:
        return f"MemoryStore({self.url!r})"

    def __reduce__(self) -> tuple[type[MemoryStore], tuple[str, str], dict[str, Any]]:
        return MemoryStore, (self._name, self._prefix), {"limits": self.limits}

    @property
    def url(self) -> str:
        return f"memory://{self._name}/{self._prefix}".rstrip("/")

    @property
    def last_reply_ms(self) -> int:
        return self._space.now_ms()

    def now_ms(self) -> int:
        return self._space.now_ms()

    def below(self, prefix: str) -> MemoryStore:
        deeper = self._twin()
        deeper._prefix = self._full(prefix.rstrip("/")) + "/"
        return deeper

    def read(self, key: str) -> bytes | None:
        with self._space.lock:
            found = self._space.objects.get(self._full(key))
        return found[0] if found else None

    def size_of(self, key: str) -> int | None:
        with self._space.lock:
            found = self._space.objects.get(self._full(key))
        return len(found[0]) if found else None

    def create(self, key: str, data: bytes) -> Created:
        full = self._full(key)
        with self._space.lock:
            if full in self._space.objects:
                return Created.EXISTS
            self._space.objects[full] = bytes(data), self._space.now_ms()
        return Created.YES

    def write(self, key: str, data: bytes) -> None:
        full = self._full(key)
        with self._space.lock:
            self._space.objects[full] = bytes(data), self._space.now_ms()

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        start = self._prefix + check_prefix(prefix)
        cut = len(self._prefix)
        with self._space.lock:
            found = [
                ObjectInfo(key[cut:], len(data), modified_ms)
                for key, (data, modified_ms) in self._space.objects.items()
                if key.startswith(start)
            ]
        found.sort(key=lambda info: info.key)
        return iter(found)

    def list_folders(self) -> builtins.list[str]:
        return sorted({info.key.split("/", 1)[0] for info in self.list() if "/" in info.key})

    def delete(self, key: str) -> None:
        with self._space.lock:
            self._space.objects.pop(self._full(key), None)

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        check_key(key)
        sink = pa.BufferOutputStream()
        yield sink
        self.write(key, sink.getvalue().to_pybytes())

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        data = self.read(key)
        if data is None:
            raise ObjectMissingError(f"cannot read {self.url}/{key}: there is no such object")
        return pa.BufferReader(data)

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        data = source.read(key) if isinstance(source, MemoryStore) else None
        if data is not None and len(data) == size_bytes:
            self.write(key, data)
        else:
            super().copy_from(source, key, size_bytes)

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)
