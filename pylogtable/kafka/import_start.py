"""What a call of `import_topic` asks for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pylogtable.arguments import (
    check_callable,
    check_flags,
    check_mapping,
    check_name,
    check_number,
    names_in,
)
from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.import_report import ImportProgress, ImportReport
from pylogtable.kafka.import_run import Import, ImportOptions
from pylogtable.kafka.source import KafkaSource
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.times import to_us
from pylogtable.tracing import span

LONGEST_LINGER_MS = 86_400_000


def import_topic(
    store: Store,
    topic: str,
    *,
    bootstrap_servers: str,
    name: str | None = None,
    follow: bool = False,
    from_timestamp: datetime | int | None = None,
    groups: bool | Sequence[str] = False,
    allow_gaps: bool = False,
    config: Mapping[str, object] | None = None,
    copy_settings: bool = True,
    guard: bool = False,
    consumer_settings: Mapping[str, Any] | None = None,
    linger_ms: float = 5_000,
    batch_bytes: int = 256 << 20,
    on_progress: Callable[[ImportProgress], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> ImportReport:
    """Import the Kafka topic `topic` into the topic `name` of this store, `topic` by default.

    >>> pylogtable.kafka.import_topic(store, "orders", bootstrap_servers="broker:9092").records

    The first call creates the topic, with Kafka's number of partitions, the settings that both
    have, and those in `config`. Later calls continue at its end offsets. A call ends at what was
    the end of Kafka's topic when it began. With `follow` it goes on until `stop()` is true, and
    then ends after the running commit. Partitions that are added in Kafka are added here.

    The topic is a guarded copy: nobody else can append to it, until `topic.promote()` makes it a
    topic of its own. That is the cut-over, after the last import.

    - `from_timestamp`: the first call begins at this time, and not at Kafka's first record. Later
      calls warn that they do not use it, and of a `config` that the topic does not have.
    - `groups`: also copy the committed offsets of these consumer groups, or of all (True). A group
      that has moved here is left alone.
    - `allow_gaps`: continue even if Kafka has removed records before they were imported.
    - `copy_settings=False`: do not ask Kafka for the settings of the topic.
    - `guard`: guard also a copy that an earlier release has made. Such releases can no longer write
      to it then.
    - `consumer_settings`: settings of librdkafka, such as `{"security.protocol": "SSL"}`. Only
      committed transactions are read, unless `isolation.level` says otherwise.
    - A commit is made after `linger_ms`, or after `batch_bytes` in memory.
    """
    if not isinstance(store, Store):
        raise InvalidRequestError(
            f"`store` must be a store, such as pylogtable.open('s3://bucket/logs'), not {store!r}"
        )
    check_name("topic", topic)
    check_name("bootstrap_servers", bootstrap_servers)
    check_name("name", topic if name is None else name)
    check_flags(follow=follow, allow_gaps=allow_gaps, copy_settings=copy_settings, guard=guard)
    check_callable("on_progress", on_progress)
    check_callable("stop", stop)
    check_mapping("config", {} if config is None else config, "{'retention.ms': -1}")
    check_number("batch_bytes", batch_bytes, 1)
    is_number = isinstance(linger_ms, int | float) and not isinstance(linger_ms, bool)
    if not is_number or not 0 < linger_ms <= LONGEST_LINGER_MS:
        raise InvalidRequestError(
            f"`linger_ms` must be a number of milliseconds, more than 0 and a day at most, not "
            f"{linger_ms!r}"
        )
    settings = {} if consumer_settings is None else consumer_settings
    check_mapping("consumer_settings", settings, "{'security.protocol': 'SSL'}")
    options = ImportOptions(
        follow=follow,
        from_timestamp_ms=None if from_timestamp is None else to_us(from_timestamp) // 1000,
        groups=groups if isinstance(groups, bool) else _group_names(groups),
        allow_gaps=allow_gaps,
        config={} if config is None else config,
        copy_settings=copy_settings,
        guard=guard,
        linger_seconds=linger_ms / 1000,
        batch_bytes=batch_bytes,
        on_progress=on_progress,
        stop=stop or (lambda: False),
    )
    copy = name or topic
    runtime = Runtime()
    began = runtime.monotonic()
    with span("job", topic=copy, job="import"):
        try:
            seconds = store._store.limits.kafka_stop_seconds
            with KafkaSource(
                bootstrap_servers, topic, settings, stop=options.stop, stop_seconds=seconds
            ) as source:
                return Import(store, source, topic, copy, options, runtime).run()
        except StoppedError:
            return ImportReport(copy, 0, 0, runtime.monotonic() - began, {})


def _group_names(groups: Sequence[str]) -> tuple[str, ...]:
    names = tuple(names_in("groups", groups))
    for name in names:
        check_name("a name in groups", name)
    return names
