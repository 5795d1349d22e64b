"""Imports from a real broker: transactions, retention, groups and settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import pylogtable
from pylogtable import InvalidRequestError, Store, Topic
from pylogtable.format.partitioner import partition_for
from pylogtable.kafka import export_topic, import_topic
from tests.builders import kafka, rows
from tests.kafka.conftest import NewKafkaTopic

T0 = int(time.time() * 1000) - 60_000
NAMES = ("partition", "offset", "timestamp", "key", "value", "headers")
ROOT = Path(__file__).parents[2]

Record = tuple[int, int, int, bytes | None, bytes | None, Any]


@pytest.fixture
def logs(tmp_path: Path) -> Store:
    return pylogtable.open(tmp_path / "logs")


@pytest.fixture
def producer(servers: str) -> Iterator[Any]:
    made = confluent_kafka.Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    yield made
    made.flush(30)


def write(producer: Any, topic: str, count: int, first: int = 0, **more: Any) -> None:
    """Records with and without keys, values and headers."""
    for number in range(first, first + count):
        key = None if number % 11 == 0 else f"key-{number % 97}".encode()
        value = None if number % 7 == 0 else os.urandom(number % 40)
        headers = [("h", str(number).encode()), ("h", None)] if number % 3 == 0 else None
        producer.produce(topic, value, key, headers=headers, timestamp=T0 + number, **more)
        if number % 1000 == 999:
            producer.poll(0)
    assert producer.flush(60) == 0


def in_kafka(servers: str, topic: str) -> list[Record]:
    """Every committed record, as a plain consumer sees it."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    numbers = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, n, beginning) for n in numbers])
    found: list[Record] = []
    left = set(numbers)
    while left:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                left.discard(message.partition())
                continue
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1] * 1000,
                    message.key(),
                    message.value(),
                    message.headers(),
                )
            )
    consumer.close()
    return sorted(found, key=lambda record: record[:2])


def here(topic: Topic) -> list[Record]:
    table = topic.read(columns=list(NAMES)).read_all()
    times = table["timestamp"].cast(pa.int64())
    table = table.set_column(2, "timestamp", times)
    return [
        (*record[:5], record[5] and [(header["key"], header["value"]) for header in record[5]])
        for record in rows(table, *NAMES)
    ]


def check(store: Store, servers: str, topic: str) -> None:
    copy = store.topic(topic)
    assert here(copy) == in_kafka(servers, topic)
    assert copy.verify(data=True)


