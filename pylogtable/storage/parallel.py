"""Sends requests side by side, where each of them takes a while."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Connections(Protocol):
    """A store, as far as it matters here."""

    concurrency: int


def side_by_side(
    store: Connections, request: Callable[[Item], Result], items: Sequence[Item]
) -> list[Result]:
    """The result for each item, in order. Where a request costs next to nothing, one follows the
    other in the caller's thread."""
    workers = min(store.concurrency, len(items))
    if workers <= 1:
        return [request(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(request, items))
