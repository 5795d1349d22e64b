"""Roots that are written beside the commits of a program that commits again and again.

A root takes as long as several commits. Nobody needs it at once: readers only get slower with each
commit after the last one. So whoever appends for long does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock

from pylogtable.runtime import Runtime


class LaterRoots:
    """Does one piece of work at a time in the background, while anybody wants that."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = Lock()
        self._users = 0
        self._is_idle = Event()
        self._is_idle.set()

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Roots that become due in this block are written beside it. Its end waits for the last
        one, since a process that ends does not finish it."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            self._is_idle.wait()

    def takes(self, work: Callable[[], None]) -> bool:
        """Do the work, which must not raise, later. While some is under way this drops it: a root
        is due again after the next commit. False if nobody wants it later."""
        with self._lock:
            if not self._users:
                return False
            if not self._is_idle.is_set():
                return True
            self._is_idle.clear()

        def run() -> None:
            try:
                work()
            finally:
                self._is_idle.set()

        self._runtime.later(run)
        return True
