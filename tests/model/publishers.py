"""Publishers for the checker and what runs beside them: the real jobs of a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pylogtable.append.stager import Staged
from pylogtable.engine import plan_append
from pylogtable.errors import LogTableError
from pylogtable.format.json_codec import encode
from pylogtable.format.model import Hint
from pylogtable.format.paths import HINT_PATH, commit_path
from pylogtable.log.topic_log import seal
from pylogtable.storage.base import ObjectStore
from pylogtable.topic import Topic
from pylogtable.topics.column_types import make_fields
from pylogtable.topics.plan import new_topic_info, plan_create
from tests.builders import IN_FILES
from tests.model.checker import DAY_MS, Program, Told, Writer
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import LocalTime

#: When everything happens that is explored. What is there from the start is older than any window.
NOW_MS = 20 * DAY_MS

Work = Callable[[Topic], Any]


def open_topic(store: ObjectStore, ids: str, now_ms: int = NOW_MS) -> Topic:
    time = LocalTime()
    time.now_ms = now_ms
    return Topic("t", store, time.runtime(ids, 100.0))


def job(name: str, *works: Work) -> Program:
    """Opens the topic, does some work and tells what came of it."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        try:
            topic = open_topic(store, name)
            told.extend((name, work(topic)) for work in works)
        except LogTableError as error:
            told.append((name, ("failed", f"{type(error).__name__}: {error}")))

    return program


def publish(topic: Topic) -> tuple[str, int]:
    (table,) = topic.publish(["delta"], threads=1).tables
    return "published", table.version


def unpublish(topic: Topic) -> tuple[str]:
    topic.unpublish(["delta"])
    return ("unpublished",)


def merge(topic: Topic) -> tuple[str]:
    topic.merge(threads=1)
    return ("merged",)


def compact(topic: Topic) -> tuple[str]:
    topic.compact(force=True, threads=1)
    return ("compacted",)


def vacuum(topic: Topic) -> tuple[str]:
    topic.vacuum(dry_run=False)
    return ("vacuumed",)


def delete_records(topic: Topic) -> tuple[str]:
    topic.delete_records({0: 1})
    return ("deleted",)


def committing(staged: Staged) -> Work:
    def commit(topic: Topic) -> tuple[str]:
        plan_append(topic, refresh=False).commit([staged], keep_files=True)
        return ("appended",)

    return commit


def publisher(name: str = "publisher") -> Writer:
    """After a crash another one takes its place."""
    again = Writer(f"{name}again", job(f"{name}again", publish))
    return Writer(name, job(name, publish), recovery=again)


class Beginning:
    """A topic on a store of objects, and a time that moves on by hand."""

    def __init__(self, *, in_files: bool = True) -> None:
        fields = make_fields({"k": pa.string(), "n": pa.int64()})
        config = {"cleanup.policy": "compact,delete", "retention.ms": -1}
        config |= IN_FILES if in_files else {}
        info = new_topic_info(fields, ["k"], 1, config, 0)
        created = seal(plan_create(None, info, "here", {}), None, "created", "topic", 0)
        hint = encode(Hint(root_version=None))
        self.store = ObjectsStore({commit_path(0): encode(created), HINT_PATH: hint})
        self.topic = open_topic(self.store, "start", 1)
        self._written = 0

    @property
    def objects(self) -> Objects:
        return dict(self.store.objects)

    def stage(self, keys: Sequence[str]) -> Staged:
        """The files of an append of records with these keys."""
        numbers = range(self._written, self._written + len(keys))
        self._written += len(keys)
        staged = plan_append(self.topic).stage(pa.table({"k": list(keys), "n": [*numbers]}))
        return replace(staged, staged_at_ms=NOW_MS)

    def append(self, keys: str) -> None:
        plan_append(self.topic, refresh=False).commit([self.stage(keys)], keep_files=True)

    def race(self, keys: str) -> None:
        """Two appends that were staged at the same end: the files of the second are shifted."""
        for staged in [self.stage(keys), self.stage(keys)]:
            plan_append(self.topic, refresh=False).commit([staged], keep_files=True)
