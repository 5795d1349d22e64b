"""One call at a time in another thread, while this one goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import pyarrow as pa


class Aside:
    """Runs one call at a time in another thread. It is not left while one is running."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._running: Future[None] | None = None

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            wait([self._running])

    def run(self, call: Callable[[pa.RecordBatch], None], rows: pa.RecordBatch) -> None:
        """Wait for the call before, and start this one. Raises what went wrong in the one
        before."""
        self.wait()
        self._running = self._thread.submit(call, rows)

    def wait(self) -> None:
        """Wait for the running call; raises what went wrong in it."""
        if self._running is not None:
            running, self._running = self._running, None
            running.result()
