"""Retention: Kafka's tests, exactly."""

from __future__ import annotations

import pytest

from pylogtable import Store, Topic
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, kafka, rows, times

pytestmark = pytest.mark.records_in("commits", "files")

WEEK = 7 * 86_400_000


def put(topic: Topic, count: int, at_ms: int) -> None:
    topic.append(kafka(["k"] * count, timestamp=times(*[at_ms] * count)))


@pytest.mark.parametrize("count", [0, 1, 15, 25])
def test_all_records_expire_and_offsets_go_on(store: Store, clock: Clock, count: int) -> None:
    topic = store.create_topic("t", config={"retention.ms": 1000})
    if count:
        put(topic, count, 0)
    clock.tick(1001)
    assert topic.apply_retention().records_removed == count
    assert topic.start_offsets() == topic.end_offsets() == {0: count}
    assert topic.apply_retention().segments_removed == 0
    assert topic.append(kafka(["k"])).offsets == {0: (count, count + 1)}
    assert topic.verify(data=True)


@pytest.mark.parametrize(("policy", "removed"), [("compact", 0), ("compact,delete", 5)])
def test_only_a_policy_with_delete_removes_records(
    store: Store, clock: Clock, policy: str, removed: int
) -> None:
    config = {"cleanup.policy": policy, "retention.ms": 1000}
    topic = store.create_topic("t", config=config)
    put(topic, 5, 0)
    clock.tick(5000)
    assert topic.apply_retention().records_removed == removed


def test_a_segment_exactly_at_retention_ms_is_kept(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", config={"retention.ms": 1000})
    put(topic, 1, 0)
    clock.tick(1000)
    assert topic.apply_retention().log_starts == {}
    clock.tick(1)
    assert topic.apply_retention().log_starts == {0: 1}


def test_the_default_retention_is_a_week(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t")
    put(topic, 1, 0)
    clock.tick(WEEK)
    assert not topic.apply_retention().log_starts
    clock.tick(1)
    assert topic.apply_retention().log_starts == {0: 1}


def test_one_young_record_keeps_its_segment_and_all_after_it(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", config={"retention.ms": 1000})
    put(topic, 2, 0)
    topic.append(kafka(["a", "b"], timestamp=times(0, 10_000)))
    put(topic, 2, 0)
    clock.tick(5000)
    assert topic.apply_retention().log_starts == {0: 2}
    assert rows(topic.read(), "offset") == [2, 3, 4, 5]


def test_retention_by_size_leaves_at_least_retention_bytes(store: Store) -> None:
    topic = store.create_topic("t", config={"retention.ms": -1})
    for _ in range(4):
        put(topic, 10, 0)
    sizes = topic.segments()["size_bytes"].to_pylist()
    topic.alter(config={"retention.bytes": sum(sizes[2:])})
    assert topic.apply_retention().log_starts == {0: 20}
    topic.alter(config={"retention.bytes": sizes[2] + sizes[3] - 1})
    assert not topic.apply_retention().log_starts
    topic.alter(config={"retention.bytes": 0})
    assert topic.apply_retention().log_starts == {0: 40}


def test_files_that_a_reader_still_needs_are_kept(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", partitions=1, config={"retention.ms": 1000})
    for _ in range(3):
        put(topic, 10, 0)
    clock.tick(5000)
    assert topic.apply_retention(keep_from={0: 15}).log_starts == {0: 10}
    assert topic.apply_retention(keep_from={0: 100}).log_starts == {0: 30}


def test_report_and_history_say_what_was_removed(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", config={"retention.ms": 1000})
    put(topic, 3, 0)
    size = topic.segments()["size_bytes"].to_pylist()[0]
    clock.tick(5000)
    report = topic.apply_retention()
    assert (report.segments_removed, report.records_removed, report.bytes_removed) == (1, 3, size)
    newest = topic.history(1).to_pylist()[0]
    assert newest["operation"] == "retention"
    assert dict(newest["summary"])["records_removed"] == 3


@pytest.mark.parametrize("compacted", [False, True])
def test_records_that_were_deleted_before_are_not_counted_again(
    store: Store, clock: Clock, compacted: bool
) -> None:
    config = {"retention.ms": 1000, "cleanup.policy": "compact,delete"}
    topic = store.create_topic("t", config=config)
    keys = [str(n % 8 if compacted else n) for n in range(10)]
    topic.append(kafka(keys, timestamp=times(*[0] * 10)))
    if compacted:
        topic.compact(force=True)  # offsets 0 and 1 are holes now
    topic.delete_records({0: 7})
    assert len(topic.segments()) == 1
    clock.tick(5000)
    foreseen, planned = topic.apply_retention(dry_run=True), topic.maintain(dry_run=True)
    done = topic.apply_retention()
    assert planned.retention is not None
    assert planned.retention.records_removed == foreseen.records_removed == 3
    assert (done.records_removed, done.segments_removed) == (3, 1)


def test_a_damaged_file_does_not_stop_retention(
    store: Store, clock: Clock, objects: MemoryStore
) -> None:
    config = {"retention.ms": 1000, "cleanup.policy": "compact,delete"}
    topic = store.create_topic("t", config=config)
    topic.append(kafka(["a", "a", "b"], timestamp=times(0, 0, 0)))
    topic.compact(force=True)
    topic.delete_records({0: 2})
    clock.tick(5000)
    (path,) = topic.segments()["path"].to_pylist()
    objects.delete(f"t/{path}")
    assert topic.apply_retention().log_starts == {0: 3}
