"""Polling, committing and seeking in a group, alone and with static members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import (
    CommitConflictError,
    Consumer,
    InvalidRequestError,
    OffsetOutOfRangeError,
    StorageError,
    Topic,
    TopicNotFoundError,
)
from pylogtable.groups.starting_point import parse_policy
from pylogtable.read.position import parse_position
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, at, ints, kafka, limited, make_store, rows, runtime, times
from tests.stores import CountingStore, Fault, FaultyStore


def fill(topic: Topic, *counts: int) -> None:
    """Append so many records to each partition. Each value is "partition:number"."""
    ends = topic.end_offsets()
    places = [(p, ends[p] + n) for p, count in enumerate(counts) for n in range(count)]
    values = [f"{partition}:{offset}" for partition, offset in places]
    keys = [f"k{offset}" for _, offset in places]
    topic.append(kafka(keys, values, partition=ints(*(partition for partition, _ in places))))


def drain(consumer: Consumer, max_records: int | None = None) -> list[str]:
    found = []
    while (table := consumer.poll(max_records=max_records)).num_rows:
        found += [value.decode() for value in rows(table, "value")]
    return found


def of_partition(values: list[str], partition: int) -> list[int]:
    pairs = [value.split(":") for value in values]
    return [int(offset) for number, offset in pairs if int(number) == partition]


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=3)
    fill(topic, 5, 0, 20)
    fill(topic, 5, 3, 0)
    return topic


@pytest.mark.parametrize("max_records", [1, 2, 7, 500])
def test_every_record_is_polled_once_in_order(topic: Topic, max_records: int) -> None:
    with topic.consumer("g") as consumer:
        found = drain(consumer, max_records)
        assert [of_partition(found, p) for p in range(3)] == [
            list(range(10)),
            list(range(3)),
            list(range(20)),
        ]
        assert consumer.assignment() == (0, 1, 2)
        assert [consumer.position(p) for p in range(3)] == [10, 3, 20]
        assert consumer.poll().schema.equals(topic.schema)
        fill(topic, 1, 1, 0)
        assert sorted(drain(consumer)) == ["0:10", "1:3"]


@pytest.mark.parametrize("into", [0, 1, 2])
@pytest.mark.parametrize("max_records", [1, 3, 11, 33])
def test_poll_is_empty_only_if_there_is_no_record(
    topic: Topic, max_records: int, into: int
) -> None:
    """Also if the last batch was exactly the rest of what was known."""
    with topic.consumer("g") as consumer:
        assert len(drain(consumer, max_records)) == 33
    again = topic.consumer("h")
    left = 33
    while left:
        left -= again.poll(max_records=max_records).num_rows
    for _ in range(3):
        fill(topic, *[int(number == into) for number in range(3)])
        assert again.poll().num_rows == 1


@pytest.mark.parametrize("limit", [2**63, 10**400])
def test_limits_may_be_any_number(topic: Topic, limit: int) -> None:
    with topic.consumer("g") as consumer:
        assert consumer.poll(limit, max_records=limit).num_rows == topic.count()


@pytest.mark.parametrize("max_records", [1, 6, 9])
def test_partitions_are_served_evenly(topic: Topic, max_records: int) -> None:
    fill(topic, 90, 97, 80)
    consumer = topic.consumer("g")
    found: list[str] = []
    while len(found) < 150:
        found += [v.decode() for v in rows(consumer.poll(max_records=max_records), "value")]
        counts = [len(of_partition(found, p)) for p in range(3)]
        assert max(counts) - min(counts) <= max_records


def test_partitions_take_turns_if_there_are_more_than_can_be_open(store: Store) -> None:
    store = limited(store, open_partitions=2, turn_records=10)
    topic = store.create_topic("t", partitions=5)
    fill(topic, *[100] * 5)
    consumer = topic.consumer("g", max_records=4)
    found: list[str] = []
    for _ in range(25):
        found += [v.decode() for v in rows(consumer.poll(), "value")]
        assert len(consumer._fetcher._streams) <= 2
    counts = [len(of_partition(found, p)) for p in range(5)]
    assert max(counts) - min(counts) <= 12
    found += drain(consumer)
    assert all(of_partition(found, p) == list(range(100)) for p in range(5))


def test_next_consumer_continues_at_the_committed_positions(topic: Topic) -> None:
    with topic.consumer("g", max_records=10) as first:
        before = first.poll()
        assert first.commit() == {p: first.position(p) for p in range(3)}
        first.poll()  # and is not committed
    assert topic.group("g").positions() == {
        p: len(of_partition([v.decode() for v in rows(before, "value")], p)) for p in range(3)
    }
    second = topic.consumer("g")
    after = drain(second)
    assert len(after) == 33 - before.num_rows
    assert not set(after) & {value.decode() for value in rows(before, "value")}


def test_only_explicit_commits_are_made(topic: Topic) -> None:
    group = topic.group("g")
    consumer = topic.consumer("g")
    drain(consumer)
    assert topic.groups() == []
    assert consumer.commit({2: 7}, metadata="half") == {2: 7}
    assert group.positions() == {2: 7}
    consumer.close()
    assert group.positions() == {2: 7}
    with pytest.raises(InvalidRequestError, match="is closed"):
        consumer.commit()
    again = topic.consumer("g")
    assert [again.position(p) for p in range(3)] == [0, 0, 7]
    drain(again)
    again.close(commit=True)
    again.close()
    assert group.positions() == {0: 10, 1: 3, 2: 20}


def test_commit_without_progress_writes_nothing(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t")
    fill(topic, 3)
    consumer = topic.consumer("g")
    drain(consumer)
    consumer.commit()
    before = len(list(objects.list()))
    assert consumer.commit() == {}
    assert len(list(objects.list())) == before


@pytest.mark.parametrize(
    ("positions", "why"),
    [({3: 1}, "no partition 3"), ({0: -1}, "must be 0 to"), ({0: "x"}, "not a position")],
)
def test_invalid_positions_are_refused(topic: Topic, positions: Any, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        topic.consumer("g").commit(positions)


def test_static_members_share_partitions_and_commit_independently(topic: Topic) -> None:
    one, other = topic.consumer("g", (0, 2)), topic.consumer("g", member=(1, 2))
    assert (one.assignment(), other.assignment()) == ((0, 2), (1,))
    mine, others = drain(one), drain(other)
    assert (len(mine), len(others)) == (30, 3)
    one.commit()
    other.commit()
    fill(topic, 1, 1, 1)
    drain(one)
    drain(other)
    one.commit()
    other.commit()
    assert topic.group("g").positions() == topic.end_offsets()
    with pytest.raises(InvalidRequestError, match="partition 1 is not assigned"):
        one.commit({1: 0})
    assert one.member is None
    assert topic.consumer("g", (3, 5)).assignment() == ()


def test_conflicting_commit_is_refused_and_consumer_starts_again(topic: Topic) -> None:
    one, other = topic.consumer("g"), topic.consumer("g", max_records=4)
    drain(one)
    other.poll()
    other.commit()
    with pytest.raises(CommitConflictError, match="was moved by another"):
        one.commit()
    with pytest.raises(CommitConflictError, match="was moved by another"):
        one.commit({0: 10})
    before = topic.group("g").positions()
    assert one.commit() == {}  # what it had read does not count any more
    assert topic.group("g").positions() == before
    assert len(drain(one)) == 29
    one.commit()
    assert topic.group("g").positions() == topic.end_offsets()


@pytest.mark.parametrize(
    "member", [(2, 2), (-1, 2), (0, 0), (0,), (True, 2), 3, ("a", "b"), "", "a/b", "."]
)
def test_invalid_members_are_refused(topic: Topic, member: Any) -> None:
    with pytest.raises(InvalidRequestError, match="member"):
        topic.consumer("g", member)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_records", 0),
        ("max_records", True),
        ("columns", ["valeu"]),
        ("columns", []),
        ("lease_ms", 0),
        ("lease_ms", "30s"),
        ("auto_offset_reset", "smallest"),
    ],
)
def test_invalid_settings_are_refused(topic: Topic, name: str, wrong: Any) -> None:
    with pytest.raises(InvalidRequestError):
        topic.consumer("g", **{name: wrong})
    with pytest.raises(InvalidRequestError, match="group name"):
        topic.consumer("a/b")


class TestBeginning:
    def test_consumer_starts_at_earliest_or_latest(self, topic: Topic) -> None:
        topic.delete_records({0: 4})
        assert topic.consumer("g").position(0) == 4
        latest = topic.consumer("g", auto_offset_reset="latest")
        assert [latest.position(p) for p in range(3)] == [10, 3, 20]
        assert drain(latest) == []
        fill(topic, 1, 0, 0)
        assert drain(latest) == ["0:10"]

    def test_none_needs_a_committed_position(self, topic: Topic) -> None:
        consumer = topic.consumer("g", auto_offset_reset="none")
        for _ in range(2):
            with pytest.raises(InvalidRequestError, match="no position for partition 0"):
                consumer.poll()
        for partition in range(3):
            consumer.seek(partition, "earliest")
        assert len(drain(consumer)) == 33
        topic.group("h").commit({0: 10, 1: 3, 2: 19})
        assert drain(topic.consumer("h", auto_offset_reset="none")) == ["2:19"]

    def test_by_duration_starts_at_the_first_record_since_then(
        self, store: Store, clock: Clock
    ) -> None:
        topic = store.create_topic("t", partitions=2)
        topic.append(kafka(["a"] * 4, timestamp=times(0, 10, 20, 30), partition=ints(0, 0, 0, 0)))
        topic.append(kafka(["a"], timestamp=times(0), partition=ints(1)))
        clock.tick(1020)
        consumer = topic.consumer("g", auto_offset_reset="by_duration:PT1S")
        assert [consumer.position(p) for p in range(2)] == [2, 1]
        clock.tick(3_600_000)
        assert topic.consumer("g", auto_offset_reset="by_duration:P1D").position(0) == 0

    def test_position_outside_the_log_is_reset(self, topic: Topic) -> None:
        topic.group("g").commit({0: 2, 1: 99})
        topic.delete_records({0: 6})
        strict = topic.consumer("g", (1, 3), auto_offset_reset="none")
        with pytest.raises(OffsetOutOfRangeError) as caught:
            strict.poll()
        assert (caught.value.partition, caught.value.requested, caught.value.end) == (1, 99, 3)
        earliest = topic.consumer("g")
        assert [earliest.position(p) for p in range(3)] == [6, 0, 0]
        latest = topic.consumer("g", auto_offset_reset="latest")
        assert [latest.position(p) for p in range(3)] == [10, 3, 20]

    def test_position_that_retention_overtook_is_reset(
        self, topic: Topic, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        lenient = topic.consumer("g", (0, 3))
        strict = topic.consumer("h", (0, 3), auto_offset_reset="none")
        strict.seek(0, 2)
        lenient.seek(0, 2)
        store.topic("t").delete_records({0: 7})
        topic.append(kafka(["a"], ["0:10"], partition=ints(0)))
        # What is known is read as it was; that is not what is tested here.
        lenient._view = strict._view = topic.at()
        with pytest.raises(OffsetOutOfRangeError, match="offset 2 of partition 0"):
            strict.poll()
        with pytest.raises(OffsetOutOfRangeError):
            strict.poll()
        assert drain(lenient) == ["0:7", "0:8", "0:9", "0:10"]
        assert "position 2 of partition 0" in caplog.text
        strict.seek(0, 9)
        assert drain(strict) == ["0:9", "0:10"]

    def test_new_partitions_are_read_from_their_beginning(self, topic: Topic) -> None:
        """Also with `latest`: all their records are newer than the consumer."""
        consumer = topic.consumer("g", auto_offset_reset="latest")
        static = topic.consumer("h", (1, 2), auto_offset_reset="latest")
        assert drain(consumer) == drain(static) == []
        topic.alter(partitions=5)
        fill(topic, 0, 0, 0, 2, 2)
        assert sorted(drain(consumer)) == ["3:0", "3:1", "4:0", "4:1"]
        assert drain(static) == ["3:0", "3:1"]
        assert (consumer.assignment(), static.assignment()) == ((0, 1, 2, 3, 4), (1, 3))


def test_a_policy_by_duration_takes_every_duration() -> None:
    for text in ("PT1H", "60m"):
        assert parse_policy(f"by_duration:{text}") == parse_position(timedelta(hours=1))
    for text in ("", "P1M", "earliest"):
        with pytest.raises(InvalidRequestError, match="duration"):
            parse_policy(f"by_duration:{text}")


@pytest.mark.parametrize("policy", ["", "by_duration", "Earliest", None, 5])
def test_bad_policies_are_refused(policy: Any) -> None:
    with pytest.raises(InvalidRequestError, match="auto_offset_reset"):
        parse_policy(policy)


class TestMoving:
    def test_seek_changes_the_position(self, store: Store) -> None:
        topic = store.create_topic("t")
        stamps = times(*range(0, 100, 10))
        topic.append(kafka(["k"] * 10, [f"0:{n}" for n in range(10)], timestamp=stamps))
        consumer = topic.consumer("g", max_records=3)
        targets: list[tuple[Any, int]] = [
            (8, 8), ("earliest", 0), (at(35), 4), ("latest", 10), (at(1000), 10), (10, 10),
            ("-3", 7), ("5", 5),
        ]  # fmt: skip
        for target, offset in targets:
            consumer.seek(0, target)
            assert consumer.position(0) == offset
            expected = [f"0:{n}" for n in range(offset, 10)]
            assert drain(consumer) == expected
        assert topic.groups() == []
        topic.append(kafka(["k"], ["0:10"]))
        consumer.seek(0, 11)

    @pytest.mark.parametrize("target", [-1, 11, "11", "middle", 1.5, None, True])
    def test_invalid_seek_is_refused(self, topic: Topic, target: Any) -> None:
        consumer = topic.consumer("g")
        with pytest.raises(InvalidRequestError):
            consumer.seek(0, target)
        assert consumer.position(0) == 0

    def test_paused_partitions_are_not_polled(self, topic: Topic) -> None:
        consumer = topic.consumer("g", max_records=6)
        first = [v.decode() for v in rows(consumer.poll(), "value")]
        consumer.pause([0, 2])
        found = first + drain(consumer)
        assert of_partition(found, 1) == [0, 1, 2]
        assert len(of_partition(found, 0)) == len(of_partition(first, 0))
        consumer.resume(2)
        found += drain(consumer)
        assert of_partition(found, 2) == list(range(20))
        consumer.resume([0])
        found += drain(consumer)
        assert of_partition(found, 0) == list(range(10))

    def test_calls_on_unassigned_partitions_are_refused(self, topic: Topic) -> None:
        consumer = topic.consumer("g", (0, 2))
        calls: list[Callable[[], object]] = [
            lambda: consumer.seek(1, 0),
            lambda: consumer.position(1),
            lambda: consumer.pause([0, 1]),
            lambda: consumer.resume(7),
        ]
        for call in calls:
            with pytest.raises(InvalidRequestError, match=r"is not assigned.*it has 0, 2"):
                call()
        assert len(drain(consumer)) == 30

    def test_holes_are_skipped(self, store: Store, clock: Clock) -> None:
        """Also at the end of the log, where compaction removed a tombstone."""
        config = {"cleanup.policy": "compact", "delete.retention.ms": 0}
        topic = store.create_topic("t", config=config)
        for round_ in range(4):
            topic.append(kafka(["a", "b", "c"], [f"{round_}{k}" for k in "abc"]))
        topic.append(kafka(["z"], [None]))
        for _ in range(2):
            topic.compact(force=True)
            clock.tick(1_000)
            topic.append(kafka(["z"], [None]))
        topic.compact(force=True)
        clock.tick(1_000)
        topic.compact(force=True)
        last = rows(topic.read(), "offset")[-1]
        assert last < topic.end_offsets()[0] - 1
        consumer = topic.consumer("g", max_records=1)
        consumer.seek(0, 1)
        assert rows(consumer.poll(), "offset") == [9]
        assert consumer.position(0) == 10
        assert [rows(t, "offset") for t in consumer] == [[10], [11]]
        assert consumer.position(0) == topic.end_offsets()[0]
        consumer.commit()
        assert topic.group("g").lag().records == 0


class TestColumns:
    def test_only_selected_columns_are_polled(self, topic: Topic) -> None:
        consumer = topic.consumer("g", columns=["value", "topic"], max_records=10)
        table = consumer.poll()
        assert table.column_names == ["value", "topic"]
        assert table.num_rows == 10
        assert sum(consumer.position(p) for p in range(3)) == 10

    def test_added_columns_appear(self, topic: Topic) -> None:
        consumer = topic.consumer("g", max_records=3)
        consumer.poll()
        topic.alter(add_columns={"extra": pa.int64()})
        topic.append(pa.table({"extra": [7], "partition": [1]}))
        tables = list(consumer)
        assert sum(t.num_rows for t in tables) == 31
        assert [rows(t, "extra").count(7) for t in tables if "extra" in t.column_names].count(
            1
        ) == 1
        assert "extra" in tables[-1].column_names


class TestFollowing:
    def follower(
        self, objects: ObjectStore, meanwhile: Callable[[float], None], **how: Any
    ) -> Consumer:
        """A consumer that calls `meanwhile` instead of waiting. Only that moves its clock."""
        self.seconds = 0.0

        def pause(seconds: float) -> None:
            self.seconds += seconds
            meanwhile(seconds)

        own = replace(runtime(), pause=pause, monotonic=lambda: self.seconds)
        return Store(objects, own).topic("t").consumer("g", **how)

    @pytest.mark.records_in("commits", "files")
    def test_follow_waits_for_new_records_with_growing_pauses(
        self, topic: Topic, objects: MemoryStore, in_files: bool
    ) -> None:
        waits: list[float] = []
        counting = CountingStore(objects)

        def meanwhile(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 12:
                fill(topic, 1, 0, 0)

        consumer = self.follower(counting, meanwhile, follow=True)
        assert consumer.poll().num_rows == 33
        counting.reset()
        assert rows(consumer.poll(), "value") == [b"0:10"]
        assert waits[:4] == [0.01, 0.02, 0.04, 0.08]
        assert max(waits) == 1.0
        # Each look reads the next commit and the known one. If that has records, a vacuum may have
        # kept it: then also where the state began. The last look finds a record, and looks once
        # more.
        reads = 2 if in_files else 3
        assert counting.counts["read"] == reads * (len(waits) + 1) + 1
        assert not counting.counts["list"]
        waits.clear()
        assert consumer.poll(timeout=0).num_rows == 0
        assert waits == []

    def test_record_on_a_local_disk_is_seen_at_once(self, tmp_path: Path) -> None:
        """The next look would come after a second, as it does elsewhere."""
        topic = make_store(LocalStore(tmp_path)).create_topic("t")

        def meanwhile(seconds: float) -> None:
            if self.seconds >= 10 and topic.version == 0:
                topic.append(kafka(["k"], ["v"]))

        consumer = self.follower(LocalStore(tmp_path), meanwhile, follow=True)
        assert rows(consumer.poll(), "value") == [b"v"]
        assert 10 <= self.seconds <= 10.03
        assert consumer.poll(timeout=3).num_rows == 0
        assert self.seconds == pytest.approx(13, abs=0.06)

    def test_poll_waits_up_to_its_timeout(self, topic: Topic, objects: MemoryStore) -> None:
        waits: list[float] = []
        consumer = self.follower(objects, waits.append)
        assert consumer.poll().num_rows == 33
        assert consumer.poll().num_rows == 0
        assert waits == []
        assert consumer.poll(timeout=0.05).num_rows == 0
        assert sum(waits) == pytest.approx(0.05)
        follower = self.follower(objects, waits.append, follow=True, auto_offset_reset="latest")
        waits.clear()
        assert follower.poll(timeout=3).num_rows == 0
        assert sum(waits) == pytest.approx(3)

    def test_iteration_ends_unless_follow_is_set(self, topic: Topic, objects: MemoryStore) -> None:
        assert [t.num_rows for t in topic.consumer("g", max_records=20)] == [20, 13]
        rounds = 0

        def meanwhile(seconds: float) -> None:
            nonlocal rounds
            rounds += 1
            fill(topic, 1, 0, 0)

        consumer = self.follower(objects, meanwhile, follow=True)
        seen = 0
        for table in consumer:
            seen += table.num_rows
            if seen == 36:
                consumer.close()
        assert rounds == 3


@pytest.mark.records_in("files")
def test_failed_poll_moves_no_position(topic: Topic, objects: MemoryStore) -> None:
    fails = True

    def decide(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if fails and verb == "open_input" and "partition=2" in key else None

    consumer = make_store(FaultyStore(objects, decide)).topic("t").consumer("g")
    for _ in range(3):
        with pytest.raises(StorageError):
            consumer.poll()
    assert [consumer.position(p) for p in range(3)] == [0, 0, 0]
    fails = False
    found = drain(consumer)
    assert [len(of_partition(found, p)) for p in range(3)] == [10, 3, 20]


def test_segments_may_be_rewritten_while_they_are_read(topic: Topic) -> None:
    for _ in range(5):
        fill(topic, 10, 10, 10)
    consumer = topic.consumer("g", max_records=9)
    found = [v.decode() for v in rows(consumer.poll(), "value")]
    topic.merge()
    topic.vacuum(dry_run=False)
    found += drain(consumer)
    assert [len(of_partition(found, p)) for p in range(3)] == [60, 53, 70]


def test_consumer_of_a_deleted_topic_fails(topic: Topic, store: Store) -> None:
    consumer = topic.consumer("g")
    drain(consumer)
    store.delete_topic("t")
    with pytest.raises(TopicNotFoundError):
        consumer.poll()


def test_repr_and_calls_after_close(topic: Topic) -> None:
    consumer = topic.consumer("g")
    consumer.poll()
    assert repr(consumer) == "<Consumer of topic 't' in group 'g', partitions [0, 1, 2]>"
    consumer.close()
    assert "closed" in repr(consumer)
    with pytest.raises(InvalidRequestError, match="is closed"):
        consumer.poll()
    with pytest.raises(InvalidRequestError, match="is closed"):
        consumer.seek(0, 0)
    assert list(consumer) == []


def test_with_block_that_raises_commits_nothing(topic: Topic) -> None:
    with pytest.raises(ZeroDivisionError), topic.consumer("g") as consumer:
        raise ZeroDivisionError(consumer.poll())
    assert topic.groups() == []


def test_second_nameless_consumer_is_told_how_to_share_the_partitions(topic: Topic) -> None:
    topic.append(kafka(["k"]))
    one, other = topic.consumer("g"), topic.consumer("g")
    assert len(drain(one)) == len(drain(other))
    one.commit()
    with pytest.raises(CommitConflictError, match='member="worker-a": they share the partitions'):
        other.commit()
