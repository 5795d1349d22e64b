"""Counting round trips without a server: requests that are sent side by side take one.

Each request takes one unit of a time that only exists here. It begins when its thread has had the
replies to all that it waited for, and when one of the store's connections is free. A task of a
thread pool begins when it is submitted, and whoever waits for its result is as late as the task
was. So the number does not depend on the machine, nor on which thread runs first.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from pylogtable.storage.base import Created, ObjectInfo, ObjectMissingError
from pylogtable.storage.range_file import RangeFile
from pylogtable.storage.remote import WHOLE_BYTES
from tests.stores import FarStore

CONNECTIONS = 32


@dataclass
class Cost:
    """What an action took: its requests by verb (`get` is a read of a file), and round trips."""

    requests: Counter[str] = field(default_factory=Counter)
    round_trips: int = 0


class _Time(threading.local):
    now = 0


@dataclass
class _Line:
    """The connections to the store: when each of them is free again."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    free_at: list[int] = field(default_factory=lambda: [0] * CONNECTIONS)
    verbs: Counter[str] = field(default_factory=Counter)


_time = _Time()


class WiredStore(FarStore):
    """A far store that fetches small files whole, like `RemoteStore`, and counts its requests. Of
    larger files it does not count round trips: pyarrow reads them in threads of its own."""

    concurrency = CONNECTIONS
    whole_bytes = WHOLE_BYTES

    def __init__(
        self, time: Callable[[], int | None], name: str | None = None, prefix: str = ""
    ) -> None:
        super().__init__(time, name, prefix)
        self._line = _Line()

    def __reduce__(self) -> Any:
        _sent[self._name] = self
        return elsewhere, (self._name, self._prefix)

    def cost_of(self, action: Callable[[], object]) -> Cost:
        """What an action costs that runs now, in this thread."""
        self._line.verbs.clear()
        with _counted_pools():
            began = _time.now = max(_time.now, *self._line.free_at)
            action()
            return Cost(Counter(self._line.verbs), _time.now - began)

    def read(self, key: str) -> bytes | None:
        self._send("read")
        return super().read(key)

    def size_of(self, key: str) -> int | None:
        self._send("look")
        return super().size_of(key)

    def create(self, key: str, data: bytes) -> Created:
        self._send("create")
        return super().create(key, data)

    def write(self, key: str, data: bytes) -> None:
        self._send("write")
        super().write(key, data)

    def delete(self, key: str) -> None:
        self._send("delete")
        super().delete(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._send("list")
        self._replies.append(self._time())
        return super().list(prefix)

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        def fetch(start: int, end: int) -> bytes:
            self._send("get")
            data = FarStore.read(self, key)
            if data is None:
                raise ObjectMissingError(f"there is no {key}")
            return data[start:end]

        return pa.PythonFile(RangeFile(fetch, size_bytes, WHOLE_BYTES), mode="r")

    def _send(self, verb: str) -> None:
        line = self._line
        with line.lock:
            line.verbs[verb] += 1
            began = max(_time.now, heapq.heappop(line.free_at))
            heapq.heappush(line.free_at, began + 1)
        _time.now = began + 1


#: The stores that were sent to another process, by name.
_sent: dict[str, WiredStore] = {}


def elsewhere(name: str, prefix: str = "") -> WiredStore:
    """A store that was pickled, as another process sees it, which has had no reply yet."""
    anew = WiredStore(_sent[name]._time, name, prefix)
    anew._line = _sent[name]._line
    return anew


@contextmanager
def _counted_pools() -> Iterator[None]:
    """Tasks of thread pools inherit the time of their submitter, and hand on their own."""
    submit, result = ThreadPoolExecutor.submit, Future.result

    def timed_submit(
        pool: ThreadPoolExecutor, task: Callable[..., Any], /, *args: Any, **options: Any
    ) -> Future[Any]:
        submitted = _time.now
        ended: list[int] = []

        def run() -> Any:
            _time.now = submitted
            try:
                return task(*args, **options)
            finally:
                ended.append(_time.now)

        future = submit(pool, run)
        future.ended = ended  # type: ignore[attr-defined]
        return future

    def timed_result(future: Future[Any], timeout: float | None = None) -> Any:
        try:
            return result(future, timeout)
        finally:
            _time.now = max(_time.now, *getattr(future, "ended", ()), 0)

    with (
        patch.object(ThreadPoolExecutor, "submit", timed_submit),
        patch.object(Future, "result", timed_result),
    ):
        yield
