"""Records sent one by one: where they go, when they are there, what a bad one does."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import (
    CommitConflictError,
    InvalidRequestError,
    Producer,
    RecordFuture,
    SchemaMismatchError,
    StorageError,
    Topic,
    TopicNotFoundError,
)
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, at, data_files, kafka, make_store, rows
from tests.faults.support import Plan, faulty, new_topic, numbers_of, open_topic
from tests.stores import Fault

FOREVER_MS = 3_600_000


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", partitions=3)


@pytest.fixture
def producer(topic: Topic) -> Iterator[Producer]:
    """It commits when it is told to."""
    with topic.producer(linger_ms=FOREVER_MS) as made:
        yield made


def found(topic: Topic) -> dict[tuple[int, int], Any]:
    """(partition, offset) -> (key, value) of all there is."""
    read = rows(topic.read(), "partition", "offset", "key", "value")
    return {(partition, offset): (key, value) for partition, offset, key, value in read}


def test_every_future_returns_the_place_of_its_record(topic: Topic, producer: Producer) -> None:
    topic.append(kafka(["a", "b", "c", "d"]))
    sent = {}
    for number in range(5000):
        key = None if number % 7 == 0 else f"k{number % 40}".encode()
        partition = number % 3 if number % 11 == 0 else None
        future = producer.send(key=key, value=b"%d" % number, partition=partition)
        sent[future] = (key, b"%d" % number, partition)
        if number % 1700 == 0:
            producer.flush()
    producer.flush()
    there = found(topic)
    places = set()
    for future, (key, value, partition) in sent.items():
        meta = future.result()
        assert there[meta.partition, meta.offset] == (key, value)
        assert partition is None or meta.partition == partition
        places.add((meta.partition, meta.offset))
    assert len(places) == 5000 == len(there) - 4


def test_keyed_records_are_placed_by_their_hash(topic: Topic, producer: Producer) -> None:
    """So that the newest record of a key is looked for in one partition only [SEG-7]."""
    for number in range(50):
        producer.send(key=f"k{number}" if number % 5 else None, value="v")
    producer.flush()
    assert set(topic.segments()["hashed_over"].to_pylist()) == {3}


def test_order_is_kept_inside_a_key(topic: Topic, producer: Producer) -> None:
    for number in range(300):
        producer.send(key=f"k{number % 4}", value=str(number))
        if number % 90 == 0:
            producer.flush()
    producer.flush()
    for key in (b"k0", b"k1", b"k2", b"k3"):
        mine = [int(v) for k, v in rows(topic.read(), "key", "value") if k == key]
        assert mine == sorted(mine)
        assert len(mine) == 75


def test_one_batch_is_one_commit(topic: Topic, producer: Producer) -> None:
    for number in range(1000):
        producer.send(key=str(number))
    assert topic.version == 0
    producer.flush()
    assert topic.version == 1
    producer.flush()
    assert topic.version == 1


def test_batch_is_sent_after_the_linger_time(topic: Topic) -> None:
    with topic.producer(linger_ms=1) as producer:
        assert producer.send(key="k", value="v").result(timeout=60).offset == 0
        assert producer.send(key="k", value="v").result(timeout=60).offset == 1


def test_full_batch_is_sent_at_once_and_two_full_batches_block_senders(topic: Topic) -> None:
    with topic.producer(linger_ms=FOREVER_MS, batch_bytes=10_000) as producer:
        futures = [producer.send(key="k", value=b"v" * 900) for _ in range(95)]
        assert futures[9].result(timeout=60).offset == 9
        waiting = sum(not future.done() for future in futures)
        assert waiting <= 21  # two batches of ten, and one record on top
        producer.flush()
        assert [future.result().offset for future in futures] == list(range(95))
    assert topic.version >= 9


def test_many_threads_can_send(topic: Topic) -> None:
    sent: list[tuple[Any, bytes]] = []
    with topic.producer(linger_ms=1, batch_bytes=50_000) as producer:

        def work(me: int) -> None:
            mine = [
                (producer.send(key=b"%d" % me, value=b"%d-%d" % (me, n)), n) for n in range(2000)
            ]
            sent.extend((future, b"%d-%d" % (me, n)) for future, n in mine)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    there = found(topic)
    assert len(there) == len(sent) == 8000
    for future, value in sent:
        meta = future.result()
        assert there[meta.partition, meta.offset][1] == value
    for me in range(4):
        mine = [v for k, v in rows(topic.read(), "key", "value") if k == b"%d" % me]
        assert mine == [b"%d-%d" % (me, n) for n in range(2000)]


def test_future_works_like_a_standard_future(producer: Producer) -> None:
    future = producer.send(key="k", value="v")
    seen: list[Any] = []
    future.add_done_callback(seen.append)
    assert not future.done()
    assert "waiting" in repr(future)
    with pytest.raises(FutureTimeoutError):
        future.result(timeout=0)
    with pytest.raises(FutureTimeoutError):
        future.exception(timeout=0)
    producer.flush()
    assert future.done()
    assert future.exception() is None
    assert seen == [future]
    future.add_done_callback(seen.append)
    assert seen == [future, future]
    assert "offset=0" in repr(future)


def test_callback_that_exits_does_not_end_the_producer(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(_: object) -> None:
        raise SystemExit(1)

    with topic.producer(linger_ms=FOREVER_MS) as producer:
        producer.send(key="a", partition=0).add_done_callback(leave)
        producer.flush()
        producer.send(key="b", partition=0)
    assert topic.count() == 2
    assert "a callback of" in caplog.text


@pytest.mark.parametrize("linger_ms", [-1, float("inf"), float("nan"), 10**13])
def test_linger_that_no_clock_can_wait_for_is_refused(topic: Topic, linger_ms: float) -> None:
    with pytest.raises(InvalidRequestError, match="from 0 to 86400000, a day"):
        topic.producer(linger_ms=linger_ms)


def test_callbacks_may_send_but_not_flush(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    with topic.producer(linger_ms=FOREVER_MS, batch_bytes=1) as producer:
        again: list[Any] = []
        first = producer.send(key="a", partition=0)
        first.add_done_callback(lambda _: again.append(producer.send(key="b", partition=0)))
        first.add_done_callback(lambda _: producer.flush())
        first.result(timeout=60)
    assert again[0].result().offset == 1
    assert "would wait for itself forever" in caplog.text


@pytest.mark.parametrize(
    "wait",
    [
        lambda sent: sent.result(),
        lambda sent: sent.result(timeout=FOREVER_MS),
        lambda sent: sent.exception(),
        lambda sent: wait_for_all([sent]),
        lambda sent: asyncio.run(awaited(sent)),
    ],
)
def test_callback_that_waits_for_a_record_is_refused(
    topic: Topic, wait: Callable[[Any], object]
) -> None:
    """No other thread would commit that record."""
    refused: list[str] = []
    with topic.producer(linger_ms=FOREVER_MS, batch_bytes=1) as producer:

        def told(error: BaseException | None, metadata: Any) -> None:
            sent = producer.send(key="b", partition=0)
            try:
                wait(sent)
            except InvalidRequestError as found:
                refused.append(str(found))

        first = producer.send(key="a", partition=0, on_delivery=told)
        first.add_done_callback(lambda done: refused.append(str(done.result().offset)))
        assert first.result(timeout=60).offset == 0
    assert "would wait for itself forever" in refused[0]
    assert refused[1] == "0"  # one that is done waits for nothing
    assert len(rows(topic.read())) == 2


async def awaited(sent: RecordFuture) -> Any:
    return await sent


def test_timestamps(topic: Topic, clock: Clock, producer: Producer) -> None:
    given = producer.send(key="k", value="v", timestamp=at(-5), partition=0)
    in_ms = producer.send(key="k", value="v", timestamp=1_000, partition=0)
    default = producer.send(key="k", value="v", partition=0)
    clock.tick(7)
    producer.flush()
    told = [future.result().timestamp for future in (given, in_ms, default)]
    assert told == [at(-5), datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), at(7)]
    assert rows(topic.read(), "timestamp") == told


def test_future_gives_append_time_if_the_topic_uses_it(store: Store) -> None:
    topic = store.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    with topic.producer() as producer:
        future = producer.send(key="k", value="v", timestamp=1_000)
    assert [future.result().timestamp] == rows(topic.read(), "timestamp") == [at(0)]


@pytest.mark.parametrize(
    "headers",
    [[("a", b"1"), ("a", None)], (["a", b"1"], ["a", None]), iter([("a", "1"), ("a", None)])],
)
def test_headers(topic: Topic, producer: Producer, headers: Any) -> None:
    producer.send(key="k", value="v", headers=headers)
    producer.send(key="k", value="v", headers={"b": b"2"})
    producer.send(key="k", value="v")
    producer.flush()
    assert rows(topic.read(), "headers") == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        [{"key": "b", "value": b"2"}],
        None,
    ]


def test_table_shaped_topics_take_columns_by_name(store: Store) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("amount", pa.decimal128(9, 2)),
            ("tags", pa.list_(pa.string())),
            ("value", pa.float64()),
        ]
    )
    topic = store.create_topic("t", 2, schema, key="id")
    with topic.producer() as producer:
        futures = [producer.send(id=n, value=n / 2, tags=["x"] * n) for n in range(5)]
        with pytest.raises(SchemaMismatchError, match="did you mean 'amount'"):
            producer.send(id=1, amont=3)
        with pytest.raises(SchemaMismatchError, match="no column 'key'"):
            producer.send(key=b"x", id=1)
    by_place = {(r["partition"], r["offset"]): r for r in rows(topic.read())}
    for n, future in enumerate(futures):
        row = by_place[future.result()[:2]]
        assert (row["id"], row["value"], row["tags"]) == (n, n / 2, ["x"] * n)


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("l", pa.list_(pa.struct([("x", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        ("n", pa.list_(pa.int32())),
        ("t", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("times", pa.list_(pa.timestamp("us", "UTC"))),
        ("day", pa.date32()),
    ]
)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"s": {"a": 1, "zzz": 2}}, "'s'.*no field 'zzz'; it has a, b"),
        ({"s": {"A": 1}}, "no field 'A'"),
        ({"s": {b"a": 1}}, "no field b'a'"),
        ({"s": (1, "x", 3)}, "not a dict of its fields"),
        ({"s": {"a": 1.5}}, "1.5 is not a whole number"),
        ({"l": [{"x": 1, "y": 2}]}, "'l'.*no field 'y'"),
        ({"m": {"k": {"y": 2}}}, "'m'.*no field 'y'"),
        ({"m": [("k", {"y": 2})]}, "no field 'y'"),
        ({"m": [1]}, "not a dict, nor a list of pairs"),
        ({"n": [1.5]}, "1.5 is not a whole number"),
        ({"t": "word"}, "'word' is not a list"),
        ({"at": datetime(2024, 1, 1)}, "'at'.*has no time zone; add one"),
        ({"at": 1.5}, "1.5 is not a time: give a datetime or milliseconds"),
        ({"at": True}, "True is not a time"),
        ({"at": 10**18}, "is it in milliseconds"),
        ({"wall": at(0)}, "has a time zone, and the column has none"),
        ({"times": [datetime(2024, 1, 1)]}, "has no time zone"),
        ({"day": 5}, "5 is not a date"),
        ({"day": at(0)}, "give value.date"),
    ],
)
def test_value_that_arrow_would_change_is_refused(
    store: Store, wrong: dict[str, Any], why: str
) -> None:
    topic = store.create_topic("t", 1, NESTED)
    with topic.producer() as producer, pytest.raises(SchemaMismatchError, match=why):
        producer.send(id=1, **wrong)
    assert rows(topic.read()) == []


def test_nested_values_and_times_arrive_as_they_were_sent(store: Store) -> None:
    topic = store.create_topic("t", 1, NESTED)
    now = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    now_ms = int(now.timestamp() * 1000)
    row = {"s": {"a": 1}, "l": [{"x": 1}, None], "m": {"k": {"x": 2}}, "n": [1, None], "t": ["w"]}
    times = {"at": now, "wall": now.replace(tzinfo=None), "times": [now, None], "day": now.date()}
    numbers = {"at": now_ms, "wall": now_ms, "times": [now_ms, None]}
    with topic.producer() as producer:
        producer.send(**row, **times, timestamp=now_ms)
        producer.send(**numbers)
    first, second = rows(topic.read())
    wanted = {**row, **times, "s": {"a": 1, "b": None}, "m": [("k", {"x": 2})], "timestamp": now}
    assert {name: first[name] for name in wanted} == wanted
    assert {name: second[name] for name in numbers} == {name: times[name] for name in numbers}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"key": 5}, "key must be bytes or str, not int"),
        ({"value": {"a": 1}}, "value must be bytes or str, not dict"),
        ({"partition": 3}, "no partition 3"),
        ({"partition": True}, "no partition True"),
        ({"timestamp": datetime(2020, 1, 1)}, "no time zone"),
        ({"timestamp": 2**60}, "years 1 to 9999"),
        ({"timestamp": "now"}, "not a time"),
        ({"headers": "abc"}, "pairs of a name and bytes"),
        ({"headers": [("a", 1)]}, "pairs of a name and bytes"),
        ({"valeu": b"1"}, "did you mean 'value'"),
    ],
)
def test_obvious_mistakes_raise_in_send(
    topic: Topic, producer: Producer, wrong: dict[str, Any], why: str
) -> None:
    producer.send(key="k", value="v")
    with pytest.raises(InvalidRequestError, match=why):
        producer.send(**wrong)
    producer.flush()
    assert topic.count() == 1


def table_topic(store: Store) -> Topic:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])
    return store.create_topic("t", 2, schema, key="id")


def records(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(map(str, ids), pa.string())})


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "five"},
        {"id": 2**40},
        {"id": 1.5},
        {"id": 2**70},
        {"name": "no id"},
        {"id": 1, "name": "\ud800"},
        {"id": 1, "name": 7},
    ],
    ids=str,
)
@pytest.mark.parametrize("place", [0, 1, 20])
def test_a_bad_record_fails_only_its_own_future(
    store: Store, wrong: dict[str, Any], place: int
) -> None:
    topic = table_topic(store)
    producer = topic.producer(linger_ms=FOREVER_MS)
    futures = [
        producer.send(**wrong) if n in (place, 11) else producer.send(id=n, name=str(n))
        for n in range(21)
    ]
    with pytest.raises(SchemaMismatchError):
        producer.flush()
    producer.flush()  # it has been told
    by_place = {(r["partition"], r["offset"]): r["id"] for r in rows(topic.read())}
    for n, future in enumerate(futures):
        if n in (place, 11):
            assert isinstance(future.exception(), SchemaMismatchError)
            with pytest.raises(SchemaMismatchError):
                future.result()
        else:
            assert by_place[future.result()[:2]] == n
    assert len(by_place) == 19
    producer.close()


def test_batch_with_only_bad_records_commits_nothing(store: Store) -> None:
    topic = table_topic(store)
    with pytest.raises(SchemaMismatchError), topic.producer() as producer:
        futures = [producer.send(name="x") for _ in range(3)]
    assert all(isinstance(future.exception(), SchemaMismatchError) for future in futures)
    assert topic.version == 0
    assert futures[0].done()


def test_keyless_record_on_a_compacted_topic_fails_only_itself(store: Store) -> None:
    topic = store.create_topic("t", 2, config={"cleanup.policy": "compact"})
    producer = topic.producer()
    futures = [producer.send(key=key, value="v") for key in ("a", None, "b")]
    with pytest.raises(InvalidRequestError, match="without a key"):
        producer.close()
    assert [future.exception() is None for future in futures] == [True, False, True]
    assert topic.count() == 2


@pytest.mark.parametrize("first", ["plain", "full"])
def test_plain_records_and_others_in_turn_are_one_run_of_rows(
    topic: Topic, producer: Producer, first: str
) -> None:
    """Plain records are kept as two columns, until one has more. A run of its own for each change
    would be slow."""
    sent = []
    for number in range(40):
        more = {} if (number % 2 == 0) == (first == "plain") else {"headers": {"n": b"%d" % number}}
        sent.append(producer.send(key=f"k{number % 5}", value=str(number), **more))
    assert len(producer._open.sent) == 1
    producer.flush()
    there = rows(topic.read(), "partition", "offset", "value", "headers")
    by_place = {(partition, offset): row for partition, offset, *row in there}
    for number, future in enumerate(sent):
        place = future.result()
        value, headers = by_place[place.partition, place.offset]
        assert value == b"%d" % number
        is_plain = (number % 2 == 0) == (first == "plain")
        assert headers == (None if is_plain else [{"key": "n", "value": b"%d" % number}])


def test_plain_record_is_no_object_for_the_garbage_collector(producer: Producer) -> None:
    """So a batch of a million records is not looked through again and again."""
    producer.send(key=b"k", value=b"v")
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(1000):
        producer.send(key=b"k", value=b"v")
    assert len(gc.get_objects()) - before < 100


def test_tables_and_records_can_be_sent_in_turn(topic: Topic, producer: Producer) -> None:
    before = producer.send(key="a", value="0")
    table = kafka([f"k{n}" for n in range(20)])
    inside = producer.send_batch(table)
    empty = producer.send_batch(table.slice(0, 0))
    after = producer.send(key="a", value="1")
    producer.flush()
    there = found(topic)
    assert there[before.result()[:2]] == (b"a", b"0")
    assert there[after.result()[:2]] == (b"a", b"1")
    told = inside.result()
    assert told.records == 20
    assert told.version == topic.version
    values = {
        there[partition, offset][1]
        for partition, (start, end) in told.offsets.items()
        for offset in range(start, end)
    }
    assert values == {b"%d" % n for n in range(20)}
    assert empty.result().offsets == {}


def test_a_bad_table_fails_only_itself(store: Store) -> None:
    topic = table_topic(store)
    producer = topic.producer(linger_ms=FOREVER_MS)
    good = producer.send(id=1)
    with pytest.raises(SchemaMismatchError, match="no column 'nme'"):
        producer.send_batch(pa.table({"nme": ["x"]}))
    with pytest.raises(SchemaMismatchError):
        producer.send_batch([1, 2])
    bad = producer.send_batch(pa.table({"id": pa.array([1, None], pa.int32())}))
    other = producer.send_batch(pa.table({"id": pa.array([5, 6], pa.int32())}))
    with pytest.raises(SchemaMismatchError, match="must not be null"):
        producer.close()
    assert good.exception() is None
    assert isinstance(bad.exception(), SchemaMismatchError)
    assert other.result().records == 2
    assert sorted(rows(topic.read(), "id")) == [1, 5, 6]


def test_a_table_with_text_that_is_not_utf8_fails_only_itself(store: Store) -> None:
    topic = store.create_topic("t", schema={"note": pa.string()})
    producer = topic.producer(linger_ms=FOREVER_MS)
    good = producer.send(note="a")
    bad = producer.send_batch(pa.table({"note": pa.array([b"\xff"]).view(pa.string())}))
    with pytest.raises(SchemaMismatchError, match="'note' is not valid"):
        producer.close()
    assert isinstance(bad.exception(), SchemaMismatchError)
    assert good.result().offset == 0
    assert rows(topic.read(), "note") == ["a"]


def test_error_that_a_future_has_given_is_not_raised_again(store: Store) -> None:
    topic = store.create_topic("t", 2, config={"cleanup.policy": "compact"})
    with topic.producer(linger_ms=0) as producer:
        with pytest.raises(InvalidRequestError, match="without a key"):
            producer.send(value="v").result()
        future = producer.send(key="a", value="v")
        producer.flush()
        assert future.exception() is None
        seen: list[BaseException | None] = []
        producer.send(value="v").add_done_callback(lambda done: seen.append(done.exception()))
        producer.flush()
        assert [type(error) for error in seen] == [InvalidRequestError]


def test_error_that_no_future_has_given_is_raised_at_the_end(store: Store) -> None:
    topic = store.create_topic("t", 2, config={"cleanup.policy": "compact"})
    producer = topic.producer(linger_ms=0)
    futures = [producer.send(value=str(number)) for number in range(2)]
    assert futures[0].exception() is not None
    while not futures[1].done():
        futures[0].exception()
    repr(futures[1])  # shows the error, and gives it to nobody
    with pytest.raises(InvalidRequestError, match="without a key") as raised:
        producer.close()
    assert raised.value is futures[1].exception()


def test_producer_notices_new_columns_and_partitions(store: Store, topic: Topic) -> None:
    with topic.producer(linger_ms=FOREVER_MS) as producer:
        first = producer.send(key="k", value="v")
        store.topic("t").alter(partitions=5, add_columns={"extra": pa.int64()})
        second = producer.send(key="k", value="v", partition=4, extra=9)
        third = producer.send_batch(pa.table({"extra": [1]}))
    assert second.result()[:2] == (4, 0)
    assert first.exception() is third.exception() is None
    assert sorted(rows(topic.read(), "extra"), key=str) == [1, 9, None]


def test_closed_producer_delivers_everything_and_refuses_more(topic: Topic) -> None:
    producer = topic.producer(linger_ms=FOREVER_MS)
    future = producer.send(key="k", value="v")
    producer.close()
    producer.close()
    assert future.result().offset == 0
    assert "closed" in repr(producer)
    with pytest.raises(InvalidRequestError, match="is closed"):
        producer.send(key="k", value="v")
    with pytest.raises(InvalidRequestError, match="is closed"):
        producer.send_batch(kafka(["a"]))


def test_exception_in_the_with_block_keeps_sent_records(topic: Topic) -> None:
    with pytest.raises(ZeroDivisionError), topic.producer() as producer:
        raise ZeroDivisionError(producer.send(key="k", value="v"))
    assert topic.count() == 1


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("linger_ms", -1),
        ("batch_bytes", 0),
        ("batch_bytes", 1 << 40),
        ("app_id", ""),
        ("app_id", 5),
    ],
)
def test_bad_settings_are_refused(topic: Topic, name: str, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        topic.producer(**{name: wrong})


def test_records_for_a_deleted_topic_fail(store: Store, topic: Topic) -> None:
    producer = topic.producer(linger_ms=FOREVER_MS)
    future = producer.send(key="k", value="v")
    store.delete_topic("t")
    with pytest.raises(TopicNotFoundError):
        producer.close()
    assert isinstance(future.exception(), TopicNotFoundError)


class TestAppId:
    def test_sequence_goes_on_after_a_restart(self, topic: Topic) -> None:
        source = [str(number) for number in range(10)]
        with topic.producer(app_id="etl") as producer:
            assert producer.sequence == 0
            for line in source[:4]:
                producer.send(key="k", value=line)
            producer.flush()
            assert producer.sequence == 4
            producer.send_batch(kafka(["k", "k"], ["4", "5"]))
        assert topic.last_txn("etl") == 6
        assert topic.last_txn("other") is None
        with topic.producer(app_id="etl") as again:
            assert again.sequence == 6
            for line in source[again.sequence :]:
                again.send(key="k", value=line)
        assert [v.decode() for v in rows(topic.read(), "value")] == source

    @pytest.mark.parametrize(
        "wrong",
        [{"id": "no number", "name": "x"}, {"id": 5, "nmae": "x"}],
        ids=["in the batch", "at once"],
    )
    def test_refused_record_ends_the_producer(self, store: Store, wrong: dict[str, Any]) -> None:
        """What is behind it would be counted in its place, and be sent again or left out."""
        topic = table_topic(store)
        source: list[dict[str, Any]] = [{"id": n, "name": str(n)} for n in range(9)]
        for bad in (4, None):
            lines = [wrong if n == bad else line for n, line in enumerate(source)]
            producer = topic.producer(linger_ms=FOREVER_MS, app_id="etl")
            with suppress(InvalidRequestError), producer:
                for line in lines[producer.sequence :]:
                    with suppress(InvalidRequestError):
                        producer.send(**line)
            assert producer.sequence == (9 if bad is None else bad)
        assert sorted(row["id"] for row in rows(topic.read())) == list(range(9))

    def test_only_records_before_the_bad_one_are_appended(self, store: Store) -> None:
        topic = table_topic(store)
        producer = topic.producer(linger_ms=FOREVER_MS, app_id="etl")
        good = [producer.send(id=1, name="a"), producer.send_batch(records([2, 3]))]
        none = producer.send_batch(records([]))
        bad = [producer.send(id="no number", name="x"), producer.send_batch(records([4]))]
        with pytest.raises(SchemaMismatchError):
            producer.close()
        assert [future.exception() for future in (*good, none)] == [None] * 3
        assert all(isinstance(future.exception(), SchemaMismatchError) for future in bad)
        assert sorted(rows(topic.read(), "id")) == [1, 2, 3]
        assert producer.sequence == 3

    def test_refused_table_ends_the_producer(self, topic: Topic) -> None:
        producer = topic.producer(linger_ms=FOREVER_MS, app_id="etl")
        good, bad = kafka(["a"]), pa.table({"vlaue": ["x"]})
        first = producer.send_batch(good)
        with pytest.raises(SchemaMismatchError):
            producer.send_batch(bad)
        with pytest.raises(InvalidRequestError, match=r"earlier ones failed.*continue from its"):
            producer.send_batch(good)
        producer.close()
        assert first.result().records == producer.sequence == topic.count() == 1

    def test_without_an_app_id_nothing_is_counted(self, topic: Topic, producer: Producer) -> None:
        producer.send(key="k", value="v")
        producer.flush()
        assert producer.sequence is None
        assert topic.history(limit=1)["txn_app_id"].to_pylist() == [None]

    def test_second_of_two_producers_is_fenced(self, store: Store, topic: Topic) -> None:
        old = topic.producer(linger_ms=FOREVER_MS, app_id="etl")
        old.send(key="k", value="0")
        old.flush()
        new = store.topic("t").producer(linger_ms=FOREVER_MS, app_id="etl")
        assert new.sequence == 1
        new.send(key="k", value="1")
        new.flush()
        # As many as the other has written, so that only looking at the number would not tell.
        lost = old.send(key="k", value="of the old one")
        with pytest.raises(CommitConflictError, match="fenced"):
            old.flush()
        assert isinstance(lost.exception(), CommitConflictError)
        with pytest.raises(InvalidRequestError, match="takes no more records"):
            old.send(key="k", value="again")
        with pytest.raises(InvalidRequestError, match="takes no more records"):
            old.send_batch(kafka(["a"]))
        old.close()
        new.send(key="k", value="2")
        new.close()
        assert rows(topic.read(), "value") == [b"0", b"1", b"2"]
        assert topic.last_txn("etl") == 3

    @pytest.mark.records_in("files")
    def test_fenced_producer_leaves_no_files(
        self, store: Store, topic: Topic, objects: MemoryStore
    ) -> None:
        first, second = topic.producer(app_id="a"), store.topic("t").producer(app_id="a")
        first.send(key="k", value="v")
        first.close()
        second.send(key="k", value="v")
        with pytest.raises(CommitConflictError):
            second.close()
        assert len(data_files(objects)) == 1

    def test_failed_commit_ends_the_producer(self) -> None:
        """Or the count would skip what was lost."""
        inner = MemoryStore()
        new_topic(inner)
        plan = Plan(0, Fault.REFUSE, lambda verb, key: verb == "open_output")
        producer = faulty(inner, plan).producer(linger_ms=FOREVER_MS, app_id="a")
        producer.send(n=0)
        with pytest.raises(StorageError):
            producer.flush()
        with pytest.raises(InvalidRequestError, match="takes no more"):
            producer.send(n=2)
        producer.close()
        assert numbers_of(open_topic(inner)) == []


def test_store_failure_fails_one_batch_only() -> None:
    inner = MemoryStore()
    new_topic(inner)
    plan = Plan(0, Fault.REFUSE, lambda verb, key: verb == "open_output")
    producer = faulty(inner, plan).producer(linger_ms=FOREVER_MS)
    futures = [producer.send(n=0), producer.send(n=2)]
    with pytest.raises(StorageError):
        producer.flush()
    assert all(isinstance(future.exception(), StorageError) for future in futures)
    producer.send(n=4)
    producer.close()
    assert numbers_of(open_topic(inner)) == [4]


@pytest.mark.parametrize("app_id", [None, "a"])
@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.SELF_RETRY, Fault.LATE, Fault.REFUSE])
def test_commit_with_lost_reply_is_neither_lost_nor_doubled(
    fault: Fault, app_id: str | None
) -> None:
    inner = MemoryStore()
    new_topic(inner)
    plan = Plan(0, fault, lambda verb, key: verb == "create")
    with faulty(inner, plan, late_after=2).producer(
        linger_ms=FOREVER_MS, app_id=app_id
    ) as producer:
        futures = [producer.send(n=n) for n in range(3)]
        producer.flush()
        producer.send(n=3)
    assert plan.hit
    assert numbers_of(open_topic(inner)) == [0, 1, 2, 3]
    assert sorted(future.result().offset for future in futures) == [0, 1, 2]


@pytest.mark.parametrize("app_id", [None, "a"])
@pytest.mark.parametrize("lands", [True, False])
def test_an_unknown_commit_is_resolved_before_anything_else(
    app_id: str | None, lands: bool
) -> None:
    """The store is silent for longer than a commit may take; when it speaks again the commit is
    there, or somebody else's is."""
    inner = MemoryStore()
    new_topic(inner)
    silent = False
    asked = 0

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal silent, asked
        if verb == "create" and key.endswith("1.json") and asked == 0:
            silent = True
            asked = 1
            return Fault.LOSE_REPLY if lands else Fault.REFUSE
        if silent and "_manifest/0" in key:
            asked += 1
            if asked > 30:  # after the deadline of the commit, before that of the resolution
                silent = False
                if not lands:
                    open_topic(inner).append(pa.table({"n": [100], "partition": [0]}))
            else:
                return Fault.REFUSE
        return None

    topic = faulty(inner, decide, patience=2.0)
    with topic.producer(linger_ms=FOREVER_MS, app_id=app_id) as producer:
        future = producer.send(n=0, partition=0)
        producer.flush()
        producer.send(n=2, partition=0)
    assert future.result().offset == (0 if lands else 1)
    assert numbers_of(open_topic(inner)) == ([0, 2] if lands else [0, 2, 100])


def test_producer_races_with_other_writers(
    store: Store, objects: MemoryStore, topic: Topic
) -> None:
    other = make_store(objects).topic("t")
    futures = {}
    with topic.producer(linger_ms=0) as producer:
        for number in range(60):
            futures[producer.send(key="k", value=str(number))] = str(number).encode()
            other.append(kafka(["k"], ["other"]))
    there = found(topic)
    assert len(there) == 120
    for future, value in futures.items():
        assert there[future.result()[:2]][1] == value


def test_sending_an_empty_list_of_batches_appends_nothing(store: Store) -> None:
    topic = store.create_topic("t")
    with topic.producer() as producer:
        assert producer.send_batch([]).result(10).records == 0
        producer.send(key="a").result(10)
    assert topic.count() == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_process_cannot_use_the_producer(topic: Topic) -> None:
    """Its thread is not there: records would be lost without a word."""
    with topic.producer(linger_ms=0) as producer:
        producer.send(key=b"k", value=b"parent").result()
        calls = (lambda: producer.send(key=b"k"), producer.flush, producer.close)
        for call in calls:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # threads beside a fork
                child = os.fork()
            if child == 0:
                try:
                    call()
                except InvalidRequestError:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert topic.count() == 1
