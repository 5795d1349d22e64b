"""Imports from Kafka, on librdkafka's mock of a cluster. `tests/kafka` has a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import (
    CommitConflictError,
    InvalidRequestError,
    LogTableError,
    StorageError,
    TopicNotFoundError,
)
from pylogtable.engine import AppendPlan
from pylogtable.kafka import (
    ImportProgress,
    client,
    export_topic,
    import_run,
    import_start,
    import_topic,
)
from pylogtable.kafka.import_report import ImportOptions, ImportReport
from pylogtable.kafka.source import KafkaSource, Received
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import contents, ints, kafka, limited, make_store, rows
from tests.kafka.mock import PARTITIONS, MockCluster, mock_cluster

HEADERS = [("trace", b"\x00\xff"), ("trace", None), ("", b"")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def source(cluster: MockCluster) -> str:
    """A topic with records in two partitions."""
    name = cluster.new_topic()
    cluster.produce(name, 0, [b"a", None, b""], timestamp=1_700_000_000_123, headers=HEADERS)
    cluster.produce(name, 2, [b"b"], timestamp=5)
    return name


def imported(store: Store, cluster: MockCluster, topic: str, **more: Any) -> Any:
    more = {"copy_settings": False, **more}
    return import_topic(store, topic, bootstrap_servers=cluster.servers, **more)


def made_by_an_earlier_release(store: Store, cluster: MockCluster, topic: str) -> None:
    """A copy that is not guarded, with what Kafka's topic has now."""
    elsewhere = make_store()
    imported(elsewhere, cluster, topic)
    there = elsewhere.topic(topic)
    ((app_id, mark),) = there.at().snapshot.txns.items()
    here = store.create_topic(topic, PARTITIONS)
    here.append(there.read().read_all(), keep_offsets=True, txn=(app_id, mark.txn_version))


def test_records_come_with_everything_they_have(
    store: Store, cluster: MockCluster, source: str
) -> None:
    report = imported(store, cluster, source)
    topic = store.topic(source)
    assert (report.records, report.commits) == (4, 1)
    assert report.offsets == {0: (0, 3), 2: (0, 1)}
    assert topic.end_offsets() == {0: 3, 1: 0, 2: 1, 3: 0}
    headers = [{"key": key, "value": value} for key, value in HEADERS]
    names = ("partition", "offset", "key", "value", "headers")
    assert rows(topic.read(), *names) == [
        (0, 0, b"0", b"a", headers),
        (0, 1, b"1", None, headers),
        (0, 2, b"2", b"", headers),
        (2, 0, b"0", b"b", None),
    ]
    times = topic.read().read_all()["timestamp"].cast(pa.int64()).to_pylist()
    assert times == [1_700_000_000_123_000] * 3 + [5000]
    assert topic.verify(data=True)


def test_repeat_goes_on_where_the_copy_ends(
    store: Store, cluster: MockCluster, source: str
) -> None:
    imported(store, cluster, source)
    assert imported(store, cluster, source).records == 0
    version = store.topic(source).version
    cluster.produce(source, 0, [b"c", b"d"])
    cluster.produce(source, 3, [b"e"])
    report = imported(store, cluster, source)
    assert report.offsets == {0: (3, 5), 3: (0, 1)}
    assert store.topic(source).version == version + 1
    assert rows(store.topic(source).read(0), "offset") == [0, 1, 2, 3, 4]


def test_one_commit_per_size(store: Store, cluster: MockCluster, source: str) -> None:
    seen: list[ImportProgress] = []
    report = imported(store, cluster, source, batch_bytes=1, on_progress=seen.append)
    assert report.commits == len(seen) >= 1
    assert seen[-1].records == 4
    assert seen[-1].lag == dict.fromkeys(range(PARTITIONS), 0)


