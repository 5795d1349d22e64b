"""What the usual operations cost on a store that is far away: requests, and how many of them have
to wait for each other. The numbers are in `benchmarks/README.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.tasks.staging import stage_rows
from tests.builders import IN_FILES, Clock
from tests.cost.round_trips import Cost, WiredStore
from tests.spark.writes import travelled

PARTITIONS = 6
COMMITS = 40
#: The first commit of a process proves that the one that it was planned on stands [COMMIT-9].
PROOF = {"read": 2}

Config = dict[str, object] | None


def records(count: int) -> pa.Table:
    return pa.table({"key": [b"%d" % n for n in range(count)], "value": [b"v" * 100] * count})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> WiredStore:
    return WiredStore(clock)


def opened(store: WiredStore, clock: Clock) -> Store:
    """The store as another process sees it, which has had no reply yet."""
    anew = WiredStore(clock, store._name)
    anew._line = store._line
    return Store(anew, Runtime(clock=clock))


class TestAppend:
    def test_a_warm_topic_is_not_asked_before_an_append(
        self, store: WiredStore, clock: Clock
    ) -> None:
        topic = opened(store, clock).create_topic("t", PARTITIONS, config=IN_FILES)
        for _ in range(3):
            clock.tick(59_999)
            cost = store.cost_of(lambda: topic.append(records(100)))
            assert cost.requests == {"write": PARTITIONS, "create": 1}
            assert cost.round_trips == 2

    def test_an_append_after_a_minute_asks_first(self, store: WiredStore, clock: Clock) -> None:
        topic = opened(store, clock).create_topic("t", PARTITIONS, config=IN_FILES)
        clock.tick(60_000)
        cost = store.cost_of(lambda: topic.append(records(100)))
        assert cost.requests == {"read": 3, "write": PARTITIONS, "create": 1}
        assert cost.round_trips == 4

    def test_a_lost_race_costs_three_round_trips(self, store: WiredStore, clock: Clock) -> None:
        """What took the version, whether there is more, and the put of the next version."""
        mine = opened(store, clock).create_topic("t", PARTITIONS, config=IN_FILES)
        opened(store, clock).topic("t").append(records(1))
        cost = store.cost_of(lambda: mine.append(records(100)))
        assert cost.requests == {"read": 3, "write": PARTITIONS, "create": 2}
        assert cost.round_trips == 5


def grown(store: WiredStore, clock: Clock, commits: int, config: Config = None) -> None:
    topic = opened(store, clock).create_topic("t", PARTITIONS, config=config)
    for _ in range(commits):
        topic.append(records(3))


class TestColdOpen:
    """Versions count from 0, so there is one commit more than appends."""

    @pytest.mark.parametrize(
        ("commits", "round_trips"),
        [(0, 1), (9, 1), (COMMITS, 2), (63, 3), (64, 2), (70, 2), (100, 3)],
    )
    def test_opening_takes_few_round_trips(
        self, store: WiredStore, clock: Clock, commits: int, round_trips: int
    ) -> None:
        grown(store, clock, commits)
        cost = store.cost_of(lambda: opened(store, clock).topic("t"))
        assert set(cost.requests) == {"read"}
        assert cost.round_trips == round_trips

    @pytest.mark.parametrize("commits", [0, 9, COMMITS])
    def test_opening_and_appending_takes_at_most_four(
        self, store: WiredStore, clock: Clock, commits: int
    ) -> None:
        grown(store, clock, commits)
        cost = store.cost_of(lambda: opened(store, clock).topic("t").append(records(1)))
        assert cost.requests["create"] == 1
        assert cost.requests["read"] <= commits + 24
        assert cost.round_trips <= 4


class TestSink:
    def test_a_batch_is_one_put_and_one_for_the_lag(self, store: WiredStore, clock: Clock) -> None:
        """Its commit, and then the positions of the group."""
        logs = opened(store, clock)
        source, out = logs.create_topic("t", PARTITIONS), logs.create_topic("out")
        source.append(records(40))
        consumer = source.consumer("g", max_records=10)
        sink = out.sink(consumer)
        rows = [consumer.poll().select(["key", "value"])]
        sink.append(rows[0])
        for _ in range(2):
            rows.append(consumer.poll().select(["key", "value"]))
            cost = store.cost_of(lambda: sink.append(rows[-1]))
            assert cost.requests == {"create": 2}
            assert cost.round_trips == 2

    def test_a_restart_reads_the_commit_of_the_last_txn(
        self, store: WiredStore, clock: Clock
    ) -> None:
        """And looks whether there is more in either topic, with the proof of a new process."""
        logs = opened(store, clock)
        source, out = logs.create_topic("t", PARTITIONS), logs.create_topic("out")
        source.append(records(4))
        consumer = source.consumer("g")
        out.sink(consumer).append(consumer.poll().select(["key", "value"]))
        anew = opened(store, clock)
        again, consumer = anew.topic("out"), anew.topic("t").consumer("g")
        cost = store.cost_of(lambda: again.sink(consumer))
        assert set(cost.requests) == {"read"}
        assert cost.round_trips == 5


class TestGroups:
    def test_a_warm_commit_is_one_put(self, store: WiredStore, clock: Clock) -> None:
        group = opened(store, clock).create_topic("t", PARTITIONS).group("g")
        group.commit({0: 1})
        cost = store.cost_of(lambda: group.commit({0: 2}))
        assert cost.requests == {"create": 1}
        assert cost.round_trips == 1

    def test_nobody_waits_for_old_states_to_be_removed(
        self, store: WiredStore, clock: Clock
    ) -> None:
        waiting: list[Callable[[], None]] = []
        runtime = Runtime(clock=clock, later=waiting.append)
        store._space.clock = clock
        group = Store(store, runtime).create_topic("t", PARTITIONS).group("g")
        group.commit({0: 0})
        for offset in range(1, 100):
            clock.tick(5_000)
            cost = store.cost_of(lambda offset=offset: group.commit({0: offset}))
            assert cost.requests["create"] == 1
            assert cost.round_trips <= 3  # once a minute it is seen that the topic is still there
        assert len(waiting) == 3
        assert store.cost_of(waiting[-1]).requests["delete"] > 30

    def test_the_first_commit_of_a_group_is_a_listing_and_a_put(
        self, store: WiredStore, clock: Clock
    ) -> None:
        topic = opened(store, clock).create_topic("t", PARTITIONS)
        cost = store.cost_of(lambda: topic.group("g").commit({0: 1}))
        assert cost.requests == {"list": 1, "create": 1}
        assert cost.round_trips == 2

    def test_a_cold_commit_reads_the_newest_state_first(
        self, store: WiredStore, clock: Clock
    ) -> None:
        created = opened(store, clock).create_topic("t", PARTITIONS)
        for offset in range(5):
            created.group("g").commit({0: offset})
        topic = opened(store, clock).topic("t")
        cost = store.cost_of(lambda: topic.group("g").commit({0: 9}))
        assert cost.requests == {"list": 1, "read": 1, "create": 1}
        assert cost.round_trips == 3


class TestSegments:
    @pytest.fixture
    def cold(self, store: WiredStore, clock: Clock) -> Topic:
        """A topic of 40 appends, opened by a process that has read nothing."""
        grown(store, clock, COMMITS, IN_FILES)
        return opened(store, clock).topic("t")

    def segments(self, topic: Topic) -> int:
        return topic.segments().num_rows

    def test_a_read_of_small_segments_takes_few_round_trips(
        self, store: WiredStore, clock: Clock, cold: Topic
    ) -> None:
        count = self.segments(cold)
        assert count == 2 * COMMITS
        cost = store.cost_of(lambda: cold.read().read_all())
        assert cost.requests["get"] == count
        assert cost.round_trips <= 1 + count / 8

    def test_a_cold_read_takes_at_most_three_round_trips_and_one_for_eight_segments(
        self, store: WiredStore, clock: Clock
    ) -> None:
        grown(store, clock, COMMITS)
        cost = store.cost_of(lambda: opened(store, clock).topic("t").read().read_all())
        assert cost.round_trips <= 3 + cost.requests["get"] / 8

    def test_a_merge_takes_at_most_three_round_trips_and_one_for_eight_segments(
        self, store: WiredStore, cold: Topic
    ) -> None:
        count = self.segments(cold)
        cost = store.cost_of(cold.merge)
        assert cost.requests["get"] == count
        assert self.segments(cold) == 2
        assert cost.round_trips <= 3 + count / 8

    def test_a_compaction_takes_few_round_trips(
        self, store: WiredStore, clock: Clock, cold: Topic
    ) -> None:
        cold.alter(config={"cleanup.policy": "compact"})
        count = self.segments(cold)
        cost = store.cost_of(lambda: cold.compact(force=True))
        assert cold.count() == 3
        assert cost.round_trips <= 3 + count / 8

    def test_the_newest_records_of_all_keys_take_few_round_trips(
        self, store: WiredStore, cold: Topic
    ) -> None:
        cost = store.cost_of(cold.latest)
        assert cost.round_trips <= 3 + self.segments(cold) / 8

    def test_an_erase_takes_few_round_trips(self, store: WiredStore, cold: Topic) -> None:
        cost = store.cost_of(lambda: cold.erase(keys=[b"none"]))
        assert cost.round_trips <= 3 + self.segments(cold) / 8

    def test_verifying_data_takes_few_round_trips(self, store: WiredStore, cold: Topic) -> None:
        cost = store.cost_of(lambda: cold.verify(data=True))
        assert cost.round_trips <= 12 + self.segments(cold) / 8

    def test_offsets_for_a_time_are_looked_up_side_by_side(
        self, store: WiredStore, clock: Clock, cold: Topic
    ) -> None:
        cost = store.cost_of(lambda: cold.offsets_for_time(clock()))
        assert cost.round_trips <= 2

    def test_a_lookup_by_offset_is_one_file(self, store: WiredStore, cold: Topic) -> None:
        cost = store.cost_of(lambda: cold.at().read(cold_partition(cold), 5, 6).read_all())
        assert cost.requests["get"] == 1
        assert cost.round_trips <= 2


def cold_partition(topic: Topic) -> int:
    return max(topic._log.known.end_offsets.items(), key=lambda item: item[1])[0]


class TestPolls:
    @pytest.fixture
    def writer(self, store: WiredStore, clock: Clock) -> Topic:
        grown(store, clock, 9, IN_FILES)
        return opened(store, clock).topic("t")

    def test_an_idle_poll_of_a_consumer_is_one_request(
        self, store: WiredStore, clock: Clock, writer: Topic
    ) -> None:
        consumer = opened(store, clock).topic("t").consumer("g")
        while consumer.poll().num_rows:
            pass
        cost = store.cost_of(consumer.poll)
        assert cost.requests == {"read": 1}
        assert cost.round_trips == 1

    def test_a_poll_that_finds_one_commit_each_time_takes_two_round_trips(
        self, store: WiredStore, clock: Clock, writer: Topic
    ) -> None:
        """The commit and the place of the next one at once, then its files at once."""
        consumer = opened(store, clock).topic("t").consumer("g")
        while consumer.poll().num_rows:
            pass
        writer.append(records(3))
        consumer.poll()
        for _ in range(3):
            writer.append(records(3))
            cost = store.cost_of(consumer.poll)
            assert cost.requests == {"read": 2, "get": 2}
            assert cost.round_trips == 2

    def test_a_poll_catches_up_with_many_commits_in_few_round_trips(
        self, store: WiredStore, clock: Clock, writer: Topic
    ) -> None:
        reader = opened(store, clock).topic("t")
        reader.end_offsets()
        for _ in range(10):
            writer.append(records(3))
        assert store.cost_of(reader.end_offsets).round_trips == 4
        for _ in range(10):
            writer.append(records(3))
        cost = store.cost_of(reader.end_offsets)
        assert cost.requests == {"read": 11}
        assert cost.round_trips == 1

    def test_a_consumer_commits_with_one_put(
        self, store: WiredStore, clock: Clock, writer: Topic
    ) -> None:
        consumer = opened(store, clock).topic("t").consumer("g")
        consumer.poll()
        cost = store.cost_of(consumer.commit)
        assert cost.requests == {"create": 1}

    def test_a_dynamic_member_renews_its_lease_with_one_put(
        self, store: WiredStore, clock: Clock, writer: Topic
    ) -> None:
        consumer = opened(store, clock).topic("t").consumer("g", member="a", lease_ms=30_000)
        while consumer.poll().num_rows:
            pass
        clock.tick(11_000)
        cost = store.cost_of(consumer.poll)
        assert cost.requests == {"create": 1, "read": 1}

    def test_looking_at_a_topic_is_one_request(
        self, store: WiredStore, clock: Clock, writer: Topic
    ) -> None:
        writer.end_offsets()  # the first look proves that the commit it was opened at stands
        for look in (writer.describe, writer.end_offsets, writer.count, writer.segments):
            assert store.cost_of(look).requests == {"read": 1}


class TestSpark:
    """Each step of a write runs in a process of its own, which unpickles what it gets."""

    @pytest.fixture(autouse=True)
    def path(
        self, store: WiredStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> dict[str, str]:
        grown(store, clock, 9, IN_FILES)
        monkeypatch.setattr(pylogtable, "open", lambda *_, **__: opened(store, clock))
        at = lambda *_, **__: opened(store, clock).topic("t")  # noqa: E731
        monkeypatch.setattr(pylogtable, "open_topic", at)
        return {"path": "memory://elsewhere/t"}

    @pytest.fixture
    def opening(self, store: WiredStore, clock: Clock) -> Cost:
        return store.cost_of(lambda: opened(store, clock).topic("t"))

    @pytest.mark.parametrize("txn", [{}, {"txnAppId": "a", "txnVersion": "1"}])
    def test_planning_opens_the_topic_once(
        self, store: WiredStore, path: dict[str, str], opening: Cost, txn: dict[str, str]
    ) -> None:
        schema = spark_schema(records(1).schema)

        def plan() -> None:
            DefaultSource({**path, **txn}).writer(schema, overwrite=False)

        assert store.cost_of(plan).requests == opening.requests

    def test_a_task_sends_its_own_puts_and_no_other_request(
        self, store: WiredStore, path: dict[str, str]
    ) -> None:
        writer = DefaultSource(path).writer(spark_schema(records(1).schema), overwrite=False)
        task = travelled(writer)
        cost = store.cost_of(lambda: task.write(iter(records(100).to_batches())))
        assert cost.requests == {"write": PARTITIONS}
        assert cost.round_trips == 1

    def test_the_commit_opens_the_topic_once_and_is_one_put(
        self, store: WiredStore, path: dict[str, str], opening: Cost
    ) -> None:
        writer = DefaultSource(path).writer(spark_schema(records(1).schema), overwrite=False)
        messages = [travelled(writer).write(iter(records(100).to_batches())) for _ in range(3)]
        driver = travelled(writer)
        cost = store.cost_of(lambda: driver.commit(messages))
        assert cost.requests == opening.requests + Counter(create=1, **PROOF)

    def test_a_batch_of_a_stream_is_planned_and_committed_with_one_opening(
        self, store: WiredStore, path: dict[str, str], opening: Cost
    ) -> None:
        schema = spark_schema(records(1).schema)
        writer = DefaultSource(path).streamWriter(schema, overwrite=False)
        staged = travelled(stage_rows(writer._write, iter(records(100).to_batches())))
        message = replace(staged, query_id="q")

        def commit() -> None:
            DefaultSource(path).streamWriter(schema, overwrite=False).commit([message], 0)

        cost = store.cost_of(commit)
        assert cost.requests == opening.requests + Counter(create=1, **PROOF)


class TestInline:
    """Appends that are small enough go into their commit."""

    def test_an_append_is_one_put(self, store: WiredStore, clock: Clock) -> None:
        grown(store, clock, 1)
        topic = opened(store, clock).topic("t")
        topic.append(records(1))
        for _ in range(3):
            clock.tick(29_000)
            cost = store.cost_of(lambda: topic.append(records(100)))
            assert cost.requests == {"create": 1}
            assert cost.round_trips == 1

    def test_opening_and_appending_takes_three_round_trips(
        self, store: WiredStore, clock: Clock
    ) -> None:
        grown(store, clock, COMMITS)
        cost = store.cost_of(lambda: opened(store, clock).topic("t").append(records(1)))
        assert cost.requests["create"] == 1
        assert cost.round_trips == 3

    def test_records_of_commits_that_were_just_read_cost_nothing(
        self, store: WiredStore, clock: Clock
    ) -> None:
        grown(store, clock, COMMITS)
        opening = store.cost_of(lambda: opened(store, clock).topic("t"))
        topic = opened(store, clock).topic("t")
        cost = store.cost_of(lambda: topic.read().read_all())
        assert opening.round_trips == 2
        assert cost.requests == {"read": 1}  # is there a newer commit?

    def test_records_of_older_commits_are_fetched_ahead_each_commit_once(
        self, store: WiredStore, clock: Clock
    ) -> None:
        commits = 120
        grown(store, clock, commits)
        topic = opened(store, clock).topic("t")
        cost = store.cost_of(lambda: topic.read().read_all())
        assert topic.count() == 3 * commits
        assert cost.requests == {"read": 1 + 64}  # the commits up to the root
        assert cost.round_trips <= 1 + 64 / 8

    def test_a_merge_takes_few_round_trips(self, store: WiredStore, clock: Clock) -> None:
        grown(store, clock, 120)
        topic = opened(store, clock).topic("t")
        cost = store.cost_of(topic.merge)
        assert cost.round_trips <= 3 + 120 / 8
