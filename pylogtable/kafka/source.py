"""One topic of a Kafka cluster, read by this process alone.

No group is joined and nothing is committed in Kafka: the copy knows how far it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pylogtable.errors import StorageError
from pylogtable.kafka.client import REQUEST_SECONDS, KafkaClient
from pylogtable.kafka.rows import Message
from pylogtable.limits import DEFAULT_LIMITS

#: librdkafka wants a group of every consumer. Nobody joins it.
GROUP = "pylogtable-import"


@dataclass(frozen=True)
class Received:
    """What came from Kafka: messages in order, the partitions whose end was reached and where, and
    the partitions whose position Kafka does not have any more."""

    messages: list[Message]
    reached: dict[int, int] = field(default_factory=dict)
    lost: tuple[int, ...] = ()


class KafkaSource(KafkaClient):
    """A topic of Kafka that is read."""

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
        self._early: tuple[dict[int, int], Received] | None = None
        with self.explained("be opened"):
            self._consumer = self.kafka.Consumer(
                {
                    "group.id": GROUP,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "queued.max.messages.kbytes": 256 << 10,
                    **self.settings,
                }
            )

    def __enter__(self) -> KafkaSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def describe(self) -> tuple[str, int]:
        """The id of the cluster, and how many partitions the topic has."""
        return self.describe_with(self._consumer)

    def topic_id(self) -> str | None:
        """Kafka's id of the topic, which is another one if the topic was created again; None if the
        cluster gives none. Its controller is asked."""
        admin = self.kafka.admin
        with self.explained("be described"):
            cluster = self._consumer.list_topics(self.topic, timeout=self.seconds)
            if cluster.controller_id not in cluster.brokers:
                return None
            client = admin.AdminClient(self.settings)
            asked = self.kafka.TopicCollection([self.topic])
            replies = client.describe_topics(asked, request_timeout=self.seconds)
            found = replies[self.topic].result(self.seconds).topic_id
        is_known = found is not None and found.get_most_significant_bits() != 0
        return str(found) if is_known else None

    def bounds(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The first offset and the end of each partition. The end is before transactions that are
        still open."""
        with self.explained("be read"):
            return {
                number: self._consumer.get_watermark_offsets(
                    self._place(number), timeout=self.seconds
                )
                for number in partitions
            }

    def written_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The end of each partition, with transactions that are still open."""
        settings = {"group.id": GROUP, **self.settings, "isolation.level": "read_uncommitted"}
        with self.explained("be read"):
            consumer = self.kafka.Consumer(settings)
            try:
                return {
                    number: consumer.get_watermark_offsets(
                        self._place(number), timeout=self.seconds
                    )[1]
                    for number in partitions
                }
            finally:
                consumer.close()

    def known_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The ends as of the last reply, without a request; -1001 if there was none yet."""
        with self.explained("be read"):
            return {
                number: self._consumer.get_watermark_offsets(self._place(number), cached=True)[1]
                for number in partitions
            }

    def offsets_at(self, when_ms: int, bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """The first offset of each partition at or after a time, or its end."""
        asked = [self._place(number, when_ms) for number in bounds]
        with self.explained("be searched by time"):
            found = self._consumer.offsets_for_times(asked, timeout=self.seconds)
        return {
            place.partition: place.offset if place.offset >= 0 else bounds[place.partition][1]
            for place in found
        }

    def topic_settings(self) -> tuple[dict[str, str], dict[str, str]]:
        """The topic's settings in force, and those that were chosen for this topic."""
        admin = self.kafka.admin
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, self.topic)
        with self.explained("be asked for its settings"):
            client = admin.AdminClient(self.settings)
            asked = client.describe_configs([resource], request_timeout=self.seconds)
            found = asked[resource].result(self.seconds)
        own = admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        in_force = {name: entry.value for name, entry in found.items()}
        chosen = {name: entry.value for name, entry in found.items() if entry.source == own}
        return in_force, chosen

    def groups(
        self, partitions: Iterable[int], names: Iterable[str] | None = None
    ) -> dict[str, dict[int, int]]:
        """The committed offsets of these consumer groups, or of all, that have some in this topic.
        Raises if Kafka does not tell all of them: a group that is missing here has none."""
        admin = self.kafka.admin
        places = [self._place(number) for number in partitions]
        found: dict[str, dict[int, int]] = {}
        with self.explained("be asked for its consumer groups"):
            client = admin.AdminClient(self.settings)
            for group in self._group_names(client) if names is None else names:
                asked = self.kafka.ConsumerGroupTopicPartitions(group, places)
                replies = client.list_consumer_group_offsets([asked], request_timeout=self.seconds)
                (reply,) = replies.values()
                committed = reply.result(self.seconds).topic_partitions
                for place in committed:
                    if place.error is not None:
                        raise self.kafka.KafkaException(place.error)
                offsets = {place.partition: place.offset for place in committed}
                offsets = {number: at for number, at in offsets.items() if at >= 0}
                if offsets:
                    found[group] = offsets
        return found

    def _group_names(self, client: Any) -> list[str]:
        """The names of all consumer groups. Each broker lists its own, and each may fail."""
        listed = client.list_consumer_groups(request_timeout=self.seconds).result(self.seconds)
        if listed.errors:
            why = "; ".join(f"{error.name()}: {error.str()}" for error in listed.errors)
            raise StorageError(
                f"Kafka at {self._servers} has not listed all consumer groups, so groups of topic "
                f"{self.topic!r} may be missing: {why}"
            )
        return sorted(group.group_id for group in listed.valid)

    def check_readable(self, positions: Mapping[int, int]) -> None:
        """Raise if Kafka does not let the topic be read. To know where it begins and ends needs
        fewer rights than to read it. What comes meanwhile is kept for a `begin` at the same
        positions."""
        self.begin(positions)
        for _ in range(math.ceil(self.seconds)):
            heard = self.receive(1, 1.0)
            if heard.messages or heard.reached or heard.lost:
                break
        else:
            raise self.silence(self.seconds, "has sent nothing")
        self._early = dict(positions), heard

    def begin(self, positions: Mapping[int, int]) -> None:
        """Read these partitions too, from these offsets on."""
        if self._early is not None:
            if self._early[0] == positions:
                return
            self._early = None
            self._consumer.unassign()
        places = [self._place(number, offset) for number, offset in positions.items()]
        with self.explained("be read"):
            self._consumer.incremental_assign(places)

    def pause_reading(self) -> None:
        """Read nothing until the next `begin`. What has come and was not received is dropped."""
        self._early = None
        with self.explained("be read"):
            self._consumer.unassign()

    def skip_to(self, partition: int, offset: int) -> None:
        """Go on at another offset."""
        with self.explained("be read"):
            self._consumer.incremental_unassign([self._place(partition)])
            self._consumer.incremental_assign([self._place(partition, offset)])

    def receive(self, most: int, seconds: float) -> Received:
        """Wait for at most this long for messages."""
        if self._early is not None:
            (_, heard), self._early = self._early, None
            return heard
        with self.explained("be read"):
            found = self._consumer.consume(most, seconds)
        if not found or not any(map(type(found[0]).error, found)):
            return Received(found)
        reached: dict[int, int] = {}
        lost: list[int] = []
        for message in found:
            error = message.error()
            if error is None:
                continue
            if error.code() == self.kafka.KafkaError._PARTITION_EOF:
                reached[message.partition()] = message.offset()
            elif error.code() == self.kafka.KafkaError._AUTO_OFFSET_RESET:
                lost.append(message.partition())
            elif error.code() == self.kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # librdkafka asks for the group of every consumer; this one needs none
            else:
                raise self.error(error, "be read")
        return Received([m for m in found if m.error() is None], reached, tuple(lost))

    def _place(self, partition: int, offset: int | None = None) -> Any:
        if offset is None:
            return self.kafka.TopicPartition(self.topic, partition)
        return self.kafka.TopicPartition(self.topic, partition, offset)
