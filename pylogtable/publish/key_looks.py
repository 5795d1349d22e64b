"""What the tables of one publication ask about the keys of a topic.

Looks at all keys take turns in a process: each takes the memory of `latest`, and a loop publishes
many topics side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from pylogtable.format.log_state import LogState
from pylogtable.publish.newest_offsets import Moved, after_appends, newest_offsets
from pylogtable.publish.roaring import Offsets
from pylogtable.storage.base import ObjectStore

Found = TypeVar("Found")

_one_at_a_time = Lock()


def _begin_anew() -> None:
    """In a forked process the thread that looks does not exist."""
    global _one_at_a_time
    _one_at_a_time = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@dataclass
class _Last(Generic[Found]):
    """What was found last, and for which states."""

    of: tuple[object, ...] = ()
    found: list[Found] = field(default_factory=list)

    def get(self, find: Callable[[], Found], *states: LogState) -> Found:
        of = tuple((s.snapshot.topic_id, s.snapshot.version, s.snapshot.commit_id) for s in states)
        if self.of != of:
            self.found.clear()
            self.of, self.found = of, [find()]
        return self.found[0]


class KeyLooks:
    """The looks of one publication. Its tables share what was found last: as a rule they show the
    same versions. Nobody may change what they find. `files` is the topic's store, `known` the same
    with what earlier publications have read."""

    def __init__(self, files: ObjectStore, known: ObjectStore) -> None:
        self.files = files
        self.known = known
        self._newest: _Last[Offsets] = _Last()
        self._moved: _Last[Moved] = _Last()
        self._lock = Lock()

    def newest(self, state: LogState) -> Offsets:
        """The offsets of all records that are shown. Every key is read."""
        with _one_at_a_time:
            return self._newest.get(lambda: newest_offsets(self.files, state), state)

    def moved(self, before: LogState, after: LogState) -> Moved:
        """What changes between two states, if records were only appended between them."""
        with self._lock:
            return self._moved.get(lambda: after_appends(self.known, before, after), before, after)
