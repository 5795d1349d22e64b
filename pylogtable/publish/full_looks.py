"""Looks at all keys of a topic, one at a time in a process: each takes the memory of `latest`, and
a loop publishes many topics side by side."""

from __future__ import annotations

import os
from threading import Lock

from pylogtable.format.log_state import LogState
from pylogtable.publish.newest_offsets import newest_offsets
from pylogtable.publish.roaring import Offsets
from pylogtable.storage.base import ObjectStore

_one_at_a_time = Lock()


def _begin_anew() -> None:
    """In a forked process the thread that looks does not exist."""
    global _one_at_a_time
    _one_at_a_time = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class FullLooks:
    """The looks of one publication. Its tables share what was found last: as a rule they show the
    same version."""

    def __init__(self) -> None:
        self._found: tuple[tuple[str, int, str], Offsets] | None = None

    def newest(self, store: ObjectStore, state: LogState) -> Offsets:
        """The offsets of all records that are shown, as `newest_offsets` finds them. Nobody may
        change them."""
        snapshot = state.snapshot
        wanted = snapshot.topic_id, snapshot.version, snapshot.commit_id
        with _one_at_a_time:
            if self._found is None or self._found[0] != wanted:
                self._found = None
                self._found = wanted, newest_offsets(store, state)
            return self._found[1]
