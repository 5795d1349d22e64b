"""One consumer of several topics: they take turns, come and go, and are committed together."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    StorageError,
    StoreConsumer,
    TopicNotFoundError,
)
from pylogtable.groups.followed_topics import LOOK_EVERY_MS
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, kafka, runtime
from tests.library.groups.test_consumer import fill
from tests.library.groups.test_dynamic_members import LEASE
from tests.library.groups.test_heartbeats import Work
from tests.stores import CountingStore, FarStore, Fault, FaultyStore


@pytest.fixture
def store(store: Store) -> Store:
    for name, counts in (("orders", (5, 5)), ("refunds", (3,)), ("clicks", (7,))):
        fill(store.create_topic(name, partitions=len(counts)), *counts)
    return store


def drain(consumer: StoreConsumer, max_records: int | None = None) -> list[tuple[str, str]]:
    """Topic and value of each record. Each batch has records of one topic."""
    found: list[tuple[str, str]] = []
    while (table := consumer.poll(max_records=max_records)).num_rows:
        assert len(set(table["topic"].to_pylist())) == 1
        found += [(row["topic"], row["value"].decode()) for row in table.to_pylist()]
    return found


def counts(found: list[tuple[str, str]]) -> dict[str, int]:
    assert len(found) == len(set(found))
    return dict(Counter(topic for topic, _ in found))


@pytest.mark.parametrize("max_records", [1, 4, 500])
def test_every_record_of_every_topic_is_polled_once(store: Store, max_records: int) -> None:
    with store.consumer("g", ["orders", "refunds", "orders"], max_records=max_records) as consumer:
        assert consumer.topics() == ["orders", "refunds"]
        assert counts(drain(consumer)) == {"orders": 10, "refunds": 3}
        fill(store.topic("refunds"), 1)
        assert drain(consumer) == [("refunds", "0:3")]
        assert consumer.positions() == {"orders": {0: 5, 1: 5}, "refunds": {0: 4}}


def test_batch_has_the_columns_of_its_topic_and_its_name(store: Store) -> None:
    store.create_topic("sales", schema={"amount": pa.float64()}).append(pa.table({"amount": [2.5]}))
    consumer = store.consumer("g", ["sales", "refunds"])
    schemas = {(t := consumer.poll())["topic"][0].as_py(): t.schema for _ in range(2)}
    assert schemas["sales"].names == ["topic", *store.topic("sales").schema.names]
    assert schemas["refunds"].names == ["topic", *store.topic("refunds").schema.names]
    assert consumer.poll().schema.names == ["topic", "partition", "offset", "timestamp"]
    some = store.consumer("h", ["refunds"], columns=["value"])
    assert some.poll().column_names == ["topic", "value"]


def test_topics_take_turns(store: Store) -> None:
    for name in ("orders", "refunds", "clicks"):
        fill(store.topic(name), 50)
    consumer = store.consumer("g", pattern=".*")
    turns = [consumer.poll(max_records=5)["topic"][0].as_py() for _ in range(12)]
    assert all(len(set(turns[n : n + 3])) == 3 for n in range(0, 12, 3))


def test_commit_commits_all_that_was_polled(store: Store) -> None:
    consumer = store.consumer("g", ["orders", "refunds"])
    drain(consumer)
    everything = {"orders": {0: 5, 1: 5}, "refunds": {0: 3}}
    assert consumer.committed() == {"orders": {}, "refunds": {}}
    assert consumer.commit() == everything
    assert consumer.committed() == everything
    assert consumer.commit() == {}
    assert consumer.commit({"refunds": {0: 1}}, metadata="half") == {"refunds": {0: 1}}
    lags = consumer.lag()
    assert {name: lag.records for name, lag in lags.items()} == {"orders": 0, "refunds": 2}
    assert store.group("g").lag()["refunds"].records == 2
    with pytest.raises(InvalidRequestError, match="does not read topic 'clicks'; it reads orders"):
        consumer.commit({"clicks": {0: 1}})
    with pytest.raises(InvalidRequestError, match="`positions` must be a dict such as"):
        consumer.commit([("refunds", 1)])  # type: ignore[arg-type]


def test_commit_that_one_topic_refuses_commits_the_others(store: Store) -> None:
    one, other = (store.consumer("g", ["orders", "refunds"]) for _ in range(2))
    drain(one)
    drain(other)
    other.commit({"orders": {0: 1}})
    with pytest.raises(CommitConflictError, match="was moved by another"):
        one.commit()
    assert store.topic("refunds").group("g").positions() == {0: 3}
    assert store.topic("orders").group("g").positions() == {0: 1}
    assert counts(drain(one)) == {"orders": 9}


def test_places_are_named_by_topic(store: Store) -> None:
    consumer = store.consumer("g", ["orders", "refunds"])
    assert consumer.assignment() == {"orders": (0, 1), "refunds": (0,)}
    consumer.seek("orders", 1, 4)
    consumer.pause("orders", 0)
    assert consumer.position("orders", 1) == 4
    assert counts(drain(consumer)) == {"orders": 1, "refunds": 3}
    consumer.resume("orders", [0])
    assert counts(drain(consumer)) == {"orders": 5}
    with pytest.raises(InvalidRequestError, match="partition 7 is not assigned"):
        consumer.seek("orders", 7, 0)


def test_records_of_several_topics(store: Store) -> None:
    consumer = store.consumer("g", ["orders", "refunds"], columns=["value"])
    seen = []
    for record in consumer.records():
        seen.append((record.topic, record.partition, record.offset))
        consumer.commit()
        if len(seen) == 4:
            break
    rest = [(r.topic, r.partition, r.offset) for r in store.consumer("g", ["orders"]).records()]
    assert len(seen) == 4
    mine = [place for place in seen + rest if place[0] == "orders"]
    assert sorted(mine) == [("orders", p, n) for p in range(2) for n in range(5)]
    assert len(list(consumer.records())) == 9


def test_async_loops_over_several_topics(store: Store) -> None:
    async def read() -> list[str]:
        consumer = store.consumer("g", ["orders", "refunds"], max_records=2)
        found = [(await consumer.apoll())["topic"][0].as_py()]
        found += [batch["topic"][0].as_py() async for batch in consumer]
        await consumer.acommit()
        return found

    found = asyncio.run(read())
    assert len(found) == 5 + 2
    assert store.topic("orders").group("g").lag().records == 0


class TestPattern:
    def test_whole_names_match(self, store: Store) -> None:
        assert store.consumer("g", pattern="order").topics() == []
        assert store.consumer("g", pattern="orders|re.*").topics() == ["orders", "refunds"]

    def test_topics_that_come_later_are_found_and_read_from_their_start(
        self, store: Store, clock: Clock
    ) -> None:
        consumer = store.consumer("g", pattern="orders.*", auto_offset_reset="latest")
        assert drain(consumer) == []
        fill(store.create_topic("orders2"), 2)
        clock.tick(LOOK_EVERY_MS - 1)
        assert drain(consumer) == []
        clock.tick(1)
        assert counts(drain(consumer)) == {"orders2": 2}
        assert consumer.commit() == {"orders": {0: 5, 1: 5}, "orders2": {0: 2}}

    def test_topics_that_are_deleted_leave(self, store: Store, clock: Clock) -> None:
        told: list[Any] = []
        consumer = store.consumer(
            "g",
            pattern=".*",
            member="a",
            lease_ms=60_000,
            on_lost=lambda _, partitions: told.append(partitions),
        )
        assert counts(drain(consumer)) == {"orders": 10, "refunds": 3, "clicks": 7}
        store.delete_topic("refunds")
        fill(store.topic("clicks"), 1)
        assert counts(drain(consumer)) == {"clicks": 1}
        assert consumer.topics() == ["clicks", "orders"]
        assert told == [{"refunds": (0,)}]
        fill(store.create_topic("refunds", 2), 1, 1)
        clock.tick(LOOK_EVERY_MS)
        assert counts(drain(consumer)) == {"refunds": 2}
        consumer.close()

    def test_topic_that_is_deleted_and_made_again_is_another_one(self, store: Store) -> None:
        consumer = store.consumer("g", pattern=".*")
        drain(consumer)
        store.delete_topic("refunds")
        fill(store.create_topic("refunds"), 1)
        drain(consumer)
        assert consumer.topics() == ["clicks", "orders"]

    def test_damaged_topic_does_not_stop_the_others(
        self, store: Store, clock: Clock, objects: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = "refunds/_manifest/00000000000000000000.json"
        data = objects.read(path)
        assert data is not None
        objects.write(path, b"{")
        for key in [info.key for info in objects.list("refunds/_manifest/")]:
            if key.endswith((".root.json", "_head.json")):
                objects.delete(key)
        consumer = store.consumer("g", pattern=".*")
        assert counts(drain(consumer)) == {"orders": 10, "clicks": 7}
        clock.tick(LOOK_EVERY_MS)
        drain(consumer)
        assert caplog.text.count("topic 'refunds' is left out") == 1
        objects.write(path, data)
        clock.tick(LOOK_EVERY_MS)
        assert counts(drain(consumer)) == {"refunds": 3}

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({}, "either `topics`"),
            ({"topics": ["orders"], "pattern": ".*"}, "either `topics`"),
            ({"topics": []}, "`topics` is empty"),
            ({"topics": "orders"}, r"list of names: \['orders'\]"),
            ({"topics": ["a/b"]}, "topic name"),
            ({"pattern": "("}, "not a regular expression"),
            ({"pattern": 5}, "`pattern` must be a string"),
            ({"pattern": ".*", "lease_ms": 1}, "lease_ms"),
            ({"pattern": ".*", "on_lost": 1}, "on_lost"),
        ],
    )
    def test_what_cannot_be_is_refused(self, store: Store, options: Any, why: str) -> None:
        with pytest.raises(InvalidRequestError, match=why):
            store.consumer("g", **options)


def test_listed_topic_must_exist(store: Store) -> None:
    with pytest.raises(TopicNotFoundError):
        store.consumer("g", ["orders", "missing"])
    consumer = store.consumer("g", ["orders", "refunds"])
    store.delete_topic("orders")
    found = []
    for _ in range(2):
        try:
            found.append(consumer.poll()["topic"][0].as_py())
        except TopicNotFoundError:  # noqa: PERF203 (each poll may fail)
            found.append("gone")
    assert sorted(found) == ["gone", "refunds"]  # the others go on


@pytest.mark.parametrize("member", [None, "a"])
def test_topic_that_fails_does_not_hold_up_the_others(
    store: Store, objects: MemoryStore, clock: Clock, member: str | None
) -> None:
    def decide(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if is_down and "orders/" in key else None

    is_down = False
    impatient = replace(runtime(clock), patience_seconds=0)
    faulty = Store(FaultyStore(objects, decide), impatient)
    consumer = faulty.consumer("g", ["orders", "refunds", "clicks"], member=member)
    is_down = True
    found: list[str] = []
    for _ in range(6):
        try:
            found += consumer.poll()["topic"].to_pylist()[:1]
        except (StorageError, CommitUnknownError):  # noqa: PERF203 (each poll may fail)
            found.append("down")
    assert set(found) == {"down", "refunds", "clicks"}
    is_down = False
    assert counts(drain(consumer)) == {"orders": 10}


class TestMembers:
    def test_members_share_the_partitions_of_each_topic(self, store: Store, clock: Clock) -> None:
        told: list[tuple[str, Any]] = []

        def revoke(consumer: StoreConsumer, partitions: dict[str, tuple[int, ...]]) -> None:
            told.append(("revoke", partitions))
            told.append(("committed", consumer.commit()))
            assert consumer.positions()["orders"][0] == 5

        one = store.consumer(
            "g",
            ["orders", "refunds"],
            member="a",
            on_assign=lambda consumer, partitions: told.append(("assign", partitions)),
            on_revoke=revoke,
        )
        drain(one)
        assert told == [("assign", {"orders": (0, 1)}), ("assign", {"refunds": (0,)})]
        told.clear()
        other = store.consumer("g", ["orders", "refunds"], member="b")
        assert other.assignment() == {"orders": (), "refunds": ()}
        clock.tick(LEASE // 10)
        one.poll()
        everything = {"orders": {0: 5, 1: 5}, "refunds": {0: 3}}
        assert told == [("revoke", {"orders": (1,)}), ("committed", everything)]
        assert one.members.keys() == {"orders", "refunds"}
        told.clear()
        one.close()
        words = [("revoke", {"orders": (0,)}), ("revoke", {"refunds": (0,)}), ("committed", {})]
        assert all(word in told for word in words)
        assert drain(other) == []
        clock.tick(LEASE // 10)
        other.poll()
        assert other.assignment() == {"orders": (0, 1), "refunds": (0,)}

    def test_one_thread_beats_for_all_topics(
        self, store: Store, clock: Clock, objects: MemoryStore
    ) -> None:
        work = Work(clock, objects)
        consumer = work.store.consumer("g", ["orders", "refunds", "clicks"], member="a")
        drain(consumer)
        assert len(work.threads) == 1
        heart = consumer._consumers["orders"]._member._heart  # type: ignore[attr-defined]
        for _ in range(60):
            clock.tick(1_000)
            heart.beat()
        assert consumer.commit().keys() == {"orders", "refunds", "clicks"}
        consumer.close()
        assert heart.beat() is None

    @pytest.mark.parametrize("options", [{}, {"on_assign": lambda consumer, partitions: None}])
    def test_consumer_that_was_dropped_beats_no_more(
        self, store: Store, clock: Clock, objects: MemoryStore, options: Any
    ) -> None:
        work = Work(clock, objects)
        consumer = work.store.consumer("g", ["orders", "refunds"], member="a", **options)
        drain(consumer)
        gc.disable()
        try:
            heart = consumer._consumers["orders"]._member._heart  # type: ignore[attr-defined]
            del consumer
            assert heart.beat() is None
        finally:
            gc.enable()


def test_requests_of_topics_far_away_are_sent_side_by_side(clock: Clock) -> None:
    """A poll of idle topics asks each for its next version and its group, and nothing else. Topics
    that were found idle are not asked again at once while others have records."""
    counting = CountingStore(FarStore(lambda: clock.now_ms))
    work = Work(clock, counting)
    names = [f"t{n}" for n in range(12)]
    for name in names:
        work.store.create_topic(name).append(kafka(["k"] * 4))
    consumer = work.store.consumer("g", names, member="a")
    assert len(drain(consumer)) == 48
    consumer.commit()
    counting.reset()
    assert consumer.poll().num_rows == 0
    assert counting.counts == {"read": 12}
    counting.reset()
    clock.tick(LEASE // 10)
    assert consumer.poll().num_rows == 0
    groups = sum(n for (verb, key), n in counting.by_key.items() if "_groups/" in key)
    assert groups <= 2 * 12
    work.store.topic("t3").append(kafka(["k"] * 100))
    clock.tick(1_000)
    assert consumer.poll(max_records=1).num_rows == 1
    counting.reset()
    assert [consumer.poll(max_records=1).num_rows for _ in range(50)] == [1] * 50
    assert sum(counting.counts.values()) == 0


@pytest.mark.parametrize("is_far", [False, True])
def test_poll_is_empty_only_if_no_topic_has_records(clock: Clock, is_far: bool) -> None:
    """Also right after a poll that has looked at all topics, and returned the records of one."""
    work = Work(clock, FarStore(lambda: clock.now_ms) if is_far else MemoryStore())
    names = ["a", "b", "c"]
    topics = [work.store.create_topic(name) for name in names]
    consumer = work.store.consumer("g", names, member="m")
    for n in range(30):
        topics[n % 3].append(kafka(["k"]))
        if n % 2:
            topics[n % 4 % 3].append(kafka(["k"]))
            assert consumer.poll(max_records=1).num_rows == 1
        assert consumer.poll(max_records=1).num_rows == 1
        if n % 5 == 0:
            assert consumer.poll().num_rows == 0


def test_record_that_came_after_the_look_of_the_last_poll_is_found(clock: Clock) -> None:
    work = Work(clock, FarStore(lambda: clock.now_ms))
    names = ["a", "b", "c"]
    for name in names:
        work.store.create_topic(name)
    consumer = work.store.consumer("g", names)
    assert consumer.poll().num_rows == 0
    for _ in range(3):
        clock.tick(1_000)
        first, second, _ = consumer._consumers
        work.store.topic(first).append(kafka(["k"]))
        assert consumer.poll().num_rows == 1  # has looked at the others as well
        work.store.topic(second).append(kafka(["k"]))
        assert consumer.poll().num_rows == 1


def test_a_busy_topic_does_not_hide_the_others(clock: Clock, objects: MemoryStore) -> None:
    work = Work(clock, objects)
    for name in ("busy", "quiet"):
        work.store.create_topic(name)
    work.store.topic("busy").append(kafka(["k"] * 100))
    consumer = work.store.consumer("g", ["busy", "quiet"])
    consumer.poll(max_records=1)
    work.store.topic("quiet").append(kafka(["k"]))
    clock.tick(100)
    turns = [consumer.poll(max_records=1)["topic"][0].as_py() for _ in range(3)]
    assert turns.count("quiet") == 1


def test_closed_consumer_says_so(store: Store) -> None:
    consumer = store.consumer("g", ["orders"], member="a")
    drain(consumer)
    consumer.close(commit=True)
    consumer.close()
    assert store.topic("orders").group("g").positions() == {0: 5, 1: 5}
    for method in (consumer.poll, consumer.commit, consumer.positions, consumer.records):
        with pytest.raises(InvalidRequestError, match="is closed"):
            method()
    assert repr(consumer) == "<StoreConsumer of ['orders'] in group 'g', closed>"
