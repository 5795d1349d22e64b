"""Work of asynchronous code in a thread. If the code is cancelled, what the work has brought is
given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, Lock, get_ident
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Errand(Generic[Result]):
    """One call in a thread. `give_back` gets its result if nobody waits for that any more."""

    def __init__(self, work: Callable[[], Result], give_back: Callable[[Result], None]) -> None:
        self._work = work
        self._give_back = give_back
        self._lock = Lock()
        self._results: list[Result] = []
        self._is_abandoned = False
        self._thread: int | None = None
        self.is_over = Event()

    async def result(self) -> Result:
        """Run it. A cancellation does not wait for the thread."""
        try:
            return await asyncio.to_thread(self._run)
        except asyncio.CancelledError:
            self._abandon()
            raise

    def wait(self) -> None:
        """Wait until the thread is done, unless this is the thread."""
        if self._thread != get_ident():
            self.is_over.wait()

    def _run(self) -> Result:
        with self._lock:
            if self._is_abandoned:
                raise asyncio.CancelledError
            self._thread = get_ident()
        try:
            result = self._work()
            with self._lock:
                self._results.append(result)
                if self._is_abandoned:
                    self._give_back(self._results.pop())
            return result
        finally:
            self.is_over.set()

    def _abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            if self._thread is None:
                self.is_over.set()  # it was still waiting for a thread
            elif self._results:
                self._give_back(self._results.pop())
