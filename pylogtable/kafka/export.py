"""Exports a topic to Kafka. The position is that of a consumer group of the topic.

Delivery is at least once: positions are committed after Kafka has confirmed the records. What was
sent and not committed when the export ended is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pylogtable.arguments import (
    check_callable,
    check_flags,
    check_mapping,
    check_name,
    check_number,
)
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.schema import is_kafka_shaped
from pylogtable.kafka.back_to_source import begin_back_to_source
from pylogtable.kafka.client import REQUEST_SECONDS, KafkaClient, StoppedError
from pylogtable.kafka.typed.options import ValueOptions, checked_value_options
from pylogtable.kafka.typed.typed_export import RecordMaker
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.runtime import Runtime
from pylogtable.topic import Topic

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
        stop_seconds: float = DEFAULT_LIMITS.kafka_stop_seconds,
    ) -> None:
        super().__init__(servers, topic, settings, request_seconds, stop, stop_seconds)
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

    def describe(self) -> tuple[str, int]:
        """The id of the cluster, and how many partitions the topic has there."""
        return self.describe_with(self._producer)

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


COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
#: How long an export that follows waits for records before it looks whether it is to stop.
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ExportReport:
    """What `export_topic` did. `positions` are those of the group: the next offset to export."""

    topic: str
    kafka_topic: str
    group: str
    records: int
    seconds: float
    positions: dict[int, int]

    def followed_by(self, later: ExportReport) -> ExportReport:
        """The report of this export and of a later one of the same topic."""
        return replace(
            later, records=self.records + later.records, seconds=self.seconds + later.seconds
        )


def export_topic(
    topic: Topic,
    *,
    bootstrap_servers: str,
    kafka_topic: str | None = None,
    group: str | None = None,
    follow: bool = False,
    producer_settings: Mapping[str, Any] | None = None,
    batch_records: int = 20_000,
    value_format: str | None = None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> ExportReport:
    """Send the records of a Kafka-shaped topic to the topic `kafka_topic` of Kafka, which has to
    exist; it has the same name by default.

    >>> pylogtable.kafka.export_topic(topic, bootstrap_servers="broker:9092").records

    Keys, values, headers, partitions and timestamps (in milliseconds) are kept. Offsets are Kafka's
    own. The consumer `group` of this topic remembers how far the export is, so a repeat goes on. It
    is `kafka-export-` and the name of Kafka's topic by default. An export to a second cluster needs
    a group of its own. A copy of Kafka's topic that was promoted may be sent back to that topic: a
    new group begins where it was promoted, with a warning.
    Delivery is at least once: a batch that was sent when the export was killed is sent again.
    `on_progress` gets the number of records sent so far, and `stop` ends an export that follows.

    With a `value_format` ("avro", "json-schema", "protobuf" or "json") the topic is one with
    columns, such as a typed import makes: they are encoded with the newest schema of the subject
    `<kafka topic>-value` in the `schema_registry`, or with that of the file `value_schema`. With a
    `key_format` so are key columns. A record that cannot be encoded raises `InvalidRequestError`,
    before anything of its batch is sent.

    >>> export_topic(topic, bootstrap_servers="broker:9092", value_format="avro",
    ...              schema_registry="http://registry:8081").records
    """
    if not isinstance(topic, Topic):
        raise InvalidRequestError(
            f"`topic` must be a topic, such as store.topic('orders'), not {topic!r}"
        )
    check_name("bootstrap_servers", bootstrap_servers)
    check_name("kafka_topic", topic.name if kafka_topic is None else kafka_topic)
    check_flags(follow=follow)
    check_callable("on_progress", on_progress)
    check_callable("stop", stop)
    check_number("batch_records", batch_records, 1)
    settings = {} if producer_settings is None else producer_settings
    check_mapping("producer_settings", settings, "{'security.protocol': 'SSL'}")
    options = checked_value_options(
        value_format=value_format,
        key_format=key_format,
        schema_registry=schema_registry,
        value_schema=value_schema,
        key_schema=key_schema,
        registry_settings=registry_settings,
    )
    _check_shape(topic, options)
    into = kafka_topic or topic.name
    group = f"kafka-export-{into}" if group is None else group
    runtime = Runtime()
    began, records = runtime.monotonic(), 0
    is_stopped = stop or (lambda: False)
    seconds = topic._store.limits.kafka_stop_seconds
    sink = KafkaSink(bootstrap_servers, into, settings, stop=is_stopped, stop_seconds=seconds)
    try:
        here = len(topic.end_offsets())
        cluster, there = sink.describe()
    except StoppedError:
        return ExportReport(topic.name, into, group, 0, runtime.monotonic() - began, {})
    if there < here:
        raise InvalidRequestError(
            f"topic {into!r} of Kafka has {there} partition(s), and {topic.name!r} has {here}. Add "
            "partitions in Kafka: records keep theirs"
        )
    begin_back_to_source(topic, group, cluster, into)
    maker: RecordMaker | None = None
    if options is not None:  # raises now if the schemas cannot be used
        maker = RecordMaker(topic.name, topic.at().snapshot.info, options, into)
    wait = POLL_SECONDS if follow else None
    # A topic of columns may get more of them: all are read.
    columns = COLUMNS if options is None else None
    with topic.consumer(group, columns=columns, max_records=batch_records) as consumer:
        while not is_stopped():
            rows = consumer.poll(timeout=wait)
            if rows.num_rows:
                if options is not None and maker is not None:
                    info = consumer.snapshot.info
                    if not maker.fits(info):
                        maker = RecordMaker(topic.name, info, options, into)
                    rows = maker.make(rows)
                sink.send(rows)
                consumer.commit()
                records += rows.num_rows
                if on_progress is not None:
                    on_progress(records)
            elif not follow:
                break
    seconds = runtime.monotonic() - began
    positions = topic.group(group).positions()
    return ExportReport(topic.name, into, group, records, seconds, positions)


def _check_shape(topic: Topic, options: ValueOptions | None) -> None:
    """Raise if a topic of columns is to be sent as it is, or one of bytes with a format."""
    if options is None and not is_kafka_shaped(topic.schema):
        raise InvalidRequestError(
            f"topic {topic.name!r} has other columns than Kafka's key, value and headers: give "
            "--value-format (value_format=) to encode them, and --schema-registry "
            "(schema_registry=) if it needs a schema"
        )
    if options is not None and is_kafka_shaped(topic.schema):
        raise InvalidRequestError(
            f"topic {topic.name!r} has Kafka's key, value and headers, which are bytes already: "
            "leave out --value-format (value_format=)"
        )
