"""Imports many topics of Kafka in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
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
from pylogtable.kafka.client import kafka_library, topic_names
from pylogtable.kafka.import_report import ImportProgress, ImportReport
from pylogtable.kafka.import_start import checked_import_options, import_topic
from pylogtable.kafka.import_threads import ImportThreads, shared_threads, sharing
from pylogtable.kafka.many_topics import ManyTopics, TellProgress, check_options
from pylogtable.kafka.side_by_side import Share
from pylogtable.kafka.topics_plan import Choice
from pylogtable.runtime import Runtime
from pylogtable.store import Store

#: What librdkafka reads ahead for all topics together, and what it may ask a broker for at once.
QUEUE_BYTES = 256 << 20
FETCH_BYTES = 50 << 20
#: The least that one topic needs, however many there are.
LEAST_BYTES = 64 << 10
LEAST_FETCH_BYTES = 1 << 20


@dataclass(frozen=True)
class ImportsReport:
    """What `import_topics` did: a report for each topic of Kafka that came to its end, and for the
    others why they failed. It is true if none has failed."""

    reports: dict[str, ImportReport] = field(default_factory=dict)
    errors: dict[str, LogTableError] = field(default_factory=dict)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return not self.errors

    @property
    def records(self) -> int:
        """The records of all topics."""
        return sum(report.records for report in self.reports.values())


def import_topics(
    store: Store,
    topics: Sequence[str] | None = None,
    *,
    bootstrap_servers: str,
    pattern: str | None = None,
    all_topics: bool = False,
    follow: bool = False,
    consumer_settings: Mapping[str, Any] | None = None,
    batch_bytes: int = 256 << 20,
    on_progress: Callable[[str, ImportProgress], object] | None = None,
    on_end: Callable[[str, ImportReport | LogTableError], object] | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> ImportsReport:
    r"""Import many topics of Kafka under their names, in this process: these `topics`, or those
    whose whole name matches `pattern`, or all.

    >>> pylogtable.kafka.import_topics(store, ["eu", "us"], bootstrap_servers="broker:9092")
    >>> pylogtable.kafka.import_topics(store, pattern=r"eu\..*", bootstrap_servers="broker:9092")

    The `options` are those of `import_topic`, and count for each topic. A topic that fails does not
    stop the others: the report says why. A few topics are imported at a time. With `follow` it goes
    on with all of them until `stop()` is true; it tries those that have failed again, and looks for
    new topics, every 30 seconds.

    `batch_bytes` and what librdkafka reads ahead are for all topics together: each gets its share.
    Internal topics of Kafka, whose names begin with `__`, have to be named. `all_topics` is without
    those that end with `-dead-letters` or `-redriven`.

    `on_progress` gets the topic and its progress, in the thread that imports it. `on_end` gets the
    topic, and its report or its error, as soon as it ends.
    """
    if not isinstance(store, Store):
        raise InvalidRequestError(
            f"`store` must be a store, such as pylogtable.open('s3://bucket/logs'), not {store!r}"
        )
    choice = Choice.of(topics, pattern, all_topics)
    check_name("bootstrap_servers", bootstrap_servers)
    check_flags(follow=follow)
    check_number("batch_bytes", batch_bytes, 1)
    check_callable("on_progress", on_progress)
    check_callable("on_end", on_end)
    check_callable("stop", stop)
    settings = {} if consumer_settings is None else consumer_settings
    check_mapping("consumer_settings", settings, "{'security.protocol': 'SSL'}")
    check_options(import_topic, options, "store", "topic", "name")
    # Raises now for what is wrong for all topics: they would all fail, one after the other.
    checked_import_options(follow=follow, batch_bytes=batch_bytes, **options)
    kafka_library()  # raises if it is missing: no later try would find it
    is_stopped = stop or (lambda: False)
    limits = store._store.limits

    threads = shared_threads()
    progress = TellProgress(on_progress, ImportProgress.followed_by)

    def import_one(topic: str, share: Share, stop: Callable[[], bool]) -> ImportReport:
        return import_share(
            store,
            topic,
            share,
            threads,
            bootstrap_servers=bootstrap_servers,
            follow=follow,
            consumer_settings=settings,
            batch_bytes=batch_bytes,
            on_progress=progress.begun(topic),
            stop=stop,
            **options,
        )

    runtime = Runtime()
    began = runtime.monotonic()
    many = ManyTopics(
        choice=choice,
        place=f"Kafka at {bootstrap_servers}",
        list_names=lambda: topic_names(
            bootstrap_servers, settings, stop=is_stopped, stop_seconds=limits.kafka_stop_seconds
        ),
        work=import_one,
        job="import",
        follow=follow,
        stop=is_stopped,
        look_seconds=limits.kafka_look_seconds,
        on_end=on_end,
    )
    with closing(threads):
        many.run()
    return ImportsReport(many.reports, many.errors, runtime.monotonic() - began)


def import_share(
    store: Store,
    topic: str,
    share: Share,
    threads: ImportThreads,
    *,
    consumer_settings: Mapping[str, Any],
    batch_bytes: int = 256 << 20,
    **options: Any,
) -> ImportReport:
    """Import one of many topics, with its share of memory, and the threads of all."""
    kilobytes = consumer_settings.get("queued.max.messages.kbytes", QUEUE_BYTES >> 10)
    settings = {
        "fetch.max.bytes": share.of(FETCH_BYTES, LEAST_FETCH_BYTES),
        **consumer_settings,
        "queued.max.messages.kbytes": share.of(int(kilobytes), LEAST_BYTES >> 10),
    }
    with sharing(threads):
        return import_topic(
            store,
            topic,
            consumer_settings=settings,
            batch_bytes=share.of(batch_bytes, min(batch_bytes, LEAST_BYTES)),
            **options,
        )
