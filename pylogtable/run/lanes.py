"""Threads for the work of a loop. A job waits only for jobs of its own kind: a compaction that
takes an hour does not keep published tables from following."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

#: The lane of each job. In a lane, the jobs of a topic run one after the other.
LOOK, CLEAN, SHAPE, TIDY, COPY = "look", "clean", "shape", "tidy", "copy"
LANE_OF = {
    "publication": LOOK,
    "compaction": CLEAN,
    "retention": SHAPE,
    "merge": SHAPE,
    "vacuum": TIDY,
    "group_expiry": TIDY,
    "mirror": COPY,
}
#: How many topics a lane works on at a time. A compaction needs memory for keys, a merge for row
#: groups. Of what is due together, the lanes begin in this order: merges come so often that a
#: compaction of the same topic would find no time between them.
WIDTH = {LOOK: 16, CLEAN: 2, SHAPE: 2, TIDY: 2, COPY: 4}
#: Lanes that do not work on a topic at the same time. A compaction would lose its work to a
#: retention that removes what it has read, and would copy again what a merge has joined.
APART = {CLEAN: SHAPE, SHAPE: CLEAN}


class Lanes(Protocol):
    """Where work runs."""

    def start(self, lane: str, work: Callable[[], None]) -> None:
        """Do this work soon. It does not raise."""

    def close(self) -> None:
        """Wait until all work that has begun is done, and forget the rest."""


class ThreadLanes:
    """A pool of threads for each lane."""

    def __init__(self) -> None:
        self._pools = {
            lane: ThreadPoolExecutor(width, f"pylogtable {lane}") for lane, width in WIDTH.items()
        }

    def start(self, lane: str, work: Callable[[], None]) -> None:
        self._pools[lane].submit(work)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


class OneThread:
    """Does all work at once, in the caller's thread: for simulations."""

    def start(self, lane: str, work: Callable[[], None]) -> None:
        work()

    def close(self) -> None:
        """Nothing is left to do."""
