"""Sends rows to one topic of a Kafka cluster, each to the partition it has here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.kafka.client import REQUEST_SECONDS, KafkaClient

#: How long Kafka may confirm nothing of what was sent.
DELIVERY_SECONDS = 120.0


class KafkaSink(KafkaClient):
    """A topic of Kafka that is written to. The producer is idempotent: librdkafka repeats what
    fails, and Kafka keeps each message once, as long as this process lives."""

    def __init__(
        self,
        servers: str,
        topic: str,
        settings: Mapping[str, Any],
        *,
        request_seconds: float = REQUEST_SECONDS,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(servers, topic, settings, request_seconds, stop)
        self._failure: LogTableError | None = None
        with self.explained("be opened"):
            self._producer = self.kafka.Producer(
                {
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "queue.buffering.max.messages": 1_000_000,
                    "queue.buffering.max.kbytes": 256 << 10,
                    **self.settings,
                }
            )

    def partition_count(self) -> int:
        """How many partitions the topic has in Kafka."""
        return self.describe_with(self._producer)[1]

    def send(self, rows: pa.Table) -> None:
        """Send all rows, and wait until Kafka has confirmed them. Raises if it refuses one."""
        milliseconds = rows["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False)
        times = milliseconds.cast(pa.int64()).to_pylist()
        if times and min(times) < 1:
            at = times.index(min(times))
            place, offset = rows["partition"][at], rows["offset"][at]
            raise InvalidRequestError(
                f"the record at offset {offset} of partition {place} has the timestamp "
                f"{rows['timestamp'][at]}: Kafka cannot store times at or before 1970-01-01. "
                "Nothing of this batch was sent. To leave it out, move the group of the export "
                "behind it (pylogtable groups reset)"
            )
        columns = (rows[name].to_pylist() for name in ("partition", "key", "value", "headers"))
        # confluent-kafka takes one message at a time.
        with self.explained("be written"):
            for record in zip(*columns, times, strict=True):
                while not self._take(*record):
                    self._producer.poll(0.1)
            # `flush` does not always raise what makes the producer unusable.
            while (left := len(self._producer)) and self._producer.poll(DELIVERY_SECONDS):
                pass
        if self._failure is not None:
            raise self._failure
        if left:
            raise self.silence(DELIVERY_SECONDS, f"has not confirmed {left} record(s)")

    def _take(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Any, time: int
    ) -> bool:
        """Hand one message to librdkafka; False if it has no room for it now."""
        pairs = headers and [(header["key"] or "", header["value"]) for header in headers]
        try:
            self._producer.produce(
                self.topic,
                value,
                key,
                partition,
                on_delivery=self._note_delivery,
                timestamp=time,
                headers=pairs or None,
            )
        except BufferError:
            return False
        except self.kafka.KafkaException as error:
            if error.args[0].code() == self.kafka.KafkaError._FATAL:
                self._producer.poll(1.0)  # raises what it was
            raise
        return True

    def _note_delivery(self, error: Any, _: object) -> None:
        if error is not None and self._failure is None:
            self._failure = self.error(error, "be written")
