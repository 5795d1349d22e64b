"""Imports from Kafka and exports to Kafka, against bare loops of confluent-kafka.

It needs a broker, which it starts: `.venv-engines/bin/python -m benchmarks.kafka_import [ROWS]`,
where `make test-kafka` or `make bench-peers` has set everything up.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

import pylogtable
from benchmarks.peers.rounds import medians
from benchmarks.result import Result, print_table
from pylogtable.kafka import export_topic, import_topic
from tests.kafka import broker, jars
from tests.maven import MavenUnreachable, fetch

PARTITIONS = 6
ROUNDS = 5
VALUE_BYTES = 100
HOME = Path(__file__).parents[1] / ".venv-engines"


class Cluster:
    """A broker with one topic of so many records, and what is done with it."""

    def __init__(self, servers: str, folder: Path, rows: int) -> None:
        self._servers: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self._store = pylogtable.open(folder)
        self._rows = rows
        self._numbers = itertools.count()
        self._admin = AdminClient(self._servers)
        self._source = self._new_topic()
        self._fill(self._source)
        self.import_it()
        self._copy = self._store.topic(self._store.topics()[0])

    def import_it(self) -> None:
        name = f"copy-{next(self._numbers)}"
        servers = self._servers["bootstrap.servers"]
        report = import_topic(self._store, self._source, bootstrap_servers=servers, name=name)
        assert report.records == self._rows

    def read_bare(self, look_at: Callable[[Any], object] = lambda message: None) -> None:
        """Take messages, and keep nothing."""
        consumer = confluent_kafka.Consumer({**self._servers, "group.id": "bare"})
        beginning = confluent_kafka.OFFSET_BEGINNING
        places = [
            confluent_kafka.TopicPartition(self._source, number, beginning)
            for number in range(PARTITIONS)
        ]
        consumer.assign(places)
        left = self._rows
        while left:
            for message in consumer.consume(min(left, 20_000), 1.0):
                assert message.error() is None
                look_at(message)
                left -= 1
        consumer.close()

    def export_it(self) -> None:
        target = self._new_topic()
        servers = self._servers["bootstrap.servers"]
        report = export_topic(self._copy, bootstrap_servers=servers, kafka_topic=target)
        assert report.records == self._rows

    def write_bare(self) -> None:
        self._fill(self._new_topic())

    def _fill(self, topic: str) -> None:
        settings = {"enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
        producer = confluent_kafka.Producer({**self._servers, **settings, "linger.ms": 20})
        values = [os.urandom(VALUE_BYTES) for _ in range(1_000)]
        for number in range(self._rows):
            key = str(number).encode()
            while True:
                try:
                    producer.produce(topic, values[number % 1_000], key, number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1_000 == 0:
                producer.poll(0)
        assert producer.flush(120) == 0

    def _new_topic(self) -> str:
        name = f"topic-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return name


def _all_of(message: Any) -> tuple[object, ...]:
    place = message.partition(), message.offset(), message.timestamp()
    return *place, message.key(), message.value(), message.headers()


def run(rows: int) -> list[Result]:
    with _cluster(rows) as cluster:
        steps = {
            "import": cluster.import_it,
            "bare read": cluster.read_bare,
            "read of all fields": lambda: cluster.read_bare(_all_of),
            "export": cluster.export_it,
            "bare write": cluster.write_bare,
        }
        seconds = medians(steps, ROUNDS)
    ours = seconds["import"]
    return [
        _result(f"import {rows:,} records", ours, "bare loop", seconds["bare read"], rows, 0.7),
        _result("the same", ours, "with all fields", seconds["read of all fields"], rows, 0.7),
        _result("export", seconds["export"], "bare loop", seconds["bare write"], rows, 0.5),
    ]


def _result(name: str, ours: float, what: str, bare: float, rows: int, wanted: float) -> Result:
    def shown(seconds: float) -> str:
        return f"{seconds:.2f} s, {rows / seconds:,.0f} records/s"

    return Result(name, shown(ours), f"{what}, {shown(bare)}", bare / ours, wanted)


@contextmanager
def _cluster(rows: int) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        fetch(jars.BROKER, HOME / "kafka-broker")
        with broker.running(HOME / "kafka-broker", Path(folder, "kafka")) as servers:
            yield Cluster(servers, Path(folder, "logs"), rows)


if __name__ == "__main__":
    try:
        results = run(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    except MavenUnreachable as error:
        sys.exit(f"no broker: {error}")
    load = f"load {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores"
    print(load)
    print_table(results)
    sys.exit(not all(result.reached for result in results))
