"""Fetches small objects before they are asked for, several at once.

Whoever reads many small objects in order would wait for each of them. Here the next ones are
fetched in other threads while the first is used. What is fetched ahead is bounded in number and in
bytes. Order and errors are those of a plain read: an object that cannot be fetched raises when it
is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.threads import borrowed_pool

Item = TypeVar("Item")


class Wanted(NamedTuple):
    """An object that will be asked for: with `open_input`, or with `read` if the size is None."""

    key: str
    size_bytes: int | None


def read_ahead(
    store: ObjectStore,
    items: Iterable[Item],
    wanted: Callable[[Item], Wanted | None],
    *,
    first: int | None = None,
) -> Iterator[tuple[Item, ObjectStore]]:
    """The items in order, each with the store to read its object from. `wanted` names the object of
    an item; None if it needs none. Items are taken from `items` before their turn.

    If the reader may stop soon, give the number of objects to fetch at first. It doubles with each
    item. Where a request costs next to nothing, nothing is fetched ahead.
    """
    if store.concurrency == 1:
        for item in items:
            yield item, store
        return
    most = min(store.limits.prefetch_objects, store.concurrency)
    with borrowed_pool(most) as threads:
        ahead = _Ahead(store, iter(items), wanted, threads)
        limit = first or most
        while (waiting := ahead.next(min(limit, most))) is not None:
            yield waiting.item, waiting.store
            limit *= 2


@dataclass
class _Waiting(Generic[Item]):
    item: Item
    wanted: Wanted | None
    store: ObjectStore
    fetching: Future[bytes | None] | None = None

    @property
    def size(self) -> int:
        return (self.wanted.size_bytes or 0) if self.wanted is not None else 0


class _Ahead(Generic[Item]):
    """The items that were taken and not yet given out, and what is fetched for them."""

    def __init__(
        self,
        store: ObjectStore,
        items: Iterator[Item],
        wanted: Callable[[Item], Wanted | None],
        threads: Executor,
    ) -> None:
        self._store = store
        self._max_bytes = store.limits.prefetch_bytes
        self._items = items
        self._wanted = wanted
        self._threads = threads
        self._queue: deque[_Waiting[Item]] = deque()
        self._is_over = False
        self._failure: Exception | None = None

    def next(self, limit: int) -> _Waiting[Item] | None:
        """The next item, while up to `limit` objects are fetched: its own and those after it."""
        while not self._is_over and self._has_room(limit):
            self._take()
        if len(self._queue) > 1:
            for waiting in self._queue:
                self._start(waiting)
        if self._queue:
            return self._queue.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def _has_room(self, limit: int) -> bool:
        size = sum(waiting.size for waiting in self._queue)
        return not self._queue or (len(self._queue) < limit and size < self._max_bytes)

    def _take(self) -> None:
        """Take one more item. If that fails, the items before it come first."""
        try:
            item = next(self._items)
            self._queue.append(_Waiting(item, self._wanted(item), self._store))
        except StopIteration:
            self._is_over = True
        except Exception as error:
            self._is_over, self._failure = True, error

    def _start(self, waiting: _Waiting[Item]) -> None:
        wanted = waiting.wanted
        if wanted is None or waiting.fetching is not None:
            return
        if wanted.size_bytes is not None and wanted.size_bytes > self._store.whole_bytes:
            return
        waiting.fetching = self._found(wanted) or self._threads.submit(_fetch, self._store, wanted)
        waiting.store = _Fetched(self._store, wanted.key, waiting.fetching)

    def _found(self, wanted: Wanted) -> Future[bytes | None] | None:
        """The object, if it is already fetched for another item."""
        same = (w.fetching for w in self._queue if w.fetching is not None and w.wanted == wanted)
        return next(same, None)


def _fetch(store: ObjectStore, wanted: Wanted) -> bytes | None:
    if wanted.size_bytes is None:
        return store.read(wanted.key)
    with store.open_input(wanted.key, wanted.size_bytes) as source:
        data: bytes = source.read()
        return data


class _Fetched(WrappedStore):
    """A store, of which one object is already fetched or on its way."""

    def __init__(self, inner: ObjectStore, key: str, fetching: Future[bytes | None]) -> None:
        super().__init__(inner)
        self._key = key
        self._fetching = fetching

    @property
    def origin(self) -> ObjectStore:
        return self._inner.origin

    def read(self, key: str) -> bytes | None:
        return self._fetching.result() if key == self._key else super().read(key)

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        if key != self._key:
            return super().open_input(key, size_bytes)
        return pa.BufferReader(self._fetching.result())
