"""Guarded copies of other systems: who may append, and what ends it [GUARD-1] to [GUARD-4]."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, Topic
from pylogtable.engine import plan_append
from pylogtable.format.model import GUARDED_COPY, CopyOf
from pylogtable.format.paths import commit_path
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, contents, ints, kafka, make_store, rows
from tests.library.append.test_combined import append_in_a_crowd, offers_of, put_offer
from tests.mirrors import check_equal
from tests.stores import FarStore, _Wrapper

APP_ID = "kafka:cluster/orders"
SOURCE = CopyOf(
    kind="kafka", name="orders", cluster="cluster", address="broker:9092", app_id=APP_ID
)
REFUSED = (
    r"append is refused: this topic is a copy of Kafka's topic 'orders' at broker:9092\..*"
    r"topic\.promote\(\) \(pylogtable topics promote\)"
)
LARGE = kafka([b"k"] * 40_000, [b"v" * 40] * 40_000)


@pytest.fixture
def copy(store: Store) -> Topic:
    """A guarded copy with two records."""
    topic = store._create_copy(SOURCE, "orders", 2)
    bring(topic, "ab")
    return topic


def bring(topic: Topic, keys: str, partition: int = 0) -> None:
    """An append of the import."""
    end = topic.end_offsets()[partition]
    data = kafka(
        list(keys),
        partition=ints(*[partition] * len(keys)),
        offset=pa.array(range(end, end + len(keys))),
    )
    txn = APP_ID, sum(topic.end_offsets().values()) + len(keys)
    topic.append(data, keep_offsets=True, txn=txn)


def with_offsets(topic: Topic) -> pa.Table:
    end = topic.end_offsets()[0]
    return kafka("x", partition=ints(0), offset=pa.array([end]))


def sent(topic: Topic) -> None:
    with topic.producer() as producer:
        producer.send(key=b"k", value=b"v")


def made_of_another(topic: Topic) -> None:
    source = make_store().create_topic("input")
    source.append(kafka("a"))
    with source.consumer("job") as consumer:
        topic.sink(consumer)


#: Every way to append that the library has. Spark's are in `tests/spark/test_guarded_copies.py`.
WAYS: dict[str, Callable[[Topic], object]] = {
    "append": lambda topic: topic.append(kafka("x")),
    "append of files": lambda topic: topic.append(LARGE),
    "append of what can be read once": lambda topic: topic.append(iter(LARGE.to_batches())),
    "append with a txn": lambda topic: topic.append(kafka("x"), txn=("etl", 1)),
    "append that expects": lambda topic: topic.append(
        kafka("x"), txn=("etl", 1), expected_last=None, note="n"
    ),
    "append of nothing": lambda topic: topic.append(kafka([]), txn=("etl", 1)),
    "append with offsets": lambda topic: topic.append(with_offsets(topic), keep_offsets=True),
    "append in a crowd": lambda topic: append_in_a_crowd(topic, kafka("x")),
    "producer": sent,
    "producer with an app id": lambda topic: topic.producer(app_id="clicks"),
    "sink": made_of_another,
    "plan": lambda topic: plan_append(topic).stage(kafka("x")),
    "plan with offsets": lambda topic: plan_append(topic, keep_offsets=True).begin(),
    "plan of another import": lambda topic: plan_append(topic, app_id="kafka:cluster/x").begin(),
    "columns of a plan": lambda topic: plan_append(topic).check_columns(kafka("x").schema),
    "merged columns": lambda topic: plan_append(topic).merge_columns(kafka("x", n=ints(1)).schema),
}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_but_its_import_appends_and_nothing_is_left(
    objects: MemoryStore, copy: Topic, way: str
) -> None:
    before = contents(objects)
    with pytest.raises(InvalidRequestError, match=REFUSED):
        WAYS[way](copy)
    assert contents(objects) == before
    bring(copy, "c")
    assert rows(copy.read(), "key") == [b"a", b"b", b"c"]


#: Work that has begun before the topic becomes a copy, and how it goes on.
Begun = Callable[[Topic], Callable[[], object]]


def begun_commit(topic: Topic) -> Callable[[], object]:
    plan = plan_append(topic)
    staged = plan.stage(LARGE)
    return lambda: plan.commit([staged])


def begun_elsewhere(topic: Topic) -> Callable[[], object]:
    """In the driver of an engine, which opens the topic to commit."""
    plan = plan_append(topic)
    staged = plan.stage(LARGE)
    elsewhere = replace(plan, opened=None)
    return lambda: elsewhere.commit([staged], txn=("query", 1))


def begun_producer(topic: Topic) -> Callable[[], object]:
    producer = topic.producer()

    def go_on() -> None:
        with closing(producer):
            future = producer.send(key=b"k", value=b"v")
            producer.flush()
            future.result(30)

    return go_on


def begun_sink(topic: Topic) -> Callable[[], object]:
    source = make_store().create_topic("input")
    source.append(kafka("a"))
    consumer = source.consumer("job")
    sink = topic.sink(consumer)
    return lambda: sink.append(consumer.poll(timeout=None))


@pytest.mark.parametrize(
    "begin", [begun_commit, begun_elsewhere, begun_producer, begun_sink], ids=lambda f: f.__name__
)
def test_work_that_has_begun_before_is_refused_at_its_commit(
    objects: MemoryStore, store: Store, begin: Begun
) -> None:
    topic = store.create_topic("orders", 2)
    go_on = begin(topic)
    store.topic("orders")._guard(SOURCE)
    before = {key for key in contents(objects) if "partition=" not in key}
    with pytest.raises(InvalidRequestError, match=REFUSED):
        go_on()
    assert set(contents(objects)) == before


class _Meanwhile(_Wrapper):
    """Something happens once, just before the put of the commit of this version."""

    def __init__(
        self, inner: ObjectStore, version: int, happens: list[Callable[[], None]], prefix: str = ""
    ) -> None:
        super().__init__(inner, prefix)
        self._version = version
        self._happens = happens

    def below(self, prefix: str) -> ObjectStore:
        below = self._inner.below(prefix)
        return _Meanwhile(below, self._version, self._happens, self._prefix + prefix)

    def create(self, key: str, data: bytes) -> Created:
        if key == commit_path(self._version) and self._happens:
            self._happens.pop()()
        return super().create(key, data)


@pytest.mark.parametrize("data", [kafka("x"), LARGE], ids=["inline", "files"])
def test_an_append_that_loses_its_race_to_the_guard_is_refused(data: pa.Table) -> None:
    objects, clock = MemoryStore(), Clock()
    store = make_store(objects, clock)
    store.create_topic("orders", 2)

    guard = store.topic("orders")._guard
    racing = make_store(_Meanwhile(objects, 1, [lambda: guard(SOURCE)]), clock).topic("orders")
    with pytest.raises(InvalidRequestError, match=REFUSED):
        racing.append(data)
    assert racing.count() == 0
    assert not [key for key in contents(objects) if "partition=" in key]


def test_a_handle_that_does_not_know_it_yet_leaves_no_file() -> None:
    """On a remote store an append begins with the state it knows."""
    clock = Clock()
    store = make_store(FarStore(clock), clock)
    topic = store.create_topic("orders", 2)
    topic.append(kafka("a"))
    store.topic("orders")._guard(SOURCE)
    with pytest.raises(InvalidRequestError, match=REFUSED):
        topic.append(LARGE)
    assert topic.count() == 1
    assert not [key for key in contents(store._store) if "partition=" in key]


class TestOffers:
    def test_an_offer_that_waits_is_void_when_the_topic_becomes_a_copy(self, store: Store) -> None:
        topic = store.create_topic("orders", 2)
        put_offer(topic, kafka("x"))
        topic._guard(SOURCE)
        bring(topic, "ab")
        assert rows(topic.read(), "key") == [b"a", b"b"]

    def test_an_offer_to_a_copy_is_never_taken_along(self, copy: Topic) -> None:
        """Not even if somebody has made one who must not."""
        snapshot = copy._log.latest()
        offered = make_store().create_topic("t", 2)
        offer = put_offer(offered, kafka("x"))
        offer = msgspec.structs.replace(
            offer, topic_id=snapshot.topic_id, seen=snapshot.version, id="z"
        )
        copy._log.manifest.offers.put(offer)
        data = kafka("c", partition=ints(0))
        append_in_a_crowd(copy, data, txn=(APP_ID, 3))
        assert rows(copy.read(), "key") == [b"a", b"b", b"c"]
        assert offers_of(copy) == [offer.name]
        copy.promote()
        append_in_a_crowd(copy, kafka("d", partition=ints(0)))
        assert rows(copy.read(), "key") == [b"a", b"b", b"c", b"d"]


class TestAltering:
    @pytest.mark.parametrize(
        "change",
        [
            {"partitions": 3},
            {"add_columns": {"n": "int"}},
            {"rename_columns": {"value": "v"}},
            {"partitions": 3, "config": {"retention.ms": 5}},
        ],
    )
    def test_only_the_import_brings_partitions_and_columns(
        self, objects: MemoryStore, copy: Topic, change: dict[str, Any]
    ) -> None:
        before = contents(objects)
        with pytest.raises(InvalidRequestError, match=r"alter is refused: .*'orders' at broker"):
            copy.alter(**change)
        assert contents(objects) == before
        copy._alter_as(APP_ID, **change)

    def test_settings_are_free_and_do_not_end_it(self, copy: Topic) -> None:
        copy.alter(config={"retention.ms": -1})
        with pytest.raises(InvalidRequestError, match=REFUSED):
            copy.append(kafka("x"))

    def test_it_is_announced_when_it_begins_and_not_before(self, store: Store) -> None:
        topic = store.create_topic("orders", 2)
        assert GUARDED_COPY not in topic.at().snapshot.protocol.writer_features
        topic._guard(SOURCE, partitions=4)
        protocol = topic.at().snapshot.protocol
        assert GUARDED_COPY in protocol.writer_features
        assert GUARDED_COPY not in protocol.reader_features
        assert len(topic.end_offsets()) == 4
        version = topic.version
        topic._guard(msgspec.structs.replace(SOURCE, address="other:9092"), partitions=4)
        assert topic.version == version

    def test_a_copy_of_something_else_stays_what_it_is(self, copy: Topic) -> None:
        other = msgspec.structs.replace(SOURCE, name="x", app_id="kafka:cluster/x")
        with pytest.raises(InvalidRequestError, match="is a copy of Kafka's topic 'orders'"):
            copy._guard(other)


def test_all_other_work_goes_on(store: Store, clock: Clock) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": 10_000, "inline.max.bytes": 0}
    topic = store._create_copy(SOURCE, "orders", 1, config=config)
    bring(topic, "aab")
    bring(topic, "ac")
    topic.compact(force=True)
    topic.merge()
    topic.erase(keys=[b"b"])
    topic.delete_records({0: 1})
    group = topic.group("g")
    group.commit({0: 2})
    topic.publish(["delta"])
    assert rows(topic.read(), "key") == [b"a", b"c"]
    clock.tick(10_001_000)
    assert topic.apply_retention().records_removed == 2
    topic.vacuum(dry_run=False)
    assert topic.maintain()
    bring(topic, "d")
    assert rows(topic.read(), "offset") == [5]
    assert topic.verify(data=True)


class TestPromotion:
    def test_promoted_copy_is_a_topic_like_any_other(self, copy: Topic) -> None:
        copy.promote()
        version = copy.version
        assert [row["operation"] for row in rows(copy.history(1))] == ["promote"]
        copy.promote()  # a runbook may be run again
        assert copy.version == version
        copy.append(kafka("c", partition=ints(0)))
        with copy.producer(app_id="clicks") as producer:
            producer.send(key=b"d", value=b"v", partition=0)
        copy.alter(partitions=3)
        assert rows(copy.read(), "key") == [b"a", b"b", b"c", b"d"]
        assert copy.verify(data=True)

    def test_import_that_was_not_stopped_ends(self, copy: Topic) -> None:
        plan = plan_append(copy, keep_offsets=True, app_id=APP_ID)
        staged = plan.stage(with_offsets(copy))
        copy.promote()
        said = f"was promoted in version {copy.version}.*give another name"
        with pytest.raises(InvalidRequestError, match=said):
            plan.commit([staged], txn=(APP_ID, 3))
        with pytest.raises(InvalidRequestError, match=said):
            bring(copy, "c")
        with pytest.raises(InvalidRequestError, match=said):
            copy._guard(SOURCE)
        assert copy.count() == 2

    def test_repeat_of_the_import_is_recognised(self, copy: Topic) -> None:
        copy.promote()
        assert copy.append(kafka("xy"), txn=(APP_ID, 2)).repeated

    def test_what_a_topic_is_can_be_seen(self, copy: Topic) -> None:
        said = "copy of Kafka's topic 'orders' at broker:9092"
        status = copy.describe().copy_of
        assert status is not None
        assert (status.kind, status.name, status.cluster) == ("kafka", "orders", "cluster")
        assert (status.address, status.ended) == ("broker:9092", None)
        assert str(status).startswith(said)
        assert "copy of Kafka&#x27;s topic &#x27;orders&#x27;" in copy._repr_html_()
        copy.promote()
        after = copy.describe().copy_of
        assert after is not None
        assert after.ended == copy.version
        assert str(after) == f"topic of its own since version {copy.version}; it was a {said}"

    def test_a_topic_in_its_place_is_a_topic_of_its_own(self, store: Store, copy: Topic) -> None:
        store.delete_topic("orders")
        topic = store.create_topic("orders")
        topic.append(kafka("x"))
        assert topic.describe().copy_of is None


class TestMirrors:
    @pytest.fixture
    def backup(self, copy: Topic) -> Store:
        """A store with a mirror of the copy."""
        backup = make_store()
        copy.mirror(backup)
        return backup

    def test_mirror_of_a_copy_is_guarded_too(self, copy: Topic, backup: Store) -> None:
        mirrored = backup.topic("orders")
        check_equal(copy, mirrored)
        assert GUARDED_COPY in mirrored.at().snapshot.protocol.writer_features
        with pytest.raises(InvalidRequestError, match=REFUSED):
            mirrored.append(kafka("x"))
        bring(copy, "c")
        copy.promote()
        copy.append(kafka("d"))
        copy.mirror(backup)
        check_equal(copy, mirrored)

    def test_guard_that_comes_later_comes_with_the_next_mirror(self, store: Store) -> None:
        topic, backup = store.create_topic("orders", 2), make_store()
        topic.mirror(backup)
        topic._guard(SOURCE)
        topic.mirror(backup)
        check_equal(topic, backup.topic("orders"))
        assert GUARDED_COPY in backup.topic("orders").at().snapshot.protocol.writer_features

    def test_import_goes_on_with_the_mirror_which_ends_the_mirroring(
        self, copy: Topic, backup: Store
    ) -> None:
        mirrored = backup.topic("orders")
        bring(mirrored, "c")
        described = mirrored.describe()
        assert described.mirror is not None
        assert described.mirror.ended == mirrored.version

    def test_first_promotion_ends_the_mirroring_and_the_second_the_guard(
        self, backup: Store
    ) -> None:
        mirrored = backup.topic("orders")
        mirrored.promote()
        described = mirrored.describe()
        assert described.mirror is not None
        assert described.copy_of is not None
        assert described.mirror.ended == mirrored.version
        assert described.copy_of.ended is None
        with pytest.raises(InvalidRequestError, match=REFUSED):
            mirrored.append(kafka("x"))
        bring(mirrored, "c")
        mirrored.promote()
        mirrored.promote()
        mirrored.append(kafka("d", partition=ints(0)))
        assert rows(mirrored.read(), "key") == [b"a", b"b", b"c", b"d"]

    def test_of_two_promotions_at_a_time_none_ends_both(self, backup: Store) -> None:
        mirrored = backup.topic("orders")
        next_version = mirrored.version + 1
        racing = make_store(_Meanwhile(backup._store, next_version, [mirrored.promote]))
        racing.topic("orders").promote()
        described = mirrored.describe()
        assert described.mirror is not None
        assert described.copy_of is not None
        assert (described.mirror.ended, described.copy_of.ended) == (next_version, None)
