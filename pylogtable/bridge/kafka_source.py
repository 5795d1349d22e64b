"""One topic of a Kafka cluster, read by this process alone. The only user of confluent-kafka.

No group is joined and nothing is committed in Kafka: the copy knows how far it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pylogtable.bridge.kafka_rows import Message
from pylogtable.errors import (
    InvalidRequestError,
    LogTableError,
    StorageError,
    TopicNotFoundError,
)

#: How long a request may take. librdkafka repeats it in the meantime.
REQUEST_SECONDS = 30.0

_NOT_ALLOWED = ("AUTHORIZATION_FAILED", "AUTHENTICATION")
_UNREACHABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "REQUEST_TIMED_OUT")


@dataclass(frozen=True)
class Received:
    """What came from Kafka: messages in order, the partitions whose end was reached and where, and
    the partitions whose position Kafka does not have any more."""

    messages: list[Message]
    reached: dict[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()


class KafkaSource:
    """A topic of Kafka. `settings` are those of librdkafka, for instance for security."""

    def __init__(
        self,
        servers: str,
        topic: str,
        settings: Mapping[str, Any],
        *,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._kafka = _library()
        self._servers = servers
        self._topic = topic
        self._seconds = request_seconds
        self._last_error: str | None = None
        shared = {"bootstrap.servers": servers, "log_level": 0, "error_cb": self._note_error}
        self._client_settings = {**shared, **settings}
        with self._explained("be opened"):
            self._consumer = self._kafka.Consumer(
                {
                    "group.id": "pylogtable-import",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": 256 << 10,
                    **self._client_settings,
                }
            )

    def __enter__(self) -> KafkaSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def describe(self) -> tuple[str, int]:
        """The id of the cluster, and how many partitions the topic has."""
        with self._explained("be described"):
            found = self._consumer.list_topics(self._topic, timeout=self._seconds)
            topic = found.topics[self._topic]
            if topic.error is not None:
                raise self._kafka.KafkaException(topic.error)
        return str(found.cluster_id), len(topic.partitions)

    def bounds(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition. The end is before transactions that are
        still open."""
        with self._explained("be read"):
            return {
                number: self._consumer.get_watermark_offsets(
                    self._place(number), timeout=self._seconds
                )
                for number in partitions
            }

    def known_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The ends as of the last reply, without a request; -1001 if there was none yet."""
        with self._explained("be read"):
            return {
                number: self._consumer.get_watermark_offsets(self._place(number), cached=True)[1]
                for number in partitions
            }

    def offsets_at(self, when_ms: int, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """The first offset of each partition at or after a time, or its end."""
        asked = [self._place(number, when_ms) for number in bounds]
        with self._explained("be searched by time"):
            found = self._consumer.offsets_for_times(asked, timeout=self._seconds)
        return {
            place.partition: place.offset if place.offset >= 0 else bounds[place.partition][1]
            for place in found
        }

    def settings(self) -> tuple[dict[str, str], dict[str, str]]:
        """The topic's settings in force, and those that were chosen for this topic."""
        admin = self._kafka.admin
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, self._topic)
        with self._explained("be asked for its settings"):
            client = admin.AdminClient(self._client_settings)
            asked = client.describe_configs([resource], request_timeout=self._seconds)
            found = asked[resource].result(self._seconds)
        own = admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        in_force = {name: entry.value for name, entry in found.items()}
        chosen = {name: entry.value for name, entry in found.items() if entry.source == own}
        return in_force, chosen

    def groups(self, partitions: Iterable[int]) -> dict[str, dict[int, int]]:
        """The committed offsets of every consumer group that has some in this topic."""
        admin = self._kafka.admin
        places = [self._place(number) for number in partitions]
        found: dict[str, dict[int, int]] = {}
        with self._explained("be asked for its consumer groups"):
            client = admin.AdminClient(self._client_settings)
            listed = client.list_consumer_groups(request_timeout=self._seconds)
            for group in sorted(one.group_id for one in listed.result(self._seconds).valid):
                asked = self._kafka.ConsumerGroupTopicPartitions(group, places)
                replies = client.list_consumer_group_offsets([asked], request_timeout=self._seconds)
                (reply,) = replies.values()
                committed = reply.result(self._seconds).topic_partitions
                offsets = {place.partition: place.offset for place in committed}
                offsets = {number: at for number, at in offsets.items() if at >= 0}
                if offsets:
                    found[group] = offsets
        return found

    def begin(self, positions: Mapping[int, int]) -> None:
        """Read these partitions too, from these offsets on."""
        places = [self._place(number, offset) for number, offset in positions.items()]
        with self._explained("be read"):
            self._consumer.incremental_assign(places)

    def skip_to(self, partition: int, offset: int) -> None:
        """Go on at another offset."""
        with self._explained("be read"):
            self._consumer.incremental_unassign([self._place(partition)])
            self._consumer.incremental_assign([self._place(partition, offset)])

    def receive(self, most: int, seconds: float) -> Received:
        """Wait for at most this long for messages."""
        with self._explained("be read"):
            found = self._consumer.consume(most, seconds)
        if all(message.error() is None for message in found):
            return Received(found)
        reached: dict[int, int] = {}
        lost: list[int] = []
        for message in found:
            error = message.error()
            if error is None:
                continue
            if error.code() == self._kafka.KafkaError._PARTITION_EOF:
                reached[message.partition()] = message.offset()
            elif error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
                lost.append(message.partition())
            else:
                raise self._error(error, "be read")
        return Received([m for m in found if m.error() is None], reached, tuple(lost))

    def silence(self, seconds: float) -> StorageError:
        """The error for a cluster that has sent nothing for this long."""
        return StorageError(
            f"Kafka at {self._servers} has sent nothing for {seconds:.0f} seconds, and there are "
            f"records left in its topic {self._topic!r}{self._known_error()}. What was imported "
            "stays; import again to go on"
        )

    def _place(self, partition: int, offset: int | None = None) -> Any:
        if offset is None:
            return self._kafka.TopicPartition(self._topic, partition)
        return self._kafka.TopicPartition(self._topic, partition, offset)

    def _note_error(self, error: Any) -> None:
        self._last_error = error.str()

    def _known_error(self) -> str:
        return "" if self._last_error is None else f" ({self._last_error})"

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            raise self._error(error.args[0], what) from error
        except (TimeoutError, FutureTimeoutError) as error:
            raise StorageError(
                f"topic {self._topic!r} of Kafka at {self._servers} cannot {what}: there was no "
                f"reply within {self._seconds:.0f} seconds{self._known_error()}"
            ) from error

    def _error(self, error: Any, what: str) -> LogTableError:
        name = error.name()
        about = f"topic {self._topic!r} of Kafka at {self._servers} cannot {what}: {error.str()}"
        if name in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
            return TopicNotFoundError(
                f"Kafka at {self._servers} has no topic {self._topic!r}; check its name"
            )
        if name == "_INVALID_ARG":
            return InvalidRequestError(f"{about}. Check the consumer settings")
        if any(part in name for part in _NOT_ALLOWED):
            return StorageError(
                f"{about}. Allow it in Kafka (READ and DESCRIBE on the topic, DESCRIBE_CONFIGS for "
                "its settings), or give other credentials in the consumer settings"
            )
        if name in _UNREACHABLE:
            return StorageError(
                f"Kafka at {self._servers} cannot be reached: {error.str()}{self._known_error()}. "
                "Check the bootstrap servers and the security settings"
            )
        return StorageError(about)


def _library() -> Any:
    """confluent-kafka, which is imported only when it is needed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise InvalidRequestError(
            "this needs confluent-kafka: pip install 'pylogtable[kafka]'"
        ) from error
    return confluent_kafka
