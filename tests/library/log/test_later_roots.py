"""Roots of a producer are written beside its commits, and are there when it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from pylogtable import Store, Topic
from pylogtable.format.paths import root_path
from pylogtable.log.later_roots import LaterRoots
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import kafka, runtime
from tests.stores import Fault, FaultyStore

EVERY = MemoryStore().limits.root_interval
Work = Callable[[], None]


def topic_in(objects: ObjectStore, later: Callable[[Work], None]) -> Topic:
    store = Store(objects, replace(runtime(), later=later))
    return store.topic("t") if store.topics() else store.create_topic("t")


def roots(works: list[Work]) -> list[Work]:
    """Those of the works that write roots: appends also look after each other's offers."""
    return [work for work in works if work.__module__ == LaterRoots.__module__]


def has_root(objects: MemoryStore, version: int) -> bool:
    return objects.below("t").read(root_path(version)) is not None


def test_no_acknowledgment_waits_for_a_root() -> None:
    objects, works = MemoryStore(), list[Work]()
    topic = topic_in(objects, works.append)
    producer = topic.producer(linger_ms=0)
    for number in range(EVERY + 3):
        assert producer.send(value=str(number)).result().offset == number
    assert topic.version == EVERY + 3
    assert not has_root(objects, EVERY)
    (work,) = roots(works)  # and no other is begun while it is under way
    work()
    assert has_root(objects, EVERY)
    assert topic._log.known.root_version is None
    producer.send(value="next").result()
    assert topic._log.known.root_version == EVERY
    producer.close()
    assert topic.verify(data=True)
    assert topic.count() == EVERY + 4


def test_every_root_is_written_by_a_fast_producer() -> None:
    """Commits that are planned before a root is there do not bring back the state without it."""
    objects = MemoryStore()
    topic = topic_in(objects, lambda work: work())
    with topic.producer(linger_ms=0) as producer:
        for number in range(5 * EVERY + 1):
            producer.send(value=str(number)).result()
    assert [has_root(objects, n * EVERY) for n in range(1, 6)] == [True] * 5
    assert topic._log.known.root_version == 5 * EVERY


def test_close_waits_for_the_root() -> None:
    """A process that ends would not finish it."""
    objects, may_write = MemoryStore(), threading.Event()

    def later(work: Work) -> None:
        def run() -> None:
            may_write.wait(60)
            work()

        threading.Thread(target=run).start()

    producer = topic_in(objects, later).producer(linger_ms=0)
    for number in range(EVERY):
        producer.send(value=str(number)).result()
    threading.Timer(0.05, may_write.set).start()
    producer.close()
    assert has_root(objects, EVERY)


def test_appends_without_a_producer_write_their_roots_at_once() -> None:
    objects, works = MemoryStore(), list[Work]()
    topic = topic_in(objects, works.append)
    topic.producer().close()
    for number in range(EVERY):
        topic.append(kafka([str(number)]))
    assert has_root(objects, EVERY)
    assert roots(works) == []


def test_root_that_cannot_be_written_is_tried_again() -> None:
    objects = MemoryStore()
    failing = FaultyStore(
        objects, lambda verb, key: Fault.REFUSE if f"{EVERY}.root" in key else None
    )
    with topic_in(failing, lambda work: work()).producer(linger_ms=0) as producer:
        for number in range(2 * EVERY):
            producer.send(value=str(number)).result()
    assert not has_root(objects, EVERY)
    assert any(has_root(objects, version) for version in range(EVERY + 1, 2 * EVERY + 1))
