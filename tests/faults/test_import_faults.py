"""An import from Kafka that crashes at any operation on the store, or loses replies, or is refused.

What has records is a guarded copy: there is no moment at which somebody else could append. Another
import gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.kafka import import_topic, import_topics
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import kafka, rows
from tests.depth import sample
from tests.faults.support import FakeTime, Plan, copy_of
from tests.kafka.mock import PARTITIONS, MockCluster, mock_cluster
from tests.library.kafka.test_import import made_by_an_earlier_release
from tests.stores import Fault, FaultyStore, SimulatedCrash

FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.REFUSE, Fault.LATE]
TOPIC, OTHER = "orders", "clicks"
VALUES = [b"a", b"b", b"c"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        for topic in (TOPIC, OTHER):
            started.produce(topic, 0, VALUES[:2])
            started.produce(topic, 3, VALUES[2:])
        yield started


def opened(objects: ObjectStore) -> Store:
    return Store(objects, FakeTime().runtime())


def nothing(cluster: MockCluster, store: Store) -> None:
    """The import creates the topic."""


def empty(cluster: MockCluster, store: Store) -> None:
    """The import takes over a topic with fewer partitions, and no guard."""
    store.create_topic(TOPIC, PARTITIONS - 2)


def older(cluster: MockCluster, store: Store) -> None:
    """The import guards a copy that it was asked to guard."""
    made_by_an_earlier_release(store, cluster, TOPIC)


def imported(objects: ObjectStore, cluster: MockCluster, topics: list[str]) -> None:
    how: dict[str, Any] = {"copy_settings": False, "guard": True}
    if topics == [TOPIC]:
        import_topic(opened(objects), TOPIC, bootstrap_servers=cluster.servers, **how)
        return
    done = import_topics(opened(objects), topics=topics, bootstrap_servers=cluster.servers, **how)
    for error in done.errors.values():
        raise error


def check_guarded(objects: ObjectStore, *, has_guard: bool) -> None:
    """Whatever has records is sound, and nobody else appends to it."""
    store = opened(objects)
    for name in store.topics():
        topic = store.topic(name)
        assert topic.verify(data=True)
        if has_guard and topic.count():
            with pytest.raises(InvalidRequestError, match="append is refused"):
                topic.append(kafka("x"))


def check_whole(objects: ObjectStore, topics: list[str]) -> None:
    for name in topics:
        topic = opened(objects).topic(name)
        assert rows(topic.read(), "partition", "offset", "value") == [
            (0, 0, b"a"),
            (0, 1, b"b"),
            (3, 0, b"c"),
        ]
        assert topic.describe().copy_of is not None
        assert topic.verify(data=True)


# The thread of a topic ends with the process, which is gone.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize(
    ("start", "topics", "every"),
    [
        (nothing, [TOPIC], 11),
        (empty, [TOPIC], 11),
        (older, [TOPIC], 11),
        (nothing, [TOPIC, OTHER], 29),
    ],
)
def test_import_that_fails_at_any_step(
    cluster: MockCluster,
    start: Callable[[MockCluster, Store], None],
    topics: list[str],
    every: int,
    fault: Fault,
) -> None:
    base = MemoryStore()
    start(cluster, opened(base))
    clean = Plan(None, None)
    imported(FaultyStore(copy_of(base), clean), cluster, topics)
    assert {verb for verb, _ in clean.seen} >= {"read", "create"}
    met = 0
    for at in sample(range(len(clean.seen)), every, first=FAULTS.index(fault)):
        objects = copy_of(base)
        plan = Plan(at, fault)
        store = FaultyStore(objects, plan, late_after=4)
        with suppress(SimulatedCrash, LogTableError):
            imported(store, cluster, topics)
        met += plan.hit
        store.land()
        check_guarded(objects, has_guard=start is not older)
        imported(objects, cluster, topics)
        check_whole(objects, topics)
    assert met > 1
