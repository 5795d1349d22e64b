"""A cluster in this process: librdkafka's own mock. Topics have 4 partitions, and come into being
when somebody writes to them. It has no transactions, no settings and no groups to list."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import confluent_kafka

PARTITIONS = 4
_numbers = itertools.count()


@dataclass
class MockCluster:
    """Lives as long as its producer."""

    servers: str
    producer: Any

    def new_topic(self) -> str:
        """A name that no other test uses."""
        return f"topic-{next(_numbers)}"

    def produce(
        self, topic: str, partition: int, values: Sequence[bytes | None], **more: Any
    ) -> None:
        """Messages whose key is their number in this call."""
        for number, value in enumerate(values):
            key = str(number).encode()
            self.producer.produce(topic, value, key, partition, **more)
        assert self.producer.flush(30) == 0


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = producer.list_topics(timeout=30).brokers.values()
    yield MockCluster(f"{broker.host}:{broker.port}", producer)
    producer.flush(30)
