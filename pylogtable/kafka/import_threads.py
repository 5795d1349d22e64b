"""The threads that shape and encode the rows of an import, or of many imports of a process.

Every thread holds memory of Arrow's. So imports side by side share theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pylogtable.kafka.side_by_side import AT_ONCE
from pylogtable.operation import Threads


@dataclass(frozen=True)
class ImportThreads:
    """Threads that encode files, and threads that shape rows while more are read."""

    encoders: Threads
    shapers: Threads

    @classmethod
    def for_topics(cls, topics: int) -> ImportThreads:
        """Those of so many imports at a time."""
        return cls(Threads(2 * topics), Threads(topics))

    def close(self) -> None:
        """Wait for their work."""
        self.encoders.shutdown()
        self.shapers.shutdown()


_shared: ContextVar[ImportThreads | None] = ContextVar("import_threads", default=None)


@contextmanager
def sharing(threads: ImportThreads) -> Iterator[None]:
    """Let an import in this context use these threads."""
    token = _shared.set(threads)
    try:
        yield
    finally:
        _shared.reset(token)


def shared_threads() -> ImportThreads:
    """Threads for many imports side by side."""
    return ImportThreads.for_topics(AT_ONCE)


@contextmanager
def threads_of_import() -> Iterator[ImportThreads]:
    """Those that imports share here, or some for one import alone."""
    shared = _shared.get()
    with ExitStack() as stack:
        if shared is None:
            shared = ImportThreads.for_topics(1)
            stack.callback(shared.close)
        yield shared
