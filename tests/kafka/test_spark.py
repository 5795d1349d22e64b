"""Spark's Kafka connector beside `format("pylogtable")`: the recipes of the guide. It writes with
Kafka's own Java producer, so keys are where Java puts them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError, Topic
from pylogtable.kafka import import_topic
from tests.builders import ints, kafka, rows
from tests.kafka.conftest import NewKafkaTopic
from tests.kafka.jars import CONNECTOR
from tests.kafka.test_import import check, in_kafka, write
from tests.kafka.test_proof import write_some
from tests.maven import missing

JARS = "PYLOGTABLE_KAFKA_CONNECTOR"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    folder = Path(os.environ.get(JARS, "no-jars"))
    if missing(CONNECTOR, folder):
        pytest.skip("no jars of Spark's Kafka connector; `make test-kafka` fetches them")
    jars = ",".join(str(path) for path in sorted(folder.glob("*.jar")))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_batch_and_stream_bring_every_record_under_its_offset(
    spark: SparkSession, servers: str, new_topic: NewKafkaTopic, tmp_path: Path
) -> None:
    """Transactions, of which some are aborted, leave holes."""
    topic = new_topic()
    store = pylogtable.open(tmp_path / "logs")
    write_some(servers, topic, 3_000, "first")
    from_kafka: dict[str, Any] = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "includeHeaders": True,
        "kafka.isolation.level": "read_committed",
    }
    records = spark.read.format("kafka").options(**from_kafka).load()
    copy = records.drop("topic", "timestampType").write.format("pylogtable").mode("append")
    path = str(tmp_path / "logs" / topic)
    copy.option("keepOffsets", True).option("partitions", 3).option("key", "key").save(path)
    check(store, servers, topic)

    ends = store.topic(topic).end_offsets()
    start = json.dumps({topic: {str(number): end for number, end in ends.items()}})
    assert store.topic(topic).count() < sum(ends.values())
    for name in ("second", "third"):  # the third goes on from the checkpoint
        write_some(servers, topic, 2_000, name)
        stream = spark.readStream.format("kafka").options(**from_kafka)
        later = stream.option("startingOffsets", start).load().drop("topic", "timestampType")
        sink = later.writeStream.format("pylogtable").option("keepOffsets", True)
        sink = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        sink.start(path).awaitTermination(300)
        check(store, servers, topic)
    # A topic has one of both: the other one refuses it at once, by name.
    with pytest.raises(InvalidRequestError, match=r"no import of this topic .*\(keepOffsets\)"):
        import_topic(store, topic, bootstrap_servers=servers)
    import_topic(store, topic, bootstrap_servers=servers, name="imported")
    ours = store.topic("imported")
    said = f"this topic is a copy of Kafka's topic '{topic}' at {servers}"
    sink = later.writeStream.format("pylogtable").option("keepOffsets", True)
    sink = sink.option("checkpointLocation", str(tmp_path / "d")).trigger(availableNow=True)
    with pytest.raises(Exception, match=said):
        sink.start(ours.url).awaitTermination(300)
    check(store, servers, topic)


def test_keys_are_where_the_java_producer_puts_them(
    spark: SparkSession, servers: str, new_topic: NewKafkaTopic, tmp_path: Path
) -> None:
    topic, other = new_topic(7), new_topic(7)
    store = pylogtable.open(tmp_path / "logs")
    chance = random.Random(7)
    keys = [b"", b"\x00", b"\xff" * 5, *(chance.randbytes(n % 40 + 1) for n in range(2_000))]

    def java_writes(name: str) -> None:
        written = spark.createDataFrame([(key, b"v") for key in keys], "key binary, value binary")
        writer = written.write.format("kafka").option("kafka.bootstrap.servers", servers)
        writer.option("topic", name).save()

    java_writes(topic)
    import_topic(store, topic, bootstrap_servers=servers)
    copy = store.topic(topic)
    copy.promote()
    first = partitions_of_keys(copy)
    assert set(first) == set(keys)
    copy.append(pa.table({"key": keys, "value": [b"here"] * len(keys)}))
    assert partitions_of_keys(copy) == first  # what was appended here is where Java put it
    java_writes(other)
    made = store.create_topic("made-here", 7)
    made.append(pa.table({"key": keys}))
    import_topic(store, other, bootstrap_servers=servers)
    assert partitions_of_keys(made) == partitions_of_keys(store.topic(other)) == first


def partitions_of_keys(topic: Topic) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for key, partition in rows(topic.read(columns=["key", "partition"]), "key", "partition"):
        found.setdefault(key, set()).add(partition)
    return found


def test_batch_and_stream_to_kafka_keep_all_but_offsets_and_timestamps(
    spark: SparkSession, servers: str, new_topic: NewKafkaTopic, tmp_path: Path
) -> None:
    source, at_once, streamed = new_topic(), new_topic(), new_topic()
    store = pylogtable.open(tmp_path / "logs")
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    write(producer, source, 2_000)
    import_topic(store, source, bootstrap_servers=servers)
    topic = store.topic(source)
    columns = ["partition", "key", "value", "headers"]

    def without_time(name: str) -> list[Any]:
        return [(*record[:2], *record[3:]) for record in in_kafka(servers, name)]

    records = spark.read.format("pylogtable").option("includeHeaders", True).load(topic.url)
    writer = records.select(*columns).write.format("kafka").option("topic", at_once)
    writer.option("kafka.bootstrap.servers", servers).save()
    expected = without_time(source)
    assert without_time(at_once) == expected

    stream = spark.readStream.format("pylogtable").option("startingOffsets", "earliest")
    stream = stream.option("includeHeaders", True).option("group", "to-kafka")
    query = stream.load(topic.url).select(*columns).writeStream.format("kafka")
    query = query.option("kafka.bootstrap.servers", servers).option("topic", streamed)
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query.start().awaitTermination(300)
    assert without_time(streamed) == expected
    ends = topic.end_offsets()
    topic.promote()
    topic.append(kafka("abc", partition=ints(0, 1, 2)))
    query.start().awaitTermination(300)  # goes on, and commits what the first run has sent
    assert len(without_time(streamed)) == len(expected) + 3
    assert topic.group("to-kafka").positions() == ends
