"""What reading from and writing to Kafka share: confluent-kafka, its settings and its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Any

from pylogtable.errors import InvalidRequestError, LogTableError, StorageError, TopicNotFoundError
from pylogtable.limits import DEFAULT_LIMITS

#: How long a request may take. librdkafka repeats it in the meantime.
REQUEST_SECONDS = 30.0

_NOT_ALLOWED = ("AUTHORIZATION_FAILED", "AUTHENTICATION")
_UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "REQUEST_TIMED_OUT")


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raise for settings that librdkafka would not refuse. An empty group ends the process."""
    if settings.get("group.id", "-") in ("", None):
        raise InvalidRequestError("the setting group.id for Kafka must not be empty; leave it out")
    for name in ("bootstrap.servers", "metadata.broker.list"):
        if name in settings:
            raise InvalidRequestError(
                f"the setting {name} for Kafka is given by `bootstrap_servers` "
                "(--bootstrap-servers); leave it out"
            )


class StoppedError(Exception):
    """It was to stop before Kafka had answered."""


class KafkaClient:
    """One topic of a cluster, or the whole cluster if `topic` is None. `settings` are those of
    librdkafka, for instance for security. `stop` says whether to go on waiting for a cluster that
    does not answer; it is asked every `stop_seconds`."""

    def __init__(
        self,
        servers: str,
        topic: str | None,
        settings: Mapping[str, Any],
        request_seconds: float,
        stop: Callable[[], bool],
        stop_seconds: float,
    ) -> None:
        self.kafka = kafka_library()
        self.topic = topic
        self.seconds = request_seconds
        self._stop = stop
        self._stop_seconds = stop_seconds
        self._servers = servers
        self._last_error: str | None = None
        _check_settings(settings)
        shared = {"bootstrap.servers": servers, "log_level": 0, "error_cb": self._note_error}
        self.settings = {**shared, **settings}

    @property
    def servers(self) -> str:
        """The brokers to ask first, as they were given."""
        return self._servers

    def describe_with(self, client: Any) -> tuple[str, int]:
        """The id of the cluster, and how many partitions the topic has."""
        with self.explained("be described"):
            found = self._list_topics(client)
            topic = found.topics[self.topic]
            if topic.error is not None:
                raise self.kafka.KafkaException(topic.error)
        return str(found.cluster_id), len(topic.partitions)

    def _list_topics(self, client: Any) -> Any:
        """librdkafka does not notice signals, so it is asked several times for a short while."""
        tries_left = math.ceil(self.seconds / self._stop_seconds)
        while True:
            tries_left -= 1
            try:
                return client.list_topics(self.topic, timeout=min(self._stop_seconds, self.seconds))
            except self.kafka.KafkaException as error:
                client.poll(0.1)  # tells `_note_error` why
                if not tries_left or error.args[0].name() not in _UNREACHABLE:
                    raise
                if self._stop():
                    raise StoppedError from None

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn errors of Kafka into errors of this library. `what` is what was tried."""
        try:
            yield
        except self.kafka.KafkaException as error:
            raise self.error(error.args[0], what) from error
        except (TimeoutError, FutureTimeoutError) as error:
            raise StorageError(
                f"{self._subject} cannot {what}: there was no reply within {self.seconds:.0f} "
                f"seconds{self._known_error()}"
            ) from error

    def error(self, error: Any, what: str) -> LogTableError:
        """The error of this library for an error of Kafka."""
        name = error.name()
        about = f"{self._subject} cannot {what}: {error.str()}"
        if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
            return TopicNotFoundError(
                f"Kafka at {self._servers} has no topic {self.topic!r}; check its name"
            )
        if name == "_INVALID_ARG":
            return InvalidRequestError(f"{about}. Check the settings for Kafka")
        if any(part in name for part in _NOT_ALLOWED):
            return StorageError(
                f"{about}. Allow it in Kafka (READ or WRITE, and DESCRIBE, on the topic; "
                "DESCRIBE_CONFIGS for its settings; DESCRIBE on consumer groups), or give other "
                "credentials in the settings for Kafka"
            )
        if name in _UNREACHABLE:
            return StorageError(
                f"Kafka at {self._servers} cannot be reached: {error.str()}{self._known_error()}. "
                "Check the bootstrap servers and the security settings"
            )
        return StorageError(about)

    def silence(self, seconds: float, what: str) -> StorageError:
        """The error for a cluster that does not answer any more."""
        return StorageError(
            f"Kafka at {self._servers} {what} of topic {self.topic!r} for {seconds:.0f} seconds"
            f"{self._known_error()}. What was done stays; run it again to go on"
        )

    @property
    def _subject(self) -> str:
        of_topic = "" if self.topic is None else f"topic {self.topic!r} of "
        return f"{of_topic}Kafka at {self._servers}"

    def _note_error(self, error: Any) -> None:
        # That all brokers are down says less than why the last one is.
        if self._last_error is None or error.name() != "_ALL_BROKERS_DOWN":
            self._last_error = error.str()

    def _known_error(self) -> str:
        return "" if self._last_error is None else f" ({self._last_error})"


def topic_names(
    servers: str,
    settings: Mapping[str, Any],
    *,
    stop: Callable[[], bool] = lambda: False,
    stop_seconds: float = DEFAULT_LIMITS.kafka_stop_seconds,
) -> list[str]:
    """The names of all topics of a cluster that may be described."""
    client = KafkaClient(servers, None, settings, REQUEST_SECONDS, stop, stop_seconds)
    with client.explained("list its topics"):
        found = client._list_topics(client.kafka.admin.AdminClient(client.settings))
    return sorted(found.topics)


@contextmanager
def advised(advice: str) -> Iterator[None]:
    """Add to an error of Kafka what the caller can do, or has to know."""
    try:
        yield
    except StorageError as error:
        raise StorageError(f"{error}. {advice}") from error


def kafka_library() -> Any:
    """confluent-kafka, which is imported only when it is needed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise InvalidRequestError(
            "this needs confluent-kafka: pip install 'pylogtable[kafka]'"
        ) from error
    return confluent_kafka
