"""A store that counts requests, and loses, delays and refuses some of them.

It stands below the library, for stores whose address cannot be changed to that of a proxy. What the
library is told is what a client of a store tells it after such faults on the wire.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TypeVar

import pyarrow as pa

from pylogtable.errors import StorageError
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created, ObjectInfo, ObjectStore
from pylogtable.storage.delegating import WrappedStore

Reply = TypeVar("Reply")

LOST, DROPPED, LATE, DELAYED, REFUSED = (
    "lost-replies",
    "dropped-requests",
    "late-requests",
    "delayed-requests",
    "refused-requests",
)
#: How many of 1,000 requests meet each fault.
PER_MILLE = {LOST: 10, DROPPED: 5, LATE: 5, DELAYED: 10, REFUSED: 3}
COMES_THROUGH = 0.03
LONGEST_DELAY_SECONDS = 0.5
LONGEST_LATE_SECONDS = 3.0


def choose_fault(chance: float) -> str | None:
    """The fault for a random number from 0 to 1; most often none."""
    at = chance * 1000
    for fault, share in PER_MILLE.items():
        if at < share:
            return fault
        at -= share
    return None


class Faults:
    """Decides what becomes of each request, and counts. Stores below each other share it."""

    def __init__(self, runtime: Runtime, chance: Callable[[], float], *, are_on: bool) -> None:
        self.requests = 0
        self.met: Counter[str] = Counter()
        self._runtime = runtime
        self._chance = chance
        self._are_on = are_on
        self._lock = Lock()
        self._late: list[Thread] = []

    def next(self, *, can_repeat: bool = False) -> str | None:
        """The fault of the next request. A delay is over when this returns. Clients of stores
        repeat some requests by themselves, so that few faults of these come through."""
        with self._lock:
            self.requests += 1
            fault = choose_fault(self._chance()) if self._are_on else None
            if can_repeat and (fault not in (DELAYED, REFUSED) or self._chance() > COMES_THROUGH):
                fault = None
            wait = self._chance() * LONGEST_DELAY_SECONDS if fault == DELAYED else 0.0
            if fault is not None:
                self.met[fault] += 1
        if wait:
            self._runtime.pause(wait)
        return fault

    def deliver_late(self, request: Callable[[], object]) -> None:
        """Send a request some time later. Nobody waits for its reply."""
        with self._lock:
            wait = self._chance() * LONGEST_LATE_SECONDS

        def deliver() -> None:
            self._runtime.pause(wait)
            with suppress(Exception):
                request()

        thread = Thread(target=deliver, daemon=True)
        self._late.append(thread)
        thread.start()

    def settle(self) -> None:
        """Wait until all late requests have been sent."""
        for thread in self._late:
            thread.join()


class FaultyStore(WrappedStore):
    """The store `inner`, with faults."""

    def __init__(self, inner: ObjectStore, faults: Faults) -> None:
        super().__init__(inner)
        self._faults = faults

    def below(self, prefix: str) -> FaultyStore:
        return FaultyStore(self._inner.below(prefix), self._faults)

    def read(self, key: str) -> bytes | None:
        return self._ask(f"read {key}", lambda: self._inner.read(key))

    def size_of(self, key: str) -> int | None:
        return self._ask(f"look at {key}", lambda: self._inner.size_of(key))

    def create(self, key: str, data: bytes) -> Created:
        fault = self._faults.next()
        if fault == LATE:
            self._faults.deliver_late(lambda: self._inner.create(key, data))
        if fault in (LATE, DROPPED, REFUSED):
            return Created.UNKNOWN
        created = self._inner.create(key, data)
        return Created.UNKNOWN if fault == LOST else created

    def write(self, key: str, data: bytes) -> None:
        self._ask(f"write {key}", lambda: self._inner.write(key, data))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._ask(f"list {prefix}", lambda: iter([*self._inner.list(prefix)]))

    def list_folders(self) -> builtins.list[str]:
        return self._ask("list folders", self._inner.list_folders)

    def delete(self, key: str) -> None:
        self._ask(f"delete {key}", lambda: self._inner.delete(key))

    @contextmanager
    def open_output(self, key: str) -> Iterator[pa.NativeFile]:
        fault = self._faults.next()
        with self._inner.open_output(key) as sink:
            yield sink
            if fault in (REFUSED, DROPPED):
                raise _failure(f"write {key}", fault)
        if fault == LOST:
            raise _failure(f"write {key}", fault)

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        return self._ask(f"open {key}", lambda: self._inner.open_input(key, size_bytes))

    def copy_from(self, source: ObjectStore, key: str, size_bytes: int) -> None:
        self._ask(f"copy {key}", lambda: self._inner.copy_from(source, key, size_bytes))

    def _ask(self, what: str, send: Callable[[], Reply]) -> Reply:
        if self._faults.next(can_repeat=True) == REFUSED:
            raise _failure(what, REFUSED)
        return send()


def _failure(what: str, fault: str) -> StorageError:
    return StorageError(f"cannot {what}: a fault of the proof ({fault})")
