"""A publication that crashes, loses replies, or meets others at any step: the table never lies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from pylogtable import LogTableError, Topic
from pylogtable.engine import plan_append
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import ints, kafka
from tests.depth import sample
from tests.faults.support import NAME, Plan, copy_of, open_topic, store_over
from tests.publish.plain_delta import check_table, shown_version
from tests.stores import Fault, FaultyStore, SimulatedCrash

FAULTS = [
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.LOSE_REPLY,
    Fault.REFUSE,
    Fault.SELF_RETRY,
    Fault.TRUNCATE,
]


@pytest.fixture(scope="module", params=[0, 16384], ids=["in files", "in commits"])
def base(request: pytest.FixtureRequest) -> MemoryStore:
    """A table that is behind: since then there were shifted segments, or records in commits, a
    compaction, a log start inside a segment, and appends between them."""
    inner = MemoryStore()
    config = {"cleanup.policy": "compact,delete", "inline.max.bytes": request.param}
    topic = store_over(inner).create_topic(NAME, 2, config=config)
    append(topic)
    topic.publish()
    race(topic)
    topic.compact(force=True)
    race(topic)
    topic.delete_records({0: topic.end_offsets()[0] - 1})
    append(topic)
    return inner


def append(topic: Topic) -> None:
    topic.append(kafka(list("abcabd"), list("123456"), partition=ints(0, 0, 1, 0, 1, 1)))


def race(topic: Topic) -> None:
    """The segments of the second writer are shifted."""
    staged = [
        plan_append(topic).stage(kafka(list("ab"), list("78"), partition=ints(0, 1))) for _ in "12"
    ]
    for one in staged:
        plan_append(topic).commit([one])


def steps_of_a_publication(base: MemoryStore) -> int:
    plan = Plan(None, None)
    plan.armed = False
    topic = open_topic(FaultyStore(copy_of(base), plan))
    plan.armed = True
    topic.publish(threads=1)
    return len(plan.seen)


def check(inner: ObjectStore) -> None:
    """All entries are right; another publication brings the table up to date; then it has nothing
    to do."""
    topic = open_topic(inner)
    check_table(topic, inner.below(NAME))
    newest = topic.version
    (table,) = topic.publish(threads=1).tables
    assert table.version >= newest
    log = check_table(topic, inner.below(NAME))
    # Commits after the version that the entry names have changed no record.
    assert shown_version(log[-1]) <= table.version
    shown, newest = (topic.read(version=v).read_all() for v in (shown_version(log[-1]), newest))
    assert shown == newest
    assert topic.verify(data=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_publication_that_fails_at_any_step_leaves_a_right_table(
    base: MemoryStore, fault: Fault
) -> None:
    steps = steps_of_a_publication(base)
    assert steps > 20
    for at in sample(range(steps), 24, first=FAULTS.index(fault)):
        inner = copy_of(base)
        plan = Plan(at, fault)
        plan.armed = False
        topic = open_topic(FaultyStore(inner, plan))
        plan.armed = True
        with suppress(SimulatedCrash, LogTableError):
            topic.publish(threads=1)
        check(inner)


@dataclass
class Meeting:
    """Somebody else does something, once, before the operation number `at`."""

    at: int
    happen: Callable[[], None]
    is_armed: bool = False
    seen: int = 0

    def __call__(self, verb: str, key: str) -> None:
        if not self.is_armed:
            return
        self.seen += 1
        if self.seen > self.at:
            self.is_armed = False
            self.happen()


def publish(topic: Topic) -> None:
    topic.publish(threads=1)


def merge(topic: Topic) -> None:
    topic.merge(threads=1)


def compact(topic: Topic) -> None:
    topic.compact(force=True, threads=1)


OTHERS = [publish, append, race, merge, compact]


@pytest.mark.parametrize("other", OTHERS)
def test_publication_that_meets_others_at_any_step_shows_right_versions(
    base: MemoryStore, other: Callable[[Topic], None]
) -> None:
    first = OTHERS.index(other)
    for at in sample(range(steps_of_a_publication(base)), 24, first):
        inner = copy_of(base)
        meeting = Meeting(at, lambda inner=inner: other(open_topic(inner)))
        topic = open_topic(FaultyStore(inner, meeting))
        meeting.is_armed = True
        topic.publish(threads=1)
        assert not meeting.is_armed
        check(inner)
