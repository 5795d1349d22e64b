"""Dead letters that decode later, on librdkafka's mock of a cluster and a small registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pylogtable import InvalidRequestError, TopicNotFoundError
from pylogtable.kafka import redrive
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import kafka, rows
from tests.depth import sample
from tests.faults.support import FakeTime, Plan, copy_of
from tests.kafka.mock import MockCluster, mock_cluster
from tests.library.kafka.registry import RegistryServer, registry_server
from tests.library.kafka.test_typed_import import V1, Feed, encoded, record
from tests.stores import Fault, FaultyStore, SimulatedCrash

LATER = record(("id", "long"), ("later", "string"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


@pytest.fixture
def feed(cluster: MockCluster, registry: RegistryServer, store: Store) -> Feed:
    """Two records, two whose schema nobody has registered yet, and one that is damaged."""
    made = Feed(cluster, registry, store)
    first = made.schema(V1)
    for offset, partition in ((1, 0), (2, 3)):
        value = encoded(first + 1, LATER, {"id": offset, "later": "x"})
        made.send(V1, {"id": 10 * offset, "amount": None}, partition=partition, key=b"k")
        made.raw(value, partition, b"k")
    made.raw(b"damaged", 0, b"k")
    return made


def again(feed: Feed, **more: Any) -> Any:
    return redrive(feed.store, feed.topic, schema_registry=feed.registry.url, **more)


def still_dead(feed: Feed) -> list[Any]:
    latest = feed.letters.latest()
    return rows(latest.filter(latest["part"].is_valid()), "kafka_partition", "kafka_offset")


def test_what_decodes_now_goes_to_a_topic_beside_the_copy(feed: Feed) -> None:
    assert feed.imported().dead_letters == 3
    assert again(feed, dry_run=True).redriven == 0
    assert feed.store.topics() == [feed.topic, f"{feed.topic}-dead-letters"]
    feed.schema(LATER)
    tried = again(feed, dry_run=True)
    assert (tried.redriven, tried.dead, tried.dry_run) == (2, 1, True)
    assert f"{feed.topic}-redriven" not in feed.store.topics()
    report = again(feed)
    assert (report.topic, report.redriven, report.dead) == (f"{feed.topic}-redriven", 2, 1)
    assert list(report.reasons.values()) == [1]
    target = feed.store.topic(report.topic)
    names = ("partition", "key", "id", "later", "kafka_partition", "kafka_offset")
    assert rows(target.read(), *names) == [(0, b"k", 1, "x", 0, 1), (3, b"k", 2, "x", 3, 1)]
    times = {str(one) for one in target.read().read_all()["timestamp"].to_pylist()}
    assert times == {"2023-11-14 22:13:20.123000+00:00"}
    assert still_dead(feed) == [(0, 2)]
    assert again(feed).redriven == 0
    assert target.count() == 2
    assert feed.imported().records == 0
    assert feed.copy.count() == 2


def test_value_that_does_not_fit_stays_dead(feed: Feed) -> None:
    feed.imported()
    feed.registry.register(f"{feed.topic}-value", record(("id", "string")))
    other = encoded(feed.schema(record(("id", "string"))), record(("id", "string")), {"id": "x"})
    feed.raw(other, 0, b"k")
    feed.imported()
    report = again(feed)
    assert any("cannot be widened" in reason for reason in report.reasons)
    assert (0, 3) in still_dead(feed)


def test_dead_letters_go_to_the_topic_itself_once_it_is_no_copy(feed: Feed) -> None:
    feed.imported()
    feed.schema(LATER)
    feed.copy.promote()
    report = again(feed)
    assert (report.topic, report.redriven, report.dead) == (feed.topic, 2, 1)
    assert rows(feed.copy.read(), "partition", "offset", "id", "later") == [
        (0, 0, 10, None),
        (0, 1, 1, "x"),
        (3, 0, 20, None),
        (3, 1, 2, "x"),
    ]
    assert again(feed).redriven == 0


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY])
def test_redrive_that_fails_at_any_step(feed: Feed, fault: Fault) -> None:
    """Each record comes once, and leaves the dead letters."""
    feed.imported()
    feed.schema(LATER)
    begun = copy_of(feed.store._store)

    def run(inner: MemoryStore, plan: Plan) -> Any:
        store = Store(FaultyStore(inner, plan), FakeTime(60).runtime())
        return redrive(store, feed.topic, schema_registry=feed.registry.url)

    plan = Plan(None, None)
    run(copy_of(begun), plan)
    for at in sample(range(len(plan.seen)), 5):
        inner = copy_of(begun)
        with suppress(SimulatedCrash, Exception):
            run(inner, Plan(at, fault))
        run(inner, Plan(None, None))
        after = Feed.__new__(Feed)
        after.store, after.topic = Store(inner, FakeTime(120).runtime()), feed.topic
        target = after.store.topic(f"{feed.topic}-redriven")
        assert rows(target.read(), "id") == [1, 2], (fault, at)
        assert still_dead(after) == [(0, 2)], (fault, at)


def test_topic_without_dead_letters(store: Store) -> None:
    store.create_topic("t").append(kafka("x"))
    with pytest.raises(TopicNotFoundError, match="has no dead letters"):
        redrive(store, "t", schema_registry="http://127.0.0.1:1")
    with pytest.raises(TopicNotFoundError, match="there are no dead letters of 'nope'"):
        redrive(store, "nope", schema_registry="http://127.0.0.1:1")
    with pytest.raises(InvalidRequestError, match="`store` must be a store"):
        redrive("t", "t")  # type: ignore[arg-type]


def test_schemas_that_clash_in_one_redrive(feed: Feed) -> None:
    """Names that differ only in case get columns of their own, and what no column can hold stays
    dead."""
    first = feed.schema(V1)
    inner = record(("x", "int"), ("X", "int"), name="Inner")
    late = [LATER, record(("LATER", "string")), record(("c", inner))]
    for number, value in ((2, {"LATER": "y"}), (3, {"c": {"x": 1, "X": 2}})):
        feed.raw(encoded(first + number, late[number - 1], value), 0, b"k")
    feed.imported()
    for schema in late:
        feed.schema(schema)
    report = again(feed)
    assert (report.redriven, report.dead) == (3, 2)
    assert any("'x' and 'X' differ only in case" in reason for reason in report.reasons)
    target = feed.store.topic(report.topic)
    found = rows(target.read(), "later", "value_LATER")
    assert sorted(found, key=str) == [("x", None), ("x", None), (None, "y")]


def test_other_format(feed: Feed) -> None:
    """Values of another format than the rest."""
    feed.raw(b'{"id": 7, "more": "y"}', 0, b"k")
    feed.imported()
    report = redrive(feed.store, feed.topic, value_format="json")
    assert report.redriven == 1
    target = feed.store.topic(report.topic)
    assert rows(target.read(), "id", "more", "kafka_offset") == [(7, "y", 3)]
    with pytest.raises(InvalidRequestError, match="one of avro"):
        again(feed, value_format="xml")