def test_following_ends_after_the_running_commit(
    store: Store, cluster: MockCluster, source: str
) -> None:
    """What was read when the stop came is committed."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        if asked == 3:
            cluster.produce(source, 1, [b"late"])
        return store.topics() != [] and store.topic(source).count() > 4

    report = imported(store, cluster, source, follow=True, stop=stop, linger_ms=50)
    assert report.records == store.topic(source).count() == 5


def test_copy_under_another_name(store: Store, cluster: MockCluster, source: str) -> None:
    imported(store, cluster, source, name="copy", config={"retention.ms": -1})
    assert store.topics() == ["copy"]
    assert store.topic("copy").describe().config["retention.ms"] == "-1"


class TestRefused:
    def test_unreachable_broker_is_named_and_nothing_is_created(self, store: Store) -> None:
        slow = {"socket.connection.setup.timeout.ms": 1000}
        kwargs: dict[str, Any] = {"request_seconds": 1.0}
        with (
            KafkaSource("127.0.0.1:1", "t", slow, **kwargs) as gone,
            pytest.raises(StorageError, match=r"Kafka at 127\.0\.0\.1:1 cannot be reached"),
        ):
            gone.describe()

    def test_stop_while_no_broker_answers(self, store: Store) -> None:
        """librdkafka itself would wait for its 30 seconds."""
        store = limited(store, kafka_stop_seconds=0.2)
        nobody: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "stop": lambda: True}
        report = import_topic(store, "t", follow=True, **nobody)
        assert (report.topic, report.records, report.offsets) == ("t", 0, {})
        assert store.topics() == []
        sent = export_topic(store.create_topic("u"), **nobody)
        assert (sent.records, sent.positions) == (0, {})

    def test_unknown_topic(self, store: Store, cluster: MockCluster) -> None:
        with pytest.raises(TopicNotFoundError, match="has no topic 'nope'"):
            imported(store, cluster, "nope")
        assert store.topics() == []

    def test_unknown_consumer_setting(self, store: Store, cluster: MockCluster) -> None:
        with pytest.raises(InvalidRequestError, match="Check the settings for Kafka"):
            imported(store, cluster, "t", consumer_settings={"no.such": 1})

    @pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION"])
    def test_missing_rights_say_which_are_needed(self, error: str) -> None:
        class Answer:
            def name(self) -> str:
                return error

            def str(self) -> str:
                return "denied"

        with KafkaSource("127.0.0.1:1", "t", {}) as source:
            said = source.error(Answer(), "be read")
        assert isinstance(said, StorageError)
        assert "denied. Allow it in Kafka (READ or WRITE, and DESCRIBE" in str(said)

    def test_topic_that_may_be_described_and_not_read_leaves_no_empty_topic(
        self, store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a real broker answers: `tests/kafka/test_rights.py`."""
        denied = client.kafka_library().KafkaError(29)

        def receive(self: KafkaSource, most: int, seconds: float) -> Received:
            raise self.error(denied, "be read")

        monkeypatch.setattr(KafkaSource, "receive", receive)
        with pytest.raises(StorageError, match="Allow it in Kafka"):
            imported(store, cluster, source)
        assert store.topics() == []

    def test_topic_with_other_records(self, cluster: MockCluster, source: str) -> None:
        store = make_store()
        store.create_topic(source, PARTITIONS).append(kafka("x"))
        before = contents(store._store)
        with pytest.raises(InvalidRequestError, match="no import of this topic of Kafka"):
            imported(store, cluster, source)
        assert contents(store._store) == before

    def test_topic_with_other_columns(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        store.create_topic(source, PARTITIONS, {"n": "int"})
        with pytest.raises(InvalidRequestError, match="other columns than Kafka's"):
            imported(store, cluster, source)

    def test_empty_topic_with_more_partitions(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        store.create_topic(source, PARTITIONS + 1)
        named = f"has {PARTITIONS + 1} partition.s., and Kafka's has {PARTITIONS}"
        with pytest.raises(InvalidRequestError, match=named):
            imported(store, cluster, source)
        assert store.topic(source).version == 0

    def test_topic_whose_records_are_gone(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        """It looks empty, and the first records of Kafka would be below its start."""
        other = store.create_topic(source, PARTITIONS)
        other.append(kafka("xyz", partition=ints(0, 0, 0)))
        other.delete_records({0: None})
        with pytest.raises(InvalidRequestError, match=r"begins at offset 3, .* begin at 0"):
            imported(store, cluster, source)

    def test_copy_with_more_partitions_than_kafka(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        made_by_an_earlier_release(store, cluster, source)
        store.topic(source).alter(partitions=PARTITIONS + 1)
        with pytest.raises(InvalidRequestError, match="was created again, or the copy was altered"):
            imported(store, cluster, source)

    def test_copy_with_another_writer(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        made_by_an_earlier_release(store, cluster, source)
        store.topic(source).append(kafka("x", partition=ints(1)))
        cluster.produce(source, 1, [b"taken", b"next"])
        with pytest.raises(CommitConflictError, match="another writer has appended"):
            imported(store, cluster, source)

    def test_writer_beside_a_running_import(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        made_by_an_earlier_release(store, cluster, source)
        cluster.produce(source, 0, [b"c"])

        def stop() -> bool:
            if store.topic(source).end_offsets()[0] == 3:
                store.topic(source).append(kafka("x", partition=ints(0)))
            return False

        with (
            pytest.warns(UserWarning, match="an earlier release has made"),
            pytest.raises(CommitConflictError, match="partition 0 ends at offset 4, and not at 3"),
        ):
            imported(store, cluster, source, stop=stop)

    def test_kafka_that_ends_before_the_copy(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        """As after a topic of the same name was created again."""
        imported(store, cluster, source)
        topic = store.topic(source)
        app_id = next(iter(topic.at().snapshot.txns))
        more = kafka("x", partition=ints(0), offset=ints(90))
        topic.append(more, keep_offsets=True, txn=(app_id, sum(topic.end_offsets().values()) + 88))
        with pytest.raises(InvalidRequestError, match=r"ends at offset 91, .* ends at 3"):
            imported(store, cluster, source)


class TestGuard:
    def test_copy_takes_no_record_of_others_until_it_is_promoted(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        report = imported(store, cluster, source)
        of = f"Kafka's topic '{source}' at {cluster.servers}"
        assert report.copy_of == of
        topic = store.topic(source)
        with pytest.raises(InvalidRequestError, match="append is refused: this topic is a copy of"):
            topic.append(kafka("x"))
        cluster.produce(source, 1, [b"c"])
        assert imported(store, cluster, source).copy_of == of
        topic.promote()
        topic.append(kafka("x", partition=ints(1)))
        before = contents(store._store)
        said = rf"was promoted in version {topic.version - 1}.*another name \(--name\)"
        with pytest.raises(InvalidRequestError, match=said):
            imported(store, cluster, source)
        assert contents(store._store) == before
        assert imported(store, cluster, source, name="again").records == 5

    def test_topic_that_was_empty_becomes_a_copy_with_the_partitions_of_kafka(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        store.create_topic(source, PARTITIONS - 2)
        assert imported(store, cluster, source).records == 4
        topic = store.topic(source)
        assert topic.end_offsets() == {0: 3, 1: 0, 2: 1, 3: 0}
        assert topic.describe().copy_of is not None

    def test_import_that_found_nothing_goes_on_when_kafka_has_more_partitions(
        self, store: Store, cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The mock cannot add partitions, so the first import sees fewer."""
        name = cluster.new_topic()
        cluster.producer.list_topics(name, timeout=30)
        right = KafkaSource.describe
        with monkeypatch.context() as fewer:
            fewer.setattr(KafkaSource, "describe", lambda self: (right(self)[0], 2))
            assert imported(store, cluster, name).records == 0
        assert len(store.topic(name).end_offsets()) == 2
        cluster.produce(name, 3, [b"a"])
        assert imported(store, cluster, name).offsets == {3: (0, 1)}
        assert store.topic(name).end_offsets() == {0: 0, 1: 0, 2: 0, 3: 1}

    def test_copy_of_an_earlier_release_is_guarded_if_somebody_asks_for_it(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        made_by_an_earlier_release(store, cluster, source)
        version = store.topic(source).version
        with pytest.warns(UserWarning, match=r"--guard \(guard=True\)"):
            assert imported(store, cluster, source).copy_of == ""
        assert store.topic(source).version == version
        assert imported(store, cluster, source, guard=True).copy_of != ""
        assert imported(store, cluster, source).records == 0
        with pytest.raises(InvalidRequestError, match="append is refused"):
            store.topic(source).append(kafka("x"))

    def test_copy_of_another_topic_is_refused_by_name(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        imported(store, cluster, source, name="copy")
        other = cluster.new_topic()
        cluster.produce(other, 0, [b"a"])
        said = f"'copy' is a copy of Kafka's topic '{source}'.*not of Kafka's topic '{other}'"
        with pytest.raises(InvalidRequestError, match=said):
            imported(store, cluster, other, name="copy")

    def test_topic_that_a_spark_job_has_written_is_refused_by_name(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        topic = store.create_topic(source, PARTITIONS)
        first = kafka("0", partition=ints(0), offset=ints(0))
        topic.append(first, keep_offsets=True, txn=("the-query", 0))
        before = contents(store._store)
        with pytest.raises(InvalidRequestError, match=r"app id 'the-query'.*\(keepOffsets\)"):
            imported(store, cluster, source)
        assert contents(store._store) == before

    def test_import_that_follows_ends_when_its_copy_is_promoted(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        def stop() -> bool:
            topic = store.topic(source)
            if topic.count() == 4 and topic.describe().copy_of.ended is None:  # type: ignore[union-attr]
                topic.promote()
                cluster.produce(source, 1, [b"late"])
            return False

        said = rf"^topic '{source}': .*was promoted in version .*The 4 record\(s\) that this import"
        with pytest.raises(InvalidRequestError, match=said):
            imported(store, cluster, source, follow=True, stop=stop, linger_ms=50)
        assert store.topic(source).count() == 4

    def test_address_may_change(self, store: Store, cluster: MockCluster, source: str) -> None:
        imported(store, cluster, source)
        elsewhere = cluster.servers.replace("127.0.0.1", "localhost")
        cluster.produce(source, 1, [b"c"])
        report = import_topic(store, source, bootstrap_servers=elsewhere, copy_settings=False)
        assert report.records == 1


class TestGroups:
    @pytest.fixture(autouse=True)
    def committed(self, cluster: MockCluster, source: str) -> None:
        """The group billing has read one record."""
        library = client.kafka_library()
        settings = {"bootstrap.servers": cluster.servers, "group.id": f"{source}-billing"}
        consumer = library.Consumer({**settings, "log_level": 0})
        place = library.TopicPartition(source, 0, 1)
        consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()

    def test_group_that_is_named_is_copied_without_a_list_of_all(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        """The mock cannot list groups."""
        report = imported(store, cluster, source, groups=[f"{source}-billing", "nobody"])
        assert report.groups == {f"{source}-billing": {0: 1}}
        assert report.left_out == {
            "nobody": "Kafka has no committed offsets of this group for the topic"
        }
        assert store.topic(source).group(f"{source}-billing").positions() == {0: 1}

    def test_list_that_is_not_whole_is_an_error_and_records_stay(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        with pytest.raises(StorageError, match="has not listed all consumer groups") as caught:
            imported(store, cluster, source, groups=True)
        assert "_UNSUPPORTED_FEATURE" in str(caught.value)
        assert "The 4 record(s) that this import has copied stay" in str(caught.value)
        assert store.topic(source).count() == 4
        assert store.topic(source).groups() == []


def beside(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let another writer come just before the first commit of an import."""
    right = AppendPlan.commit

    def commit(self: AppendPlan, *args: Any, **options: Any) -> Any:
        monkeypatch.setattr(AppendPlan, "commit", right)
        other()
        return right(self, *args, **options)

    monkeypatch.setattr(AppendPlan, "commit", commit)


def test_two_imports_at_once(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has got records of another partition first."""

    def other() -> None:
        data = kafka(["0"], partition=ints(1), offset=pa.array([0]))
        app_id = f"kafka:{cluster.producer.list_topics(timeout=30).cluster_id}/{source}"
        store.topic(source).append(data, keep_offsets=True, txn=(app_id, 1))

    cluster.produce(source, 1, [b"c"])
    beside(monkeypatch, other)
    said = r"partition 1 ends at offset 1, and not at 0.*run one at a time"
    with pytest.raises(CommitConflictError, match=said):
        imported(store, cluster, source)
    assert store.topic(source).count() == 1
    assert imported(store, cluster, source).records == 4
    assert imported(store, cluster, source).records == 0


def test_another_writer_beside_an_import(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_an_earlier_release(store, cluster, source)
    cluster.produce(source, 0, [b"c"])
    beside(monkeypatch, lambda: store.topic(source).append(kafka(["x"], partition=ints(3))))
    with (
        pytest.warns(UserWarning, match="an earlier release has made"),
        pytest.raises(CommitConflictError, match="another writer was here: partition 3"),
    ):
        imported(store, cluster, source)
    assert store.topic(source).end_offsets() == {0: 3, 1: 0, 2: 1, 3: 1}


@pytest.mark.parametrize("moment", ["check_import", "positions_to_resume"])
def test_another_writer_while_an_import_begins(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its record must not be taken for one of Kafka: that one would be left out."""
    made_by_an_earlier_release(store, cluster, source)
    cluster.produce(source, 0, [b"c", b"d"])
    right = getattr(import_run, moment)

    def append_after(*args: Any, **options: Any) -> Any:
        found = right(*args, **options)
        store.topic(source).append(kafka(["x"], partition=ints(0)))
        return found

    monkeypatch.setattr(import_run, moment, append_after)
    with (
        pytest.warns(UserWarning, match="an earlier release has made"),
        pytest.raises(CommitConflictError, match="another writer was here: partition 0"),
    ):
        imported(store, cluster, source)
    assert store.topic(source).end_offsets()[0] == 4


def test_a_store_that_is_slower_than_the_linger(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts from when Kafka is asked."""
    right = AppendPlan.begin
    now = 0.0

    def slow(self: AppendPlan, *args: Any, **options: Any) -> Any:
        nonlocal now
        now += 10.0
        return right(self, *args, **options)

    monkeypatch.setattr(AppendPlan, "begin", slow)
    runtime = replace(store._runtime, monotonic=lambda: now)
    options = ImportOptions(copy_settings=False, linger_seconds=5.0)
    with KafkaSource(cluster.servers, source, {}) as kafka_topic:
        given = (store, kafka_topic, source, source, options, runtime)
        assert import_run.Import(*given).run().records == 4


def test_records_behind_an_open_transaction_are_named(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock has no transactions."""
    right = KafkaSource.written_ends

    def written(self: KafkaSource, partitions: Any) -> dict[int, int]:
        ends = right(self, partitions)
        return {**ends, 0: ends[0] + 6}

    monkeypatch.setattr(KafkaSource, "written_ends", written)
    said = r"a transaction is open in Kafka.*: 6 of partition 0\. Import again"
    with pytest.warns(UserWarning, match=said):
        report = imported(store, cluster, source)
    assert (report.records, report.waiting) == (4, {0: 6})


def test_settings_that_kafka_does_not_tell_name_the_way_without_them(
    store: Store, cluster: MockCluster, source: str
) -> None:
    """The mock has no settings."""
    with KafkaSource(cluster.servers, source, {}, request_seconds=2.0) as kafka_topic:
        given = (store, kafka_topic, source, source, ImportOptions(), store._runtime)
        running = import_run.Import(*given)
        with pytest.raises(StorageError, match=r"--no-copy-settings \(copy_settings=False\)"):
            running.run()
    assert store.topics() == []


class TestOptionsOfANewTopic:
    def test_setting_that_the_topic_does_not_have_is_warned_of(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        imported(store, cluster, source, config={"retention.ms": -1})
        imported(store, cluster, source, config={"retention.ms": "-1"})
        cluster.produce(source, 1, [b"c"])
        said = f"topics alter {source} --config retention.ms=5"
        with pytest.warns(UserWarning, match=said) as caught:
            report = imported(store, cluster, source, config={"retention.ms": 5})
        assert "keeps retention.ms=-1" in str(caught[0].message)
        assert report.records == 1
        with pytest.raises(InvalidRequestError, match=r"no\.such"):
            imported(store, cluster, source, config={"no.such": 5})

    def test_time_to_begin_is_warned_of_once_there_are_records(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        imported(store, cluster, source)
        with pytest.warns(UserWarning, match="--from-timestamp is not used"):
            imported(store, cluster, source, from_timestamp=0)


class Trimmed(KafkaSource):
    """Kafka after its retention has removed the first records."""

    low = 2

    def bounds(self, partitions: Any) -> dict[int, tuple[int, int]]:
        found = super().bounds(partitions)
        return {n: (min(self.low, high), high) for n, (_, high) in found.items()}


class TestGaps:
    @pytest.fixture(autouse=True)
    def trimmed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(import_start, "KafkaSource", Trimmed)

    def test_first_import_begins_where_kafka_does(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        imported(store, cluster, source)
        topic = store.topic(source)
        assert topic.start_offsets() == {0: 2, 1: 0, 2: 1, 3: 0}
        assert rows(topic.read(0), "offset") == [2]

    def test_retention_that_overtook_the_import_is_an_error_that_names_the_gap(
        self, store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        imported(store, cluster, source)
        cluster.produce(source, 0, [b"c", b"d", b"e"])
        monkeypatch.setattr(Trimmed, "low", 5)
        with pytest.raises(InvalidRequestError, match=r"partition 0: .* \[3, 5\) was removed"):
            imported(store, cluster, source)
        report = imported(store, cluster, source, allow_gaps=True)
        assert report.offsets == {0: (5, 6)}
        assert rows(store.topic(source).read(0), "offset") == [2, 5]

    def test_position_that_is_lost_while_reading(
        self, store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kafka says so instead of the first message of the partition."""
        told = []

        def receive(self: KafkaSource, most: int, seconds: float) -> Received:
            if most > 1 and not told:
                told.append(0)
                return Received([], {}, (0,))
            return KafkaSource.receive(self, most, seconds)

        monkeypatch.setattr(Trimmed, "receive", receive)
        with pytest.raises(InvalidRequestError, match="allow gaps"):
            imported(store, cluster, source)
        told.clear()
        imported(store, cluster, source, allow_gaps=True)
        assert rows(store.topic(source).read(0), "offset") == [2]


def test_records_of_the_first_look_are_dropped_if_the_import_begins_elsewhere(
    cluster: MockCluster, source: str
) -> None:
    """As if another import had created the topic meanwhile, and was ahead."""
    with KafkaSource(cluster.servers, source, {}) as kafka_topic:
        kafka_topic.check_readable({0: 0})
        kafka_topic.begin({0: 2})
        offsets: list[int] = []
        while not offsets:
            offsets = [message.offset() for message in kafka_topic.receive(10, 1.0).messages]
    assert offsets == [2]


def test_end_that_was_reached_stays_reached_while_other_partitions_come(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka counts the ends of transactions, so a partition may end behind its last record. The
    mock has no transactions: partition 0 ends at 7 here, and its last record is at 4."""
    imported(store, cluster, source)
    cluster.produce(source, 0, [b"c", b"d"])
    cluster.produce(source, 2, [b"e"])
    right_bounds, right = KafkaSource.bounds, KafkaSource.receive
    answers: list[Received] = []

    def bounds(self: KafkaSource, partitions: Any) -> dict[int, tuple[int, int]]:
        return {**right_bounds(self, partitions), 0: (0, 7)}

    def receive(self: KafkaSource, most: int, seconds: float) -> Received:
        if not answers:
            messages: list[Any] = []
            while len(messages) < 3:
                messages += right(self, most, seconds).messages
            first = [message for message in messages if message.partition() == 0]
            others = [message for message in messages if message.partition() != 0]
            answers.extend([Received(first), Received([], {0: 7}), Received(others)])
            answers.append(Received([]))
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(KafkaSource, "bounds", bounds)
    monkeypatch.setattr(KafkaSource, "receive", receive)
    store = limited(store, kafka_silence_seconds=0.0)
    assert imported(store, cluster, source, linger_ms=1_000).records == 3


def test_silent_broker_ends_a_bounded_import(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = limited(store, kafka_silence_seconds=0.0)
    right = KafkaSource.receive
    monkeypatch.setattr(KafkaSource, "receive", lambda *_: Received([]))
    with pytest.raises(StorageError, match="has sent nothing of topic"):
        imported(store, cluster, source, linger_ms=1)
    assert store.topics() == []
    monkeypatch.setattr(KafkaSource, "receive", right)
    imported(store, cluster, source)
    cluster.produce(source, 0, [b"c"])
    monkeypatch.setattr(KafkaSource, "receive", lambda *_: Received([]))
    with pytest.raises(StorageError, match=r"nothing \(partition 0 is at 3 of 4\) of topic"):
        imported(store, cluster, source, linger_ms=1)


def followed(
    store: Store, cluster: MockCluster, topic: str, stop: Callable[[], bool]
) -> ImportReport:
    """Follow a topic, and look for new partitions all the time."""
    options = ImportOptions(
        follow=True, copy_settings=False, refresh_seconds=0.0, linger_seconds=0.05, stop=stop
    )
    with KafkaSource(cluster.servers, topic, {}) as kafka_topic:
        given = (store, kafka_topic, topic, topic, options, store._runtime)
        return import_run.Import(*given).run()


def test_partitions_that_kafka_adds_are_followed(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cannot add any, so the first look sees fewer."""
    right = KafkaSource.describe
    looks: list[int] = []

    def describe(self: KafkaSource) -> tuple[str, int]:
        cluster_id, count = right(self)
        looks.append(count)
        return cluster_id, 2 if len(looks) == 1 else count

    monkeypatch.setattr(KafkaSource, "describe", describe)

    def stop() -> bool:
        return bool(store.topics()) and store.topic(source).count() == 4

    followed(store, cluster, source, stop)
    topic = store.topic(source)
    assert topic.end_offsets() == {0: 3, 1: 0, 2: 1, 3: 0}
    assert rows(topic.history(), "operation").count("alter") == 1
    assert rows(topic.read(2), "value") == [b"b"]


def test_stop_while_a_broker_is_away_ends_with_a_report(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = KafkaSource.describe
    stopped: list[bool] = []

    def describe(self: KafkaSource) -> tuple[str, int]:
        if store.topics() and store.topic(source).count() == 4:
            stopped.append(True)
            raise client.StoppedError
        return right(self)

    monkeypatch.setattr(KafkaSource, "describe", describe)
    assert followed(store, cluster, source, lambda: bool(stopped)).records == 4


def test_import_that_follows_survives_a_broker_that_is_away_for_a_while(
    store: Store, cluster: MockCluster, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first question for new partitions fails, as while a broker starts again."""
    right = KafkaSource.describe
    looks: list[int] = []

    def describe(self: KafkaSource) -> tuple[str, int]:
        looks.append(0)
        if len(looks) == 2:
            cluster.produce(source, 1, [b"later"])
            raise self.silence(30.0, "has sent nothing")
        return right(self)

    monkeypatch.setattr(KafkaSource, "describe", describe)

    def stop() -> bool:
        return bool(store.topics()) and store.topic(source).count() == 5

    with pytest.warns(UserWarning, match="The import goes on, and tries it again"):
        report = followed(store, cluster, source, stop)
    assert report.records == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bootstrap_servers": ""}, "`bootstrap_servers` must not be empty"),
        ({"name": ""}, "`name` must not be empty"),
        ({"config": 5}, "`config` must be a dict"),
        ({"stop": 5}, "`stop` must be a function"),
        ({"follow": "no"}, "`follow` must be True or False"),
        ({"groups": [""]}, "`a name in groups` must not be empty"),
        ({"linger_ms": float("nan")}, "`linger_ms` must be a number of milliseconds"),
        ({"linger_ms": -1}, "`linger_ms` must be a number of milliseconds"),
        ({"consumer_settings": {"group.id": ""}}, "group.id for Kafka must not be empty"),
        ({"consumer_settings": {"bootstrap.servers": "x"}}, "is given by `bootstrap_servers`"),
    ],
)
def test_nonsense_is_refused_before_anything_is_done(
    store: Store, options: dict[str, Any], words: str
) -> None:
    given = {"bootstrap_servers": "127.0.0.1:1", **options}
    with pytest.raises(InvalidRequestError, match=words):
        import_topic(store, "t", **given)
    assert store.topics() == []


def test_nonsense_for_an_export_is_refused(store: Store) -> None:
    topic = store.create_topic("t")
    with pytest.raises(InvalidRequestError, match="`topic` must be a topic"):
        export_topic("t", bootstrap_servers="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="`kafka_topic` must not be empty"):
        export_topic(topic, bootstrap_servers="x", kafka_topic="")
    settings = {"bootstrap.servers": "y"}
    with pytest.raises(InvalidRequestError, match="is given by `bootstrap_servers`"):
        export_topic(topic, bootstrap_servers="x", producer_settings=settings)


class TestTopicThatWasCreatedAgain:
    """The mock gives no ids of topics, so these tests give them. `tests/kafka` has true ones."""

    def import_(
        self, store: Store, cluster: MockCluster, topic: str, ids: list[str | None], **more: Any
    ) -> Any:
        class Source(KafkaSource):
            def topic_id(self) -> str | None:
                return ids.pop(0) if len(ids) > 1 else ids[0]

        given = {"copy_settings": False, "linger_seconds": 0.05, **more}
        with Source(cluster.servers, topic, {}) as source:
            options = ImportOptions(**given)
            return import_run.Import(store, source, topic, topic, options, store._runtime).run()

    def test_its_records_do_not_follow_those_of_the_old_one(
        self, objects: MemoryStore, store: Store, cluster: MockCluster, source: str
    ) -> None:
        self.import_(store, cluster, source, ["old"])
        before = contents(objects)
        cluster.produce(source, 0, [b"new"])
        with pytest.raises(
            InvalidRequestError, match=r"created again: its id is new, and topic .* id old"
        ):
            self.import_(store, cluster, source, ["new"])
        assert contents(objects) == before
        assert self.import_(store, cluster, source, ["old"]).records == 1

    def test_copy_without_an_id_gets_one_with_the_next_commit(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        """An import of an earlier release has made it, or a cluster without ids."""
        self.import_(store, cluster, source, [None])
        cluster.produce(source, 0, [b"new"])
        assert self.import_(store, cluster, source, ["id"]).records == 1
        assert self.import_(store, cluster, source, [None]).records == 0
        with pytest.raises(InvalidRequestError, match="created again"):
            self.import_(store, cluster, source, ["other"])

    def test_import_that_follows_ends(
        self, store: Store, cluster: MockCluster, source: str
    ) -> None:
        with pytest.raises(InvalidRequestError, match="created again"):
            self.import_(store, cluster, source, ["old", "new"], follow=True, refresh_seconds=0.0)


def test_confluent_kafka_is_asked_for_if_it_is_missing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'pylogtable\[kafka\]'"):
        import_topic(store, "t", bootstrap_servers="x")


def test_every_error_of_kafka_is_one_of_ours() -> None:
    library = client.kafka_library()
    with KafkaSource("127.0.0.1:1", "t", {}) as source:
        for code in range(-200, 120):
            with pytest.raises(LogTableError):
                raise source.error(library.KafkaError(code), "be read")
