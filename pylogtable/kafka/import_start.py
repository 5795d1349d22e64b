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
from pylogtable.format.config import normalize
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.import_report import ImportOptions, ImportProgress, ImportReport
from pylogtable.kafka.import_run import Import
from pylogtable.kafka.source import KafkaSource
from pylogtable.kafka.typed.options import DEAD_LETTER, checked_value_options
from pylogtable.kafka.typed.typed_import import Decoders
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
    value_format: str | None = None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    keep_raw: bool = False,
    on_error: str = DEAD_LETTER,
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

    With a `value_format` ("avro", "json-schema", "protobuf" or "json") the fields of values become
    columns, and with a `key_format` those of keys become key columns. Schemas come from a
    `schema_registry`, a URL, with `registry_settings` as confluent-kafka has them, or from the
    files `value_schema` and `key_schema`. New schemas add and widen columns.

    - `keep_raw`: also keep Kafka's bytes, in `raw_value` and `raw_key`.
    - `on_error`: records that cannot be decoded go to the topic `<name>-dead-letters`. With "fail"
      the first one raises `InvalidRequestError`.

    >>> import_topic(store, "orders", bootstrap_servers="broker:9092", value_format="avro",
    ...              schema_registry="http://registry:8081").dead_letters
    """
    if not isinstance(store, Store):
        raise InvalidRequestError(
            f"`store` must be a store, such as pylogtable.open('s3://bucket/logs'), not {store!r}"
        )
    check_name("topic", topic)
    check_name("bootstrap_servers", bootstrap_servers)
    check_name("name", topic if name is None else name)
    settings = {} if consumer_settings is None else consumer_settings
    check_mapping("consumer_settings", settings, "{'security.protocol': 'SSL'}")
    options = checked_import_options(
        follow=follow,
        from_timestamp=from_timestamp,
        groups=groups,
        allow_gaps=allow_gaps,
        config=config,
        copy_settings=copy_settings,
        guard=guard,
        linger_ms=linger_ms,
        batch_bytes=batch_bytes,
        value_format=value_format,
        key_format=key_format,
        schema_registry=schema_registry,
        value_schema=value_schema,
        key_schema=key_schema,
        registry_settings=registry_settings,
        keep_raw=keep_raw,
        on_error=on_error,
        on_progress=on_progress,
        stop=stop,
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


def checked_import_options(
    *,
    follow: bool = False,
    from_timestamp: datetime | int | None = None,
    groups: bool | Sequence[str] = False,
    allow_gaps: bool = False,
    config: Mapping[str, object] | None = None,
    copy_settings: bool = True,
    guard: bool = False,
    linger_ms: float = 5_000,
    batch_bytes: int = 256 << 20,
    value_format: str | None = None,
    key_format: str | None = None,
    schema_registry: str | None = None,
    value_schema: str | None = None,
    key_schema: str | None = None,
    registry_settings: Mapping[str, Any] | None = None,
    keep_raw: bool = False,
    on_error: str = DEAD_LETTER,
    on_progress: Callable[[ImportProgress], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> ImportOptions:
    """What an import is asked for, whatever its topic is. Raises if it makes no sense."""
    check_flags(follow=follow, allow_gaps=allow_gaps, copy_settings=copy_settings, guard=guard)
    check_callable("on_progress", on_progress)
    check_callable("stop", stop)
    normalize({} if config is None else config)
    check_number("batch_bytes", batch_bytes, 1)
    is_number = isinstance(linger_ms, int | float) and not isinstance(linger_ms, bool)
    if not is_number or not 0 < linger_ms <= LONGEST_LINGER_MS:
        raise InvalidRequestError(
            f"`linger_ms` must be a number of milliseconds, more than 0 and a day at most, not "
            f"{linger_ms!r}"
        )
    values = checked_value_options(
        value_format=value_format,
        key_format=key_format,
        schema_registry=schema_registry,
        value_schema=value_schema,
        key_schema=key_schema,
        registry_settings=registry_settings,
        keep_raw=keep_raw,
        on_error=on_error,
    )
    if values is not None:
        Decoders.of(values)  # raises for a schema that cannot be read
    return ImportOptions(
        follow=follow,
        from_timestamp_ms=None if from_timestamp is None else to_us(from_timestamp) // 1000,
        groups=groups if isinstance(groups, bool) else _group_names(groups),
        allow_gaps=allow_gaps,
        config={} if config is None else config,
        copy_settings=copy_settings,
        guard=guard,
        linger_seconds=linger_ms / 1000,
        batch_bytes=batch_bytes,
        values=values,
        on_progress=on_progress,
        stop=stop or (lambda: False),
    )


def _group_names(groups: Sequence[str]) -> tuple[str, ...]:
    names = tuple(names_in("groups", groups))
    for name in names:
        check_name("a name in groups", name)
    return names
