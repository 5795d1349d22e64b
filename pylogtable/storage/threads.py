"""Sends requests in parallel, where each of them takes a while. Lends threads to generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from pylogtable.operation import Threads

Item = TypeVar("Item")
Result = TypeVar("Result")


class Connections(Protocol):
    """A store, as far as it matters here."""

    concurrency: int


def map_parallel(
    store: Connections, request: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    """The result for each item, in order. Where a request costs next to nothing, one follows the
    other in the caller's thread."""
    workers = min(store.concurrency, len(items))
    if workers <= 1:
        return [request(item) for item in items]
    with Threads(workers) as pool:
        return list(pool.map(request, items))


@contextmanager
def borrowed_pool(count: int) -> Iterator[Threads]:
    """Up to this many threads for the body of a generator. They have ended when the body has, also
    if it failed.

    A generator that is dropped half-way does not wait for them. Whoever drops it may be the garbage
    collector, which comes in the middle of anything, the start of a thread included. To wait for a
    thread there can take for ever."""
    pool = Threads(count)
    try:
        yield pool
    except GeneratorExit:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)
