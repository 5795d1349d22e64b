"""Begins work on the next items in other threads, while the results of the first are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeAlias, TypeVar

import pyarrow as pa

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.threads import borrowed_pool

Item = TypeVar("Item")
#: The first batches of an item, and those that are still to be made.
_Begun: TypeAlias = tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch]]


def with_head_start(
    store: ObjectStore, items: Iterable[Item], work: Callable[[Item], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """What `work` makes of each item, in the order of the items.

    Work that has made `prefetch_bytes` waits for its turn, so that memory is bounded. Errors come
    where they would without threads. Where a request costs next to nothing, there are none.
    """
    if store.concurrency == 1:
        for item in items:
            yield from work(item)
        return
    most = min(store.limits.begun_ahead, store.concurrency)
    with borrowed_pool(most) as threads:
        waiting: deque[Future[_Begun]] = deque()
        for made in _each(items, work):
            waiting.append(threads.submit(_begin, made, store.limits.prefetch_bytes))
            if len(waiting) == most:
                yield from _made(waiting.popleft())
        while waiting:
            yield from _made(waiting.popleft())


def _each(
    items: Iterable[Item], work: Callable[[Item], Iterator[pa.RecordBatch]]
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The work of each item. If there is an error instead of an item, it is the last one's."""
    try:
        yield from map(work, items)
    except Exception as error:
        yield _raise(error)


def _made(begun: Future[_Begun]) -> Iterator[pa.RecordBatch]:
    first, rest = begun.result()
    yield from first
    yield from rest


def _begin(made: Iterator[pa.RecordBatch], most_bytes: int) -> _Begun:
    first = []
    size = 0
    try:
        for batch in made:
            first.append(batch)
            size += batch.nbytes
            if size >= most_bytes:
                return first, made
    except Exception as error:
        return first, _raise(error)
    return first, iter(())


def _raise(error: Exception) -> Iterator[pa.RecordBatch]:
    raise error
    yield
