"""Spark's Kafka connector into `format("pylogtable")`: the recipe of the guide."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

import pylogtable
from tests.kafka.conftest import NewKafkaTopic
from tests.kafka.test_import import check, write

JARS = "PYLOGTABLE_KAFKA_CONNECTOR"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    folder = os.environ.get(JARS)
    if not folder:
        pytest.skip("no jars of Spark's Kafka connector; `make test-kafka` fetches them")
    jars = ",".join(str(path) for path in sorted(Path(folder).glob("*.jar")))
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
    topic = new_topic()
    store = pylogtable.open(tmp_path / "logs")
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    write(producer, topic, 3_000)
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
    for first in (3_000, 4_000):  # the second run goes on from the checkpoint
        write(producer, topic, 1_000, first)
        stream = spark.readStream.format("kafka").options(**from_kafka)
        later = stream.option("startingOffsets", start).load().drop("topic", "timestampType")
        sink = later.writeStream.format("pylogtable").option("keepOffsets", True)
        sink = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        sink.start(path).awaitTermination(300)
        check(store, servers, topic)