@contextmanager
def following(
    servers: str, topic: str, folder: Path, *, pattern: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, as a process of its own. It is killed in the end, if it still runs. With
    `pattern`, it follows the topics that match."""
    chosen = "--topic-pattern" if pattern else "--topic"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pylogtable", "kafka", "import", "--follow"),
            *("--bootstrap-servers", servers, chosen, topic, "--store", str(folder)),
            *("--linger", "0.2", "--batch-bytes", "1000000", "--output", "json"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_everything_is_equal_on_both_sides(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    topic = new_topic()
    write(producer, topic, 60_000)
    report = import_topic(logs, topic, bootstrap_servers=servers, batch_bytes=100_000)
    assert report.records == 60_000
    assert report.commits > 1
    check(logs, servers, topic)


def test_topic_that_was_created_again_is_refused(
    servers: str, admin: AdminClient, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    """It is longer than the copy, so its offsets alone do not show it."""
    topic = new_topic(1)
    write(producer, topic, 10)
    import_topic(logs, topic, bootstrap_servers=servers)
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + 60
    while topic in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    write(producer, topic, 50)
    with pytest.raises(InvalidRequestError, match="was deleted and created again: its id is"):
        import_topic(logs, topic, bootstrap_servers=servers)
    assert logs.topic(topic).count() == 10
    import_topic(logs, topic, bootstrap_servers=servers, name="again")
    assert logs.topic("again").count() == 50


def test_keys_are_where_new_appends_go(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    topic = new_topic(6)
    write(producer, topic, 2_000)
    import_topic(logs, topic, bootstrap_servers=servers)
    copy = logs.topic(topic)
    table = copy.read(columns=["partition", "key"]).read_all()
    keyed = table.filter(table["key"].is_valid()).combine_chunks()
    expected = partition_for(keyed["key"].chunk(0), 6)
    assert keyed["partition"].to_pylist() == expected.tolist()
    copy.promote()
    copy.append(kafka(["key-1"]))
    (place,) = copy.latest(keys=[b"key-1"]).select(["partition"]).to_pylist()
    assert copy.read(place["partition"]).read_all()["key"].to_pylist().count(b"key-1") > 1


def test_aborted_transactions_are_left_out_and_open_ones_hold_the_rest_back(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    topic = new_topic(2)
    writer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": f"{topic}-txn"}
    )
    writer.init_transactions(30)
    for number in range(6):
        writer.begin_transaction()
        for record in range(10):
            value = f"{number}-{record}".encode()
            writer.produce(topic, value, b"k", partition=record % 2, timestamp=T0)
        writer.flush(30)
        (writer.abort_transaction if number % 2 else writer.commit_transaction)(30)
    writer.begin_transaction()
    writer.produce(topic, b"open", b"k", partition=0, timestamp=T0)
    writer.flush(30)
    producer.produce(topic, b"after", b"k", partition=0, timestamp=T0)
    producer.flush(30)
    with pytest.warns(UserWarning, match="a transaction is open in Kafka.* 2 of partition 0. "):
        report = import_topic(logs, topic, bootstrap_servers=servers)
    assert (report.records, report.waiting) == (30, {0: 2})
    writer.commit_transaction(30)
    import_topic(logs, topic, bootstrap_servers=servers)
    assert rows(logs.topic(topic).read(0), "value")[-2:] == [b"open", b"after"]
    check(logs, servers, topic)
    assert import_topic(logs, topic, bootstrap_servers=servers).records == 0
    other = {"isolation.level": "read_uncommitted"}
    import_topic(logs, topic, bootstrap_servers=servers, name="all", consumer_settings=other)
    assert logs.topic("all").count() == 62


def test_settings_that_both_have_are_copied_and_others_are_named(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "-1",
        "delete.retention.ms": "1234",
        "segment.ms": "60000",
        "max.message.bytes": "2000000",
    }
    topic = new_topic(2, config)
    producer.produce(topic, b"v", b"k", timestamp=T0)
    producer.flush(30)
    report = import_topic(
        logs, topic, bootstrap_servers=servers, config={"delete.retention.ms": 99}
    )
    settings = logs.topic(topic).describe().config
    assert settings["cleanup.policy"] in ("compact,delete", "delete,compact")
    assert (settings["retention.ms"], settings["delete.retention.ms"]) == ("-1", "99")
    assert sorted(report.left_out) == ["max.message.bytes", "segment.ms"]


def test_removed_records_are_a_gap_that_has_to_be_allowed(
    servers: str, new_topic: NewKafkaTopic, producer: Any, admin: AdminClient, logs: Store
) -> None:
    topic = new_topic(1)
    write(producer, topic, 50)
    import_topic(logs, topic, bootstrap_servers=servers)
    write(producer, topic, 50, 50)
    place = confluent_kafka.TopicPartition(topic, 0, 70)
    admin.delete_records([place])[place].result(30)
    with pytest.raises(InvalidRequestError, match=r"\[50, 70\) was removed"):
        import_topic(logs, topic, bootstrap_servers=servers)
    import_topic(logs, topic, bootstrap_servers=servers, allow_gaps=True)
    assert rows(logs.topic(topic).read(), "offset") == [*range(50), *range(70, 100)]
    import_topic(logs, topic, bootstrap_servers=servers, name="later")
    assert logs.topic("later").start_offsets() == {0: 70}


def test_import_from_a_time_begins_there(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    topic = new_topic(2)
    for number in range(40):
        producer.produce(topic, b"v", partition=number % 2, timestamp=T0 + number)
    producer.flush(30)
    when = datetime.fromtimestamp((T0 + 30) / 1000, timezone.utc)
    import_topic(logs, topic, bootstrap_servers=servers, from_timestamp=when)
    copy = logs.topic(topic)
    assert copy.start_offsets() == {0: 15, 1: 15}
    assert copy.count() == 10


def test_groups_go_on_without_a_gap(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    topic = new_topic(2)
    write(producer, topic, 100)
    settings = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "group.id": f"{topic}-billing"})
    places = [confluent_kafka.TopicPartition(topic, n, 7 + n) for n in range(2)]
    consumer.commit(offsets=places, asynchronous=False)
    report = import_topic(logs, topic, bootstrap_servers=servers, groups=True)
    assert report.groups[f"{topic}-billing"] == {0: 7, 1: 8}
    copy = logs.topic(topic)
    reader = copy.consumer(f"{topic}-billing")
    read = defaultdict(list)
    while records := reader.poll().to_pylist():
        for record in records:
            read[record["partition"]].append(record["offset"])
    assert {n: offsets[0] for n, offsets in read.items()} == {0: 7, 1: 8}
    # A consumer here has moved: what Kafka says does not count any more.
    reader.commit()
    ends = copy.group(f"{topic}-billing").positions()
    consumer.commit(offsets=places, asynchronous=False)
    again = import_topic(logs, topic, bootstrap_servers=servers, groups=True)
    assert "a consumer has committed" in again.left_out[f"{topic}-billing"]
    assert copy.group(f"{topic}-billing").positions() == ends
    consumer.close()


def test_new_partitions_are_followed(
    servers: str, new_topic: NewKafkaTopic, producer: Any, admin: AdminClient, logs: Store
) -> None:
    topic = new_topic(2)
    write(producer, topic, 100)
    import_topic(logs, topic, bootstrap_servers=servers)
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
    fresh = confluent_kafka.Producer({"bootstrap.servers": servers})
    for number in range(4):
        fresh.produce(topic, b"new", partition=number, timestamp=T0)
    assert fresh.flush(30) == 0
    import_topic(logs, topic, bootstrap_servers=servers)
    assert len(logs.topic(topic).end_offsets()) == 4
    check(logs, servers, topic)


def test_sigterm_ends_a_following_import_after_its_commit(
    servers: str, new_topic: NewKafkaTopic, producer: Any, tmp_path: Path
) -> None:
    topic, folder = new_topic(), tmp_path / "logs"
    write(producer, topic, 1_000)
    store = pylogtable.open(folder)
    with following(servers, topic, folder) as process:
        deadline = time.monotonic() + 120
        while topic not in store.topics() or store.topic(topic).count() < 1_000:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        report = json.loads(process.stdout.read())
        assert process.wait(60) == 143
    assert report["records"] == 1_000
    check(store, servers, topic)


def test_export_and_import_again_is_equal(
    servers: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    """Without holes in the first topic, Kafka gives the same offsets again."""
    topic, again = new_topic(), new_topic()
    write(producer, topic, 5_000)
    import_topic(logs, topic, bootstrap_servers=servers)
    copy = logs.topic(topic)
    report = export_topic(copy, bootstrap_servers=servers, kafka_topic=again, batch_records=1_000)
    assert report.records == 5_000
    assert in_kafka(servers, again) == in_kafka(servers, topic)
