"""A topic comes over while it is written to, grows, and the import is killed again and again.

`PYLOGTABLE_DEEP=1 make test-kafka` does it with a million records and 20 kills.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewPartitions

import pylogtable
from pylogtable.kafka import import_topic
from tests.builders import rows
from tests.depth import rounds
from tests.kafka.conftest import NewKafkaTopic
from tests.kafka.test_import import T0, check, following, here, in_kafka

KILLS = rounds(4, deep=20)
RECORDS = rounds(40_000, deep=1_000_000)
BATCH = 500
GROUP = "billing"

Place = tuple[int, int]


def write_some(servers: str, topic: str, count: int, name: str) -> None:
    """Records with and without keys, values and headers. Some batches are transactions, and some
    of these are aborted. A new producer sees new partitions at once."""
    settings = {
        "bootstrap.servers": servers,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 1_000_000,
    }
    plain = confluent_kafka.Producer(settings)
    transactional = confluent_kafka.Producer({**settings, "transactional.id": f"{topic}-{name}"})
    transactional.init_transactions(60)
    chance = random.Random(name)
    for first in range(0, count, BATCH):
        kind = ("plain", "plain", "committed", "aborted")[first // BATCH % 4]
        producer = plain if kind == "plain" else transactional
        if kind != "plain":
            producer.begin_transaction()
        for number in range(first, first + BATCH):
            key = None if number % 11 == 0 else f"{name}-{chance.randrange(10_000)}".encode()
            value = None if number % 7 == 0 else os.urandom(chance.randrange(40))
            headers = [("h", key), ("", b""), ("h", None)] if number % 3 == 0 else None
            producer.produce(topic, value, key, headers=headers, timestamp=T0 + number)
        if kind == "committed":
            producer.commit_transaction(60)
        elif kind == "aborted":
            producer.flush(60)  # so that there is something to abort
            producer.abort_transaction(60)
    assert plain.flush(60) == 0


def consume_some(servers: str, topic: str, group: str, least: int) -> set[Place]:
    """A consumer of Kafka reads some records, commits, and goes. Returns what it has read."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    seen: set[Place] = set()
    while len(seen) < least:
        for message in consumer.consume(least - len(seen), 1.0):
            assert message.error() is None
            seen.add((message.partition(), message.offset()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return seen


def ends_of(folder: Path, topic: str) -> int:
    """How far all partitions are."""
    store = pylogtable.open(folder)
    return sum(store.topic(topic).end_offsets().values()) if topic in store.topics() else 0


def test_topic_comes_over_whole_whatever_happens_meanwhile(
    servers: str, new_topic: NewKafkaTopic, admin: AdminClient, tmp_path: Path
) -> None:
    topic, folder = new_topic(3, {"retention.ms": "-1"}), tmp_path / "logs"
    group = f"{topic}-{GROUP}"
    chance = random.Random(topic)
    read_in_kafka: set[Place] = set()
    grows_before = {KILLS // 3: 5, 2 * KILLS // 3: 6}
    with ThreadPoolExecutor(1) as pool:
        for number in range(KILLS):
            if number in grows_before:
                more = NewPartitions(topic, grows_before[number])
                admin.create_partitions([more])[topic].result(30)
            before = ends_of(folder, topic)
            written = pool.submit(write_some, servers, topic, RECORDS // KILLS, f"w{number}")
            with following(servers, topic, folder) as process:
                deadline = time.monotonic() + 120
                while ends_of(folder, topic) == before:
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                time.sleep(chance.uniform(0.0, 0.4))  # then it is killed in the middle of its work
            written.result()
            if number == KILLS // 2:
                read_in_kafka = consume_some(servers, topic, group, RECORDS // 10)
    store = pylogtable.open(folder)
    report = import_topic(store, topic, bootstrap_servers=servers, groups=True)
    copy = store.topic(topic)
    assert len(copy.end_offsets()) == 6
    check(store, servers, topic)
    assert group in report.groups

    places = set(rows(copy.read(columns=["partition", "offset"]), "partition", "offset"))
    with copy.consumer(group, columns=["partition", "offset"]) as consumer:
        read_here: list[Place] = []
        while (polled := consumer.poll(max_records=100_000)).num_rows:
            read_here += rows(polled, "partition", "offset")
    assert len(read_here) == len(set(read_here))
    assert not read_in_kafka & set(read_here)
    assert read_in_kafka | set(read_here) == places


def test_compacted_topic_comes_over_with_its_holes_and_tombstones(
    servers: str, new_topic: NewKafkaTopic, tmp_path: Path
) -> None:
    """Kafka compacts when it wants to. So the copy counts if Kafka has not changed meanwhile."""
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    topic, store = new_topic(2, config), pylogtable.open(tmp_path / "logs")
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    written, deadline = 0, time.monotonic() + 300
    for part in range(4):
        for number in range(RECORDS // 40):
            value = None if number % 10 == part else os.urandom(10)
            key = f"key-{number % 100}".encode()
            producer.produce(topic, value, key, headers=[("n", str(number).encode())])
            written += 1
        assert producer.flush(60) == 0
        time.sleep(0.2)  # a segment of Kafka's ends with time, and is compacted then
    for attempt in range(100):
        before = in_kafka(servers, topic)
        if len(before) > written * 0.9:
            assert time.monotonic() < deadline, "Kafka did not compact the topic"
            time.sleep(0.5)
            continue
        name = f"copy-{attempt}"
        import_topic(store, topic, bootstrap_servers=servers, name=name)
        if in_kafka(servers, topic) == before:
            break
    copy = store.topic(name)
    assert here(copy) == before
    assert any(record[4] is None for record in before)
    assert copy.count() < sum(copy.end_offsets().values())
    assert copy.describe().config["cleanup.policy"] == "compact"
    assert copy.verify(data=True)
