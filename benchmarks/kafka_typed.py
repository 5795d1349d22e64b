"""Imports whose values become columns, beside imports of bytes and a bare loop of confluent-kafka
with its own AvroDeserializer, which keeps nothing.

It needs a broker, which it starts: `.venv-engines/bin/python -m benchmarks.kafka_typed [ROWS]`,
where `make test-kafka` or `make bench-peers` has set everything up. The registry is the small
server of the tests: each schema is asked for once.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import pylogtable
from benchmarks.kafka_import import HOME, PARTITIONS
from benchmarks.peers.rounds import medians
from benchmarks.result import Result, print_table
from pylogtable.kafka import import_topic
from tests.kafka import broker, jars
from tests.library.kafka.registry import RegistryServer, registry_server
from tests.maven import MavenUnreachable, fetch

ROUNDS = 5
TOPIC = "orders"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "string"}],
            },
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


class Cluster:
    """A broker with one topic of so many orders in Avro, and what is done with it."""

    def __init__(self, servers: str, registry: RegistryServer, folder: Path, rows: int) -> None:
        self._servers = servers
        self._registry = registry.url
        self._store = pylogtable.open(folder)
        self._rows = rows
        self._numbers = itertools.count()
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        self._fill()

    def import_bytes(self) -> None:
        self._import()

    def import_typed(self) -> None:
        self._import(value_format="avro", schema_registry=self._registry)

    def _import(self, **options: Any) -> None:
        name = f"copy-{next(self._numbers)}"
        report = import_topic(
            self._store, TOPIC, bootstrap_servers=self._servers, name=name, **options
        )
        assert report.records == self._rows
        self._store.delete_topic(name)

    def read_bare(self) -> None:
        """Decode each message, and keep nothing."""
        settings = {"bootstrap.servers": self._servers, "group.id": "bare"}
        consumer = confluent_kafka.Consumer(settings)
        read = AvroDeserializer(SchemaRegistryClient({"url": self._registry}))
        context = SerializationContext(TOPIC, MessageField.VALUE)
        beginning = confluent_kafka.OFFSET_BEGINNING
        consumer.assign(
            [confluent_kafka.TopicPartition(TOPIC, n, beginning) for n in range(PARTITIONS)]
        )
        left = self._rows
        while left:
            for message in consumer.consume(min(left, 20_000), 1.0):
                assert message.error() is None
                read(message.value(), context)
                left -= 1
        consumer.close()

    def _fill(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._servers, "queue.buffering.max.messages": 1_000_000}
        )
        write = AvroSerializer(SchemaRegistryClient({"url": self._registry}), json.dumps(SCHEMA))
        context = SerializationContext(TOPIC, MessageField.VALUE)
        values = [write(_order(number), context) for number in range(10_000)]
        for number in range(self._rows):
            key = str(number).encode()
            while True:
                try:
                    producer.produce(TOPIC, values[number % 10_000], key, number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0


def _order(number: int) -> dict[str, Any]:
    return {
        "order_id": number,
        "customer": f"customer-{number % 997}",
        "amount": number / 7,
        "paid": number % 3 == 0,
        "note": None if number % 2 else f"note {number}",
        "at": 1_700_000_000_000 + number,
        "address": {"city": f"city {number % 31}", "zip": f"{number % 90_000:05d}"},
        "tags": [f"tag {n}" for n in range(number % 4)],
    }


def run(rows: int) -> list[Result]:
    with _cluster(rows) as cluster:
        steps = {
            "typed": cluster.import_typed,
            "bytes": cluster.import_bytes,
            "bare": cluster.read_bare,
        }
        seconds = medians(steps, ROUNDS)

    def shown(name: str) -> str:
        return f"{seconds[name]:.2f} s, {rows / seconds[name]:,.0f} records/s"

    return [
        Result(
            f"typed import of {rows:,} records",
            shown("typed"),
            f"bare loop with AvroDeserializer, {shown('bare')}",
            seconds["bare"] / seconds["typed"],
            1.0,
        ),
        Result(
            "the same",
            shown("typed"),
            f"import of bytes, {shown('bytes')}",
            seconds["bytes"] / seconds["typed"],
            0.3,
        ),
    ]


@contextmanager
def _cluster(rows: int) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder, registry_server() as registry:
        fetch(jars.BROKER, HOME / "kafka-broker")
        with broker.running(HOME / "kafka-broker", Path(folder, "kafka")) as servers:
            yield Cluster(servers, registry, Path(folder, "logs"), rows)


if __name__ == "__main__":
    try:
        results = run(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
    except MavenUnreachable as error:
        sys.exit(f"no broker: {error}")
    print(f"load {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores")
    print_table(results)
    sys.exit(not all(result.reached for result in results))
