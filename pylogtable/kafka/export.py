"""Exports a topic to Kafka. The position is that of a consumer group of the topic.

Delivery is at least once: positions are committed after Kafka has confirmed the records. What was
sent and not committed when the export ended is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pylogtable.arguments import (
    check_callable,
    check_flags,
    check_mapping,
    check_name,
    check_number,
)
from pylogtable.errors import InvalidRequestError
from pylogtable.format.schema import is_kafka_shaped
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.sink import KafkaSink
from pylogtable.runtime import Runtime
from pylogtable.topic import Topic

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


def export_topic(
    topic: Topic,
    *,
    bootstrap_servers: str,
    kafka_topic: str | None = None,
    group: str | None = None,
    follow: bool = False,
    producer_settings: Mapping[str, Any] | None = None,
    batch_records: int = 20_000,
    on_progress: Callable[[int], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> ExportReport:
    """Send the records of a Kafka-shaped topic to the topic `kafka_topic` of Kafka, which has to
    exist; it has the same name by default.

    >>> pylogtable.kafka.export_topic(topic, bootstrap_servers="broker:9092").records

    Keys, values, headers, partitions and timestamps (in milliseconds) are kept. Offsets are Kafka's
    own. The consumer `group` of this topic remembers how far the export is, so a repeat goes on. It
    is `kafka-export-` and the name of Kafka's topic by default. An export to a second cluster needs
    a group of its own.
    Delivery is at least once: a batch that was sent when the export was killed is sent again.
    `on_progress` gets the number of records sent so far, and `stop` ends an export that follows.
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
    if not is_kafka_shaped(topic.schema):
        raise InvalidRequestError(
            f"topic {topic.name!r} has other columns than Kafka's key, value and headers. "
            "Serialize its rows into a topic of that shape first"
        )
    into = kafka_topic or topic.name
    group = f"kafka-export-{into}" if group is None else group
    runtime = Runtime()
    began, records = runtime.monotonic(), 0
    is_stopped = stop or (lambda: False)
    sink = KafkaSink(bootstrap_servers, into, settings, stop=is_stopped)
    try:
        here, there = len(topic.end_offsets()), sink.partition_count()
    except StoppedError:
        return ExportReport(topic.name, into, group, 0, runtime.monotonic() - began, {})
    if there < here:
        raise InvalidRequestError(
            f"topic {into!r} of Kafka has {there} partition(s), and {topic.name!r} has {here}. Add "
            "partitions in Kafka: records keep theirs"
        )
    wait = POLL_SECONDS if follow else None
    with topic.consumer(group, columns=COLUMNS, max_records=batch_records) as consumer:
        while not is_stopped():
            rows = consumer.poll(timeout=wait)
            if rows.num_rows:
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
