"""Records one by one: a commit inside of the loop commits what was handed out, and no more."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import Consumer, ConsumerRecord, Topic
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import T0, Clock, ints, kafka, times
from tests.library.groups.test_consumer import drain, fill
from tests.library.groups.test_dynamic_members import LEASE
from tests.library.groups.test_heartbeats import Work

THEN = datetime.fromtimestamp(T0 / 1000, timezone.utc)


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=2)
    fill(topic, 5, 5)
    return topic


def places(records: Any) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def everything(topic: Topic) -> list[tuple[int, int]]:
    return [(p, n) for p, end in topic.end_offsets().items() for n in range(end)]


def test_records_have_kafkas_fields(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    headers = [[], [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None]
    topic.append(
        kafka(
            ["k", None, "l"],
            ["x", "y", None],
            headers=pa.array(headers, topic.schema.field("headers").type),
            timestamp=times(1, 2, 3),
            partition=ints(0, 0, 1),
        )
    )
    with topic.consumer("g") as consumer:
        found = sorted(consumer.records(), key=lambda record: record.timestamp)
    stamps = [record.timestamp for record in found]
    assert stamps == [t.as_py() for t in times(1, 2, 3)]
    assert [record._replace(timestamp=THEN) for record in found] == [
        ConsumerRecord("t", 0, 0, THEN, b"k", b"x", ()),
        ConsumerRecord("t", 0, 1, THEN, None, b"y", (("a", b"1"), ("a", None))),
        ConsumerRecord("t", 1, 0, THEN, b"l", None, ()),
    ]


@pytest.mark.parametrize("columns", [None, ["amount"]])
def test_records_of_a_topic_with_columns_have_them_as_their_value(
    store: Store, columns: list[str] | None
) -> None:
    schema = {"id": pa.int64(), "region": pa.string(), "amount": pa.float64()}
    topic = store.create_topic("t", schema=schema, key=["id", "region"])
    topic.append(pa.table({"id": [4], "region": ["eu"], "amount": [2.5]}))
    consumer = topic.consumer("g", columns=columns)
    consumer.poll(max_records=1)
    consumer.seek(0, 0)
    (record,) = consumer.records()
    assert (record.topic, record.partition, record.offset) == ("t", 0, 0)
    assert record.key == (4, "eu")
    assert record.value == {"amount": 2.5}
    consumer.seek(0, 0)
    assert consumer.poll().column_names == (columns or topic.schema.names)


def test_key_of_one_column_is_its_value_and_without_a_key_there_is_none(store: Store) -> None:
    for name, key, expected, value in (("one", "id", 4, {}), ("none", (), None, {"id": 4})):
        topic = store.create_topic(name, schema={"id": pa.int64()}, key=key)
        topic.append(pa.table({"id": [4]}))
        (record,) = topic.consumer("g").records()
        assert (record.key, record.value, record.headers) == (expected, value, ())


def test_value_of_a_tombstone_is_none(store: Store) -> None:
    schema = {"id": pa.int64(), "amount": pa.float64(), "note": pa.string()}
    topic = store.create_topic("t", schema=schema, key="id")
    table = {
        "id": [1, 2, 3, None],
        "amount": [2.5, None, None, None],
        "note": [None, "", None, None],
    }
    topic.append(pa.table({**table, "partition": [0] * 4}))
    found = [(record.key, record.value) for record in topic.consumer("g").records()]
    assert found == [
        (1, {"amount": 2.5, "note": None}),
        (2, {"amount": None, "note": ""}),
        (3, None),
        (None, {"amount": None, "note": None}),  # without a key it is none [REC-3]
    ]
    some = [record.value for record in topic.consumer("some", columns=["amount"]).records()]
    assert some == [{"amount": 2.5}, {"amount": None}, {"amount": None}, {"amount": None}]
    unkeyed = store.create_topic("u", schema=schema)
    unkeyed.append(pa.table({"id": pa.array([None], pa.int64())}))
    (record,) = unkeyed.consumer("g").records()
    assert record.value == {"id": None, "amount": None, "note": None}


def test_commit_inside_of_the_loop_commits_what_was_handed_out(topic: Topic) -> None:
    consumer = topic.consumer("g", max_records=4)
    seen: list[tuple[int, int]] = []
    for record in consumer.records():
        seen.append((record.partition, record.offset))
        committed = consumer.commit()
        assert committed[record.partition] == record.offset + 1
        wanted = {p: max([n + 1 for q, n in seen if q == p], default=0) for p in range(2)}
        assert consumer.positions() == wanted
        assert topic.group("g").positions() == wanted
    assert sorted(seen) == everything(topic)


@pytest.mark.parametrize("count", range(11))
def test_records_that_were_not_handed_out_come_again(topic: Topic, count: int) -> None:
    consumer = topic.consumer("g", max_records=4)
    first = places(islice(consumer.records(), count))
    consumer.commit()
    rest = places(topic.consumer("g").records())
    assert sorted(first + rest) == everything(topic)
    # The same consumer goes on as well, in whatever way.
    polled = consumer.poll(max_records=2)
    more = list(zip(polled["partition"].to_pylist(), polled["offset"].to_pylist(), strict=True))
    assert sorted(first + more + places(consumer.records())) == everything(topic)


def test_close_commits_what_was_handed_out(topic: Topic) -> None:
    consumer = topic.consumer("g")
    first = places(islice(consumer.records(), 3))
    consumer.close(commit=True)
    assert sorted(first + places(topic.consumer("g").records())) == everything(topic)


def test_loop_follows_seek_pause_and_poll(topic: Topic) -> None:
    consumer = topic.consumer("g")
    records = iter(consumer.records())
    assert places(islice(records, 2)) == [(0, 0), (0, 1)]
    consumer.seek(0, 4)
    consumer.pause(1)
    assert places(records) == [(0, 4)]
    consumer.resume(1)
    records = iter(consumer.records())
    assert places(islice(records, 2)) == [(1, 0), (1, 1)]
    assert consumer.poll(max_records=1)["offset"].to_pylist() == [2]
    assert places(records) == [(1, 3), (1, 4)]


def test_loop_ends_with_its_consumer(topic: Topic) -> None:
    consumer = topic.consumer("g", follow=True)
    seen = []
    for record in consumer.records():
        seen.append(record)
        consumer.close()
    assert len(seen) == 1


def test_follower_waits_for_more_records(topic: Topic) -> None:
    consumer = topic.consumer("g", follow=True)
    records = iter(consumer.records())
    assert len(list(islice(records, 10))) == 10
    topic.append(kafka(["late"], partition=ints(1)))
    assert next(records).key == b"late"


def test_partitions_change_hands_between_two_records(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    """A batch is not finished first: work on a record may take long."""
    topic = Work(clock, objects).topic()
    told: list[tuple[str, Any]] = []

    def revoke(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        told.append((str(partitions), consumer.commit()))

    consumer = topic.consumer("g", "a", on_revoke=revoke)
    other = topic.consumer("g", "b")
    records = iter(consumer.records())
    first = places(islice(records, 2))
    other.assignment()
    clock.tick(LEASE // 10)
    first += places(records)
    assert told == [("(1,)", {0: 2, 1: 0})]
    assert first == [(0, n) for n in range(5)]
    clock.tick(LEASE // 10)
    assert len(drain(other)) == 5
