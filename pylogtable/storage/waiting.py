"""Waiting until somebody else puts an object."""

from __future__ import annotations

from collections.abc import Sequence

from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

#: An object that may come.
Place = tuple[ObjectStore, str]

#: Where a look takes microseconds, the pause between two grows with the time waited so far: so an
#: object is seen late by a part of that time, and who waits for long looks seldom.
SHORTEST_SECONDS = 0.0005
LONGEST_SECONDS = 0.02
PART_OF_WAIT = 1 / 16


def wait_for_any(places: Sequence[Place], seconds: float, runtime: Runtime) -> None:
    """Wait until one of these objects is there, or for so long. Where a look would be a request,
    none is made: then this is a pause, and the caller looks after it."""
    waited, began = 0.0, runtime.monotonic()
    while waited < seconds:
        seen = [store.peek(key) for store, key in places]
        if any(seen):
            return
        pause = seconds - waited
        if False in seen:
            pause = min(pause, LONGEST_SECONDS, max(SHORTEST_SECONDS, waited * PART_OF_WAIT))
        runtime.pause(pause)
        waited = max(waited + pause, runtime.monotonic() - began)
