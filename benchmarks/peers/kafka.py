"""Kafka, by Spark's connector. A record has the key, and the six columns as JSON.

The connector writes no times of records, so the time is in the JSON too.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from benchmarks.peers.orders import COLUMNS, KEY, PARTITIONS, SCHEMA
from benchmarks.peers.peer import Offsets, middle_offsets

_SERVERS = "kafka.bootstrap.servers"


class Kafka:
    name = "Kafka"

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self._spark = spark
        self._servers = servers
        jvm: Any = spark.sparkContext._jvm
        self._new_topic = jvm.org.apache.kafka.clients.admin.NewTopic
        self._set_of = jvm.java.util.Set.of
        self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(
            jvm.java.util.Map.of("bootstrap.servers", servers)
        )

    def create(self, table: str) -> None:
        topic = self._new_topic(table, PARTITIONS, 1)
        self._admin.createTopics(self._set_of(topic)).all().get()

    def drop(self, table: str) -> None:
        self._admin.deleteTopics(self._set_of(table)).all().get()

    def append(self, table: str, rows: DataFrame) -> None:
        writer = _records(rows).write.format("kafka").option(_SERVERS, self._servers)
        writer.option("topic", table).save()

    def read(self, table: str) -> DataFrame:
        return _parsed(self.read_values(table))

    def read_values(self, table: str) -> DataFrame:
        """The records with their value as bytes, which nobody has parsed."""
        return self._reader(self._spark.read, table).load()

    def bounds(self, table: str, rows: int) -> Offsets:
        last = self.read_values(table).groupBy("partition").agg(F.max("offset")).collect()
        return middle_offsets({partition: offset + 1 for partition, offset in last})

    def part(self, table: str, bounds: Offsets) -> DataFrame:
        low, high = (json.dumps({table: offsets}) for offsets in bounds)
        reader = self._reader(self._spark.read, table)
        reader = reader.option("startingOffsets", low).option("endingOffsets", high)
        return _parsed(reader.load())

    def stream(self, table: str) -> DataFrame:
        reader = self._reader(self._spark.readStream, table)
        return _parsed(reader.option("startingOffsets", "earliest").load())

    def start(self, stream: DataFrame, table: str, checkpoint: str) -> StreamingQuery:
        writer = _records(stream).writeStream.option("checkpointLocation", checkpoint)
        writer = writer.format("kafka").option(_SERVERS, self._servers)
        return writer.option("topic", table).start()

    def _reader(self, reader: Any, table: str) -> Any:
        reader = reader.format("kafka").option(_SERVERS, self._servers).option("subscribe", table)
        # A reader at the end of a partition waits 500 ms for more otherwise.
        return reader.option("kafka.fetch.max.wait.ms", "10")


def _records(rows: DataFrame) -> DataFrame:
    value = F.to_json(F.struct(*COLUMNS))
    return rows.select(F.col(KEY).alias("key"), value.alias("value"))


def _parsed(records: DataFrame) -> DataFrame:
    value = F.from_json(F.col("value").cast("string"), SCHEMA).alias("value")
    return records.select(value).select("value.*")
