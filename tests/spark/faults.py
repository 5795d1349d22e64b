"""Stores whose commits fail in this process, the driver's. Tasks in other processes see no fault.

Each fault is a function for `FaultyStore`. `before_put` is called when the commit is about to be
put, so after all files are staged.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from pylogtable import StorageError, Store
from pylogtable.runtime import Runtime
from pylogtable.storage.base import NotSentError, ObjectStore
from pylogtable.storage.open import open_store
from pyspark_pylogtable.tasks.planned_write import PlannedWrite
from tests.spark.writes import travelled
from tests.stores import Fault, FaultyStore

Decide = Callable[[str, str], Fault | None]


class DriverFaults(FaultyStore):
    """A faulty store that arrives in another process as the store inside it."""

    def __reduce__(self) -> tuple[Callable[[ObjectStore], ObjectStore], tuple[ObjectStore]]:
        return _as_it_is, (self._inner,)

    def below(self, prefix: str) -> DriverFaults:
        deeper = DriverFaults(self._inner.below(prefix), self._script.decide)
        deeper._script = self._script
        deeper._prefix = f"{self._prefix}{prefix.rstrip('/')}/"
        return deeper


def store_with(url: str | os.PathLike[str], decide: Decide) -> Store:
    """The store at `url`; a commit whose outcome is unknown is given up at once."""
    return Store(DriverFaults(open_store(url, None), decide), Runtime(patience_seconds=0))


def on_store(writer: Any, store: Store) -> Any:
    """A copy of a Spark writer, as in another process, that uses this store."""
    copy = travelled(writer)
    where, plan = dataclasses.replace(copy._write.where, store=store), copy._write.plan
    if plan is not None:
        below = store._store.below(plan.name)
        plan = dataclasses.replace(plan, store=below, runtime=store._runtime)
    copy._write = PlannedWrite(where, plan)
    return copy


def unknown_commit(
    topic: str = "t", *, landed: bool, before_put: Callable[[], object] | None = None
) -> Decide:
    """The store never tells whether the commit landed."""
    keys: list[str] = []

    def decide(verb: str, key: str) -> Fault | None:
        if is_commit(topic, verb, key):
            if before_put is not None and not keys:
                before_put()
            keys.append(key)
            return Fault.LOSE_REPLY if landed else Fault.REFUSE
        return Fault.REFUSE if verb == "read" and key in keys else None

    return decide


def unsent_commit(
    topic: str = "t",
    *,
    error: StorageError | None = None,
    before_put: Callable[[], object] | None = None,
) -> Decide:
    """The commit fails before it is sent, or with this error."""

    def decide(verb: str, key: str) -> Fault | None:
        if is_commit(topic, verb, key):
            if before_put is not None:
                before_put()
            raise error or NotSentError("the disk is full")
        return None

    return decide


def crash_after_commit(topic: str = "t") -> Decide:
    """The process dies when the commit has landed."""
    return lambda verb, key: Fault.CRASH_AFTER if is_commit(topic, verb, key) else None


def is_commit(topic: str, verb: str, key: str) -> bool:
    is_commit_file = key.endswith(".json") and ".root." not in key
    return verb == "create" and is_commit_file and key.startswith(f"{topic}/")


def _as_it_is(inner: ObjectStore) -> ObjectStore:
    return inner
