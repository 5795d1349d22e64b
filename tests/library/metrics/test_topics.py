"""What the metrics say of topics: the same as the calls of the library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event

import pytest

from pylogtable.format.config import DAY_MS
from pylogtable.metrics import store_metrics, store_metrics_json
from pylogtable.metrics.exposition import text_of
from pylogtable.metrics.store_watch import AROUND_MS, LOOK_MS, OLD_MS, RETRY_MS, StoreWatch
from pylogtable.metrics.topic_watch import MEASURE_MS
from pylogtable.runtime import Runtime
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import (
    IN_FILES,
    SMALL,
    T0,
    Clock,
    fill,
    ints,
    kafka,
    make_holes,
    make_store,
    put_back,
    runtime,
    times,
)
from tests.library.metrics.values import Values
from tests.run.loops import driven
from tests.stores import FailingStore


def measured(store: Store, **options: bool) -> Values:
    return Values(store_metrics(store, **options))


def text(watch: StoreWatch) -> Values:
    return Values(text_of(watch.samples(), openmetrics=True))


def test_sizes_are_those_of_the_description(store: Store, clock: Clock) -> None:
    topic = store.create_topic("orders", 3, start_offsets={0: 50})
    fill(topic, timestamp=times(-7_000, -5_000, -6_000))
    topic.delete_records({0: 51})
    clock.tick(1_000)
    described = topic.describe()
    found = measured(store)
    assert found.of("build_info", command="metrics", store=store.url) == 1
    assert found.of("store_up", store=store.url) == 1
    names = {
        "topic_up": 1,
        "topic_partitions": 3,
        "topic_version": described.version,
        "topic_offsets_total": sum(topic.end_offsets().values()),
        "topic_removed_offsets_total": 51,
        "topic_records": described.records,
        "topic_size_bytes": described.size_bytes,
        "topic_segments": described.segments,
        "topic_inline_records": described.inline_records,
        "topic_inline_segments": described.inline_segments,
        "topic_newest_record_timestamp_seconds": (T0 - 5_000) / 1000,
        "topic_newest_commit_timestamp_seconds": topic.at().snapshot.committed_at_ms / 1000,
        "topic_segments_measured_timestamp_seconds": clock() / 1000,
        "topic_small_segments": 0,
        "topic_mergeable_segments": described.segments,
    }
    assert described.records
    assert found.each(names, store=store.url, topic="orders") == names


def test_an_empty_topic_has_no_newest_record_and_no_dirty_ratio(store: Store) -> None:
    store.create_topic("orders")
    found = measured(store)
    assert found.of("topic_records") == 0
    assert found.of("topic_newest_record_timestamp_seconds") is None
    assert found.of("topic_dirty_ratio") is None


def test_segments_are_counted_also_where_leaves_have_them(clock: Clock) -> None:
    """As the report counts them."""
    store = make_store(clock=clock, limits=SMALL, in_files=True)
    topic = store.create_topic("users", 2, config={"cleanup.policy": "compact"})
    fill(topic, 20)
    assert topic.at().snapshot.leaves
    found = measured(store)
    assert found.of("topic_small_segments") == len(topic.segments())
    assert found.of("topic_mergeable_segments") == len(topic.segments())
    assert found.of("topic_dirty_ratio") == 1
    topic.merge()
    topic.compact()
    found = measured(store)
    assert found.each(["topic_mergeable_segments", "topic_dirty_ratio"]) == {
        "topic_mergeable_segments": 0,
        "topic_dirty_ratio": 0,
    }


def test_partitions_are_shown_on_request(store: Store) -> None:
    topic = store.create_topic("orders", 2)
    fill(topic)
    topic.group("g").commit({0: 1})
    assert measured(store).of("partition_end_offset") is None
    found = measured(store, per_partition=True)
    for number, part in enumerate(topic.describe().partitions):
        values = {
            "partition_end_offset": part.end,
            "partition_log_start_offset": part.log_start,
            "partition_records": part.records,
            "partition_size_bytes": part.size_bytes,
            "group_partition_lag_records": topic.group("g").lag()[number].records,
        }
        assert found.each(values, partition=str(number)) == values


@pytest.mark.records_in("commits", "files")
def test_the_lag_of_a_group_is_that_of_the_library(store: Store, clock: Clock) -> None:
    """In records, and in seconds where each record is a segment."""
    topic = store.create_topic("orders", 2)
    for number in range(6):
        given = {"partition": ints(number % 2), "timestamp": times(number * 1_000)}
        topic.append(kafka([f"k{number}"], **given))
    clock.tick(60_000)
    groups = {"new": {}, "half": {0: 1, 1: 2}, "done": {0: 3, 1: 3}, "ahead": {0: 99}}
    for name, positions in groups.items():
        topic.group(name).commit(positions or {0: 0})
    found = measured(store)
    for name in groups:
        lag = topic.group(name).lag()
        assert found.of("group_lag_records", group=name) == lag.records
        assert found.of("group_lag_seconds", group=name) == pytest.approx(lag.seconds)
        assert found.of("group_up", group=name, topic="orders") == 1
    assert found.of("group_lag_records", group="half") == 3
    assert found.of("group_lag_seconds", group="done") == 0


def test_the_lag_counts_holes_and_takes_times_in_proportion(clock: Clock) -> None:
    """In the segment that the position cuts; whatever is after it is exact, in leaves as well."""
    store = make_store(clock=clock, limits=SMALL, in_files=True)
    topic = store.create_topic("users", config={"cleanup.policy": "compact"})
    for first in range(0, 120, 10):
        keys = [f"k{first + n}" for n in range(10)]
        topic.append(kafka(keys, timestamp=times(*[(first + n) * 1_000 for n in range(10)])))
    make_holes(topic, kept=range(0, 120, 2))
    topic._log.manifest.write_root(topic._log.latest(), topic._log.runtime.new_id)
    assert topic.at().snapshot.leaves
    clock.tick(1_000_000)
    for position in (0, 4, 5, 60, 63, 118):
        topic.group(f"at{position}").commit({0: position})
        found, lag = measured(store), topic.group(f"at{position}").lag()
        assert found.of("group_lag_records", group=f"at{position}") == pytest.approx(
            lag.records, abs=1
        )
        assert found.of("group_lag_seconds", group=f"at{position}") == pytest.approx(
            lag.seconds, abs=2
        )


def test_live_members_are_counted(store: Store, clock: Clock) -> None:
    topic = store.create_topic("orders", 2)
    consumers = [topic.consumer("g", member=name) for name in ("a", "b")]
    for consumer in consumers:
        consumer.poll()
    assert measured(store).of("group_members", group="g") == 2
    clock.tick(DAY_MS)
    assert measured(store).of("group_members", group="g") == 0


def test_a_published_table_says_how_long_its_oldest_append_waits(
    store: Store, clock: Clock
) -> None:
    topic = store.create_topic("orders", config={"publish.formats": "delta"})
    topic.append(kafka(["a"]))
    names = ["publication_up", "publication_lag_records", "publication_lag_seconds"]
    absent = measured(store).each(names, format="delta")
    assert absent == {names[0]: 0, names[1]: None, names[2]: None}
    topic.publish()
    clock.tick(3_600_000)
    assert measured(store).each(names) == dict(zip(names, (1, 0, 0), strict=True))
    topic.alter(config={"retention.ms": -1})  # shows no row that the table has not
    clock.tick(3_600_000)
    assert measured(store).each(names) == dict(zip(names, (1, 0, 0), strict=True))
    topic.append(kafka(["b", "c"]))
    clock.tick(7_000)
    topic.append(kafka(["d"]))
    assert measured(store).each(names) == dict(zip(names, (1, 3, 7), strict=True))


def test_a_damaged_topic_does_not_hide_the_others(
    store: Store, objects: MemoryStore, clock: Clock
) -> None:
    for name in ("broken", "orders"):
        fill(store.create_topic(name))
    objects.below("broken").write("_manifest/00000000000000000004.json", b"{")
    objects.below("broken").delete("_manifest/_head.json")
    errors: list[Exception] = []
    found = Values(store_metrics(make_store(objects, clock), on_error=errors.append))
    assert found.of("topic_up", topic="broken") == 0
    assert found.of("topic_records", topic="broken") is None
    assert found.of("topic_records", topic="orders") == 12
    assert [type(error).__name__ for error in errors] == ["CorruptTopicError"]


def test_a_damaged_group_does_not_hide_the_others(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("orders")
    for name in ("bad", "good"):
        topic.group(name).commit({0: 0})
    objects.below("orders").write("_groups/bad/00000000000000000000.json", b"{")
    found = measured(store)
    assert found.of("group_up", group="bad") == 0
    assert found.of("group_lag_records", group="bad") is None
    assert found.of("group_lag_records", group="good") == 0


def test_a_store_that_fails_is_down(objects: MemoryStore, clock: Clock) -> None:
    failing = FailingStore(objects)
    store = make_store(failing, clock)
    fill(store.create_topic("orders"))
    errors: list[Exception] = []
    watch = StoreWatch(store, on_error=errors.append)
    assert text(watch).of("topic_up") == 1
    failing.fails = lambda verb, key: True
    watch = StoreWatch(make_store(failing, clock), on_error=errors.append)
    assert text(watch).of("store_up") == 0
    assert text(watch).topics() == set()
    assert len(errors) == 1  # the second text is from memory


def test_a_topic_comes_back_when_the_store_does(objects: MemoryStore, clock: Clock) -> None:
    failing = FailingStore(objects)
    store = make_store(failing, clock)
    fill(store.create_topic("orders"))
    down = [False]
    failing.fails = lambda verb, key: down[0]
    watch = StoreWatch(make_store(failing, clock))
    seen = []
    for is_down in (False, True, False):
        down[0] = is_down
        seen.append(text(watch).each(["topic_up", "topic_records"], topic="orders"))
        clock.tick(LOOK_MS)
    assert seen == [
        {"topic_up": 1, "topic_records": 12},
        {"topic_up": 0, "topic_records": None},
        {"topic_up": 1, "topic_records": 12},
    ]


def test_topic_named_as_the_folder_of_commits_does_not_make_its_store_a_topic(
    store: Store, clock: Clock
) -> None:
    fill(store.create_topic("_manifest"))
    assert text(StoreWatch(store)).of("topic_records", topic="_manifest") == 12
    loop = driven(store, clock)
    loop.go(1_000)
    assert {run.topic for run in loop.runs} == {"_manifest"}


def test_topics_come_and_go(store: Store, clock: Clock) -> None:
    watch = StoreWatch(store)
    store.create_topic("orders").append(kafka(["a"]))
    assert text(watch).topics() == {"orders"}
    store.create_topic("users")
    store.delete_topic("orders")
    clock.tick(RETRY_MS)
    assert text(watch).topics() == {"users"}
    store.create_topic("orders").append(kafka(["a", "b"]))
    clock.tick(RETRY_MS)
    assert text(watch).of("topic_records", topic="orders") == 2
    store.delete_topic("orders")
    store.create_topic("orders")
    clock.tick(LOOK_MS)
    assert text(watch).of("topic_records", topic="orders") == 0


def test_only_the_topics_that_are_asked_for_are_looked_at(store: Store, clock: Clock) -> None:
    names: list[str] = []
    watch = StoreWatch(store, names)
    for name in ("copy", "other"):
        fill(store.create_topic(name))
    assert text(watch).topics() == set()
    names.append("copy")
    clock.tick(MEASURE_MS)
    assert text(watch).topics() == {"copy"}


def test_topic_that_was_asked_for_and_is_not_there_is_not_up(store: Store, clock: Clock) -> None:
    """Nobody has asked for the other ones, which are deleted as well."""
    for name in ("named", "other"):
        fill(store.create_topic(name))
    watch, everything = StoreWatch(store, ["named", "never"]), StoreWatch(store)
    assert text(watch).each(["topic_up", "topic_records"], topic="never") == {
        "topic_up": 0,
        "topic_records": None,
    }
    assert text(everything).topics() == {"named", "other"}
    for name in ("named", "other"):
        store.delete_topic(name)
    clock.tick(AROUND_MS)
    assert text(watch).of("topic_up", topic="named") == 0
    assert text(everything).topics() == set()
    fill(store.create_topic("named"))
    clock.tick(AROUND_MS)
    assert text(watch).of("topic_up", topic="named") == 1


def test_store_that_had_topics_and_has_none_is_not_up(
    store: Store, objects: MemoryStore, clock: Clock
) -> None:
    """Its disk may not be mounted: then an empty folder is in its place."""
    watch = StoreWatch(store)
    found = [text(watch).of("store_up")]
    fill(store.create_topic("t"))
    clock.tick(AROUND_MS)
    found.append(text(watch).of("store_up"))
    put_back(objects, {})
    clock.tick(AROUND_MS)
    assert [*found, text(watch).of("store_up")] == [1, 1, 0]


def test_copy_that_is_still_to_be_created_is_not_missed(store: Store, clock: Clock) -> None:
    """A program adds its name when it begins. Later somebody deletes it."""
    names: list[str] = []
    watch = StoreWatch(store, names)
    names.append("copy")
    assert text(watch).topics() == set()
    store.create_topic("copy")
    clock.tick(AROUND_MS)
    assert text(watch).of("topic_up", topic="copy") == 1
    store.delete_topic("copy")
    clock.tick(AROUND_MS)
    assert text(watch).of("topic_up", topic="copy") == 0


def test_group_and_table_that_are_a_second_behind_never_seem_later(
    store: Store, clock: Clock
) -> None:
    """They are looked at every 30 s, and scraped every 15 s."""
    topic = store.create_topic("orders", config={"publish.formats": "delta"})
    group, watch = topic.group("g"), StoreWatch(store)
    seen = []
    for _ in range(6):
        topic.publish()
        group.commit(topic.end_offsets())
        topic.append(kafka(["a"]))
        clock.tick(1_000)
        found = text(watch)
        seen += [found.of("group_lag_seconds"), found.of("publication_lag_seconds")]
        clock.tick(14_000)
    assert seen == pytest.approx([1.0] * 12, abs=0.01)


def store_that_measures_in(seconds: float, clock: Clock) -> Store:
    """A store with small leaves, to measure which seems to take so long."""
    ticks = itertools.count()
    objects = MemoryStore().with_limits(SMALL)
    usual = make_store(objects, clock)._runtime
    return Store(objects, replace(usual, monotonic=lambda: next(ticks) * seconds))


def test_leaves_are_measured_every_few_minutes_only(clock: Clock) -> None:
    store = store_that_measures_in(0.1, clock)
    topic = store.create_topic("orders", config=IN_FILES)
    fill(topic, 20)
    watch = StoreWatch(store)
    assert text(watch).of("topic_small_segments") == 20
    fill(topic, 20)
    clock.tick(MEASURE_MS - 1)
    assert text(watch).each(["topic_segments", "topic_small_segments"]) == {
        "topic_segments": 40,
        "topic_small_segments": 20,
    }
    clock.tick(LOOK_MS)
    assert text(watch).of("topic_small_segments") == 40


@pytest.fixture
def gate() -> Iterator[Event]:
    """Requests of the slow store wait while it is not set."""
    gate = Event()
    gate.set()
    yield gate
    gate.set()


@pytest.fixture
def slow(objects: MemoryStore, gate: Event, clock: Clock) -> Store:
    """A store whose looks are in the background, as they are in a program."""
    waiting = FailingStore(objects)
    waiting.fails = lambda verb, key: not gate.wait(60)
    return Store(waiting, replace(runtime(clock), later=Runtime().later))


def test_scrapes_are_answered_from_memory_while_a_look_takes_long(
    slow: Store, gate: Event, clock: Clock
) -> None:
    """And none of them begins another one."""
    topic = slow.create_topic("orders")
    topic.append(kafka(["a"]))
    watch = StoreWatch(slow, wait_seconds=0)
    assert text(watch).of("topic_records") == 1
    topic.append(kafka(["b"]))
    clock.tick(LOOK_MS)
    gate.clear()
    looks = set()
    for _ in range(3):
        assert text(watch).of("topic_records") == 1
        looks.add(watch._looking)
        clock.tick(LOOK_MS)
    assert len(looks) == 1
    gate.set()
    watch._looking.result(60)
    assert text(watch).of("topic_records") == 2
    topic.append(kafka(["c"]))
    clock.tick(LOOK_MS - 1)  # from its end: a store is not looked at all the time
    assert text(watch).of("topic_records") == 2
    assert {watch._looking} == looks


def test_what_is_known_is_not_shown_for_ever(slow: Store, gate: Event, clock: Clock) -> None:
    """A scrape that gets nothing is an alert. One that gets old figures looks as if all were
    well."""
    slow.create_topic("orders")
    watch = StoreWatch(slow, wait_seconds=0)
    text(watch)
    clock.tick(OLD_MS)
    gate.clear()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(watch.samples)
        assert not wait([answer], 0.2).done
        gate.set()
        assert answer.result(60)


def test_the_same_as_json(store: Store) -> None:
    fill(store.create_topic("orders"))
    found = {one["name"]: one for one in store_metrics_json(store)}
    assert found["pylogtable_topic_records"]["type"] == "gauge"
    assert found["pylogtable_topic_records"]["samples"] == [
        {"labels": {"store": store.url, "topic": "orders"}, "value": 12}
    ]


def test_what_takes_long_to_measure_is_measured_more_rarely(clock: Clock) -> None:
    """A topic whose leaves take 12 s is left alone for ten minutes."""
    store = store_that_measures_in(12, clock)
    topic = store.create_topic("orders", config=IN_FILES)
    fill(topic, 20)
    watch = StoreWatch(store)
    for tick_ms, small in ((0, 20), (MEASURE_MS, 20), (MEASURE_MS, 22)):
        clock.tick(tick_ms)
        assert text(watch).of("topic_small_segments") == small
        topic.append(kafka(["a"]))
