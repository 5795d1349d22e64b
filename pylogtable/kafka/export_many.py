"""Exports many topics to Kafka in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogtable.arguments import (
    check_callable,
    check_flags,
    check_mapping,
    check_name,
    check_number,
)
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.kafka.client import kafka_library
from pylogtable.kafka.export import ExportReport, export_topic
from pylogtable.kafka.many_topics import ManyTopics, TellProgress, check_options
from pylogtable.kafka.side_by_side import Share
from pylogtable.kafka.topics_plan import Choice
from pylogtable.kafka.typed.options import checked_value_options
from pylogtable.runtime import Runtime
from pylogtable.store import Store

#: What librdkafka holds for all topics together until Kafka has confirmed it.
QUEUE_BYTES = 256 << 20
#: The least that one topic needs, however many there are.
LEAST_BYTES = 1 << 20
LEAST_RECORDS = 500


@dataclass(frozen=True)
class ExportsReport:
    """What `export_topics` did: a report for each topic that came to its end, and for the others
    why they failed. It is true if none has failed."""

    reports: dict[str, ExportReport] = field(default_factory=dict)
    errors: dict[str, LogTableError] = field(default_factory=dict)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return not self.errors

    @property
    def records(self) -> int:
        """The records of all topics."""
        return sum(report.records for report in self.reports.values())


def export_topics(
    store: Store,
    topics: Sequence[str] | None = None,
    *,
    bootstrap_servers: str,
    pattern: str | None = None,
    all_topics: bool = False,
    follow: bool = False,
    producer_settings: Mapping[str, Any] | None = None,
    batch_records: int = 20_000,
    on_progress: Callable[[str, int], object] | None = None,
    on_end: Callable[[str, ExportReport | LogTableError], object] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> ExportsReport:
    r"""Send many topics of this store to topics of Kafka that have the same names, in this process:
    these `topics`, or those whose whole name matches `pattern`, or all.

    >>> pylogtable.kafka.export_topics(store, ["eu", "us"], bootstrap_servers="broker:9092")
    >>> pylogtable.kafka.export_topics(store, all_topics=True, bootstrap_servers="broker:9092")

    The `options` are those of `export_topic`, and count for each topic. A topic that fails does not
    stop the others: the report says why. A few topics are sent at a time. With `follow` it goes on
    with all of them until `stop()` is true; it tries those that have failed again, and looks for
    new topics, every 30 seconds.

    `batch_records` and what librdkafka holds are for all topics together: each gets its share.
    `all_topics` is without those that end with `-dead-letters` or `-redriven`.

    `on_progress` gets the topic and how many of its records were sent, in the thread that sends
    them. `on_end` gets the topic, and its report or its error, as soon as it ends.
    """
    if not isinstance(store, Store):
        raise InvalidRequestError(
            f"`store` must be a store, such as pylogtable.open('s3://bucket/logs'), not {store!r}"
        )
    choice = Choice.of(topics, pattern, all_topics)
    check_name("bootstrap_servers", bootstrap_servers)
    check_flags(follow=follow)
    check_number("batch_records", batch_records, 1)
    check_callable("on_progress", on_progress)
    check_callable("on_end", on_end)
    check_callable("stop", stop)
    settings = {} if producer_settings is None else producer_settings
    check_mapping("producer_settings", settings, "{'security.protocol': 'SSL'}")
    check_options(export_topic, options, "topic", "kafka_topic")
    # What is wrong for all topics raises now; the group is the only option that is about no values.
    values = {name: option for name, option in options.items() if name != "group"}
    checked_value_options(**{"value_format": None, **values})
    kafka_library()  # raises if it is missing: no later try would find it
    queue = int(settings.get("queue.buffering.max.kbytes", QUEUE_BYTES >> 10))

    progress = TellProgress(on_progress, int.__add__)

    def export_one(topic: str, share: Share, stop: Callable[[], bool]) -> ExportReport:
        return export_topic(
            store.topic(topic),
            bootstrap_servers=bootstrap_servers,
            follow=follow,
            producer_settings={
                **settings,
                "queue.buffering.max.kbytes": share.of(queue, min(queue, LEAST_BYTES >> 10)),
            },
            batch_records=share.of(batch_records, min(batch_records, LEAST_RECORDS)),
            on_progress=progress.begun(topic),
            stop=stop,
            **options,
        )

    runtime = Runtime()
    began = runtime.monotonic()
    many = ManyTopics(
        choice=choice,
        place=store.url,
        list_names=store.topics,
        work=export_one,
        job="export",
        follow=follow,
        stop=stop or (lambda: False),
        look_seconds=store._store.limits.kafka_look_seconds,
        on_end=on_end,
    )
    many.run()
    return ExportsReport(many.reports, many.errors, runtime.monotonic() - began)
