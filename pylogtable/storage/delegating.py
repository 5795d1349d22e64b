"""A store around another one, which does everything that the other one does."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow as pa

from pylogtable.limits import Limits
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore

Self = TypeVar("Self", bound="WrappedStore")


class WrappedStore(ObjectStore):
    """Passes every call on to `inner`. Derive from it to change some of them."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.is_remote = inner.is_remote
        self.concurrency = inner.concurrency
        self.whole_bytes = inner.whole_bytes
        self.limits = inner.limits

    def with_limits(self: Self, limits: Limits) -> Self:
        other = super().with_limits(limits)
        other._inner = self._inner.with_limits(limits)
        return other

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def endpoint(self) -> str:
        return self._inner.endpoint

    @property
    def last_reply_ms(self) -> int | None:
        return self._inner.last_reply_ms

    def now_ms(self) -> int:
        return self._inner.now_ms()

    def below(self, prefix: str) -> ObjectStore:
        return self._inner.below(prefix)

    def read(self, key: str) -> bytes | None:
        return self._inner.read(key)

    def size_of(self, key: str) -> int | None:
        return self._inner.size_of(key)

    def peek(self, key: str) -> bool | None:
        return self._inner.peek(key)

    def create(self, key: str, data: bytes) -> Created:
        return self._inner.create(key, data)

    def write(self, key: str, data: bytes) -> None:
        self._inner.write(key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix)

    def list_folders(self) -> builtins.list[str]:
        return self._inner.list_folders()

    def is_there(self) -> bool:
        return self._inner.is_there()

    def delete(self, key: str) -> None:
        self._inner.delete(key)

    def leftovers(self) -> Iterator[ObjectInfo]:
        return self._inner.leftovers()

    def remove_leftover(self, key: str) -> None:
        self._inner.remove_leftover(key)

    def open_output(self, key: str) -> AbstractContextManager[pa.NativeFile]:
        return self._inner.open_output(key)

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        return self._inner.open_input(key, size_bytes)

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        self._inner.copy_from(source, key, size_bytes)
