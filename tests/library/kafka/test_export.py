"""Exports to Kafka, on librdkafka's mock of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, StorageError, TopicNotFoundError
from pylogtable.kafka import export_topic, import_topic
from pylogtable.kafka.export import KafkaSink
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import ints, kafka, rows, times
from tests.kafka.mock import PARTITIONS, MockCluster, mock_cluster

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAMES = ("partition", "timestamp", "key", "value", "headers")


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def target(cluster: MockCluster) -> str:
    """A topic of Kafka that exists."""
    name = cluster.new_topic()
    cluster.producer.list_topics(name, timeout=30)
    return name


@pytest.fixture
def topic(store: Store) -> Topic:
    made = store.create_topic("t", PARTITIONS)
    headers = [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None, None]
    made.append(
        kafka(
            [b"k", None, b""],
            [b"v", b"", None],
            partition=ints(0, 3, 0),
            timestamp=times(1, 2, 3),
            headers=pa.array(headers, HEADERS),
        )
    )
    return made


def sent(store: Store, cluster: MockCluster, target: str) -> list[Any]:
    """What Kafka has, imported again."""
    import_topic(store, target, bootstrap_servers=cluster.servers, copy_settings=False)
    return rows(store.topic(target).read(columns=list(NAMES)), *NAMES)


def test_records_arrive_with_everything_but_their_offsets(
    store: Store, cluster: MockCluster, topic: Topic, target: str
) -> None:
    report = export_topic(topic, bootstrap_servers=cluster.servers, kafka_topic=target)
    assert report.records == 3
    assert report.positions == {0: 2, 1: 0, 2: 0, 3: 1}
    assert sent(store, cluster, target) == rows(topic.read(columns=list(NAMES)), *NAMES)


def test_repeat_goes_on_at_the_position_of_the_group(
    store: Store, cluster: MockCluster, topic: Topic, target: str
) -> None:
    def export(**more: Any) -> int:
        given = {"bootstrap_servers": cluster.servers, "kafka_topic": target, **more}
        return export_topic(topic, **given).records

    seen: list[int] = []
    assert export(batch_records=2, on_progress=seen.append) == 3
    assert seen == [2, 3]
    assert export() == 0
    topic.append(kafka("z", partition=ints(1)))
    group = topic.group(f"kafka-export-{target}")
    assert export(follow=True, stop=lambda: group.lag().records == 0) == 1
    assert len(sent(store, cluster, target)) == 4
    assert export(group="other") == 4


def test_second_topic_of_kafka_gets_all_records(
    store: Store, cluster: MockCluster, topic: Topic, target: str
) -> None:
    second = cluster.new_topic()
    cluster.producer.list_topics(second, timeout=30)
    for into in (target, second):
        report = export_topic(topic, bootstrap_servers=cluster.servers, kafka_topic=into)
        assert (report.records, report.group) == (3, f"kafka-export-{into}")
    assert sent(store, cluster, second) == sent(store, cluster, target)


def test_batch_that_was_not_committed_is_sent_again(
    store: Store,
    cluster: MockCluster,
    topic: Topic,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = KafkaSink.send

    def send_and_die(self: KafkaSink, batch: pa.Table) -> None:
        right(self, batch)
        raise KeyboardInterrupt

    monkeypatch.setattr(KafkaSink, "send", send_and_die)
    with pytest.raises(KeyboardInterrupt):
        export_topic(topic, bootstrap_servers=cluster.servers, kafka_topic=target)
    monkeypatch.setattr(KafkaSink, "send", right)
    export_topic(topic, bootstrap_servers=cluster.servers, kafka_topic=target)
    assert len(sent(store, cluster, target)) == 6


def test_record_that_kafka_refuses_ends_the_export_before_the_position_moves(
    cluster: MockCluster, topic: Topic, target: str
) -> None:
    topic.append(kafka("x", [b"y" * 5000], partition=ints(0)))
    small = {"message.max.bytes": 1500}
    with pytest.raises(StorageError, match=r"cannot be written: .*too large"):
        export_topic(
            topic,
            bootstrap_servers=cluster.servers,
            kafka_topic=target,
            producer_settings=small,
        )
    assert topic.group(f"kafka-export-{target}").positions() == {}


def test_topics_that_cannot_be_exported(
    store: Store, cluster: MockCluster, topic: Topic, target: str
) -> None:
    with pytest.raises(TopicNotFoundError, match="has no topic 'nope'"):
        export_topic(topic, bootstrap_servers=cluster.servers, kafka_topic="nope",
                     producer_settings={"allow.auto.create.topics": False})  # fmt: skip
    table = store.create_topic("table", schema={"n": "int"})
    with pytest.raises(InvalidRequestError, match="other columns than Kafka's"):
        export_topic(table, bootstrap_servers=cluster.servers, kafka_topic=target)
    wide = store.create_topic("wide", PARTITIONS + 1)
    with pytest.raises(InvalidRequestError, match=f"has {PARTITIONS} partition.s., and 'wide'"):
        export_topic(wide, bootstrap_servers=cluster.servers, kafka_topic=target)
    old = store.create_topic("old", PARTITIONS)
    old.append(kafka("a", timestamp=pa.array([-1], pa.timestamp("us", "UTC"))))
    with pytest.raises(InvalidRequestError, match="before 1970-01-01"):
        export_topic(old, bootstrap_servers=cluster.servers, kafka_topic=target)
