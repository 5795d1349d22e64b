"""The consumers of a store: for several topics at once."""

from __future__ import annotations

from collections.abc import Sequence

from pylogtable.groups.consumer import Consumer
from pylogtable.groups.followed_topics import FollowedTopics, OpenOne
from pylogtable.groups.heart import Heart
from pylogtable.groups.opening import open_consumer
from pylogtable.groups.options import Callbacks, ConsumerOptions, OnPartitions
from pylogtable.groups.store_consumer import StoreConsumer
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.topic import Topic


class StoreConsumers:
    """The part of `Store` that reads several topics at once."""

    _store: ObjectStore
    _runtime: Runtime

    def _folders(self) -> list[str]:
        """The folders that may be topics, or may have been."""
        raise NotImplementedError

    def consumer(
        self,
        group: str,
        topics: Sequence[str] | None = None,
        *,
        pattern: str | None = None,
        member: tuple[int, int] | str | None = None,
        auto_offset_reset: str = "earliest",
        columns: Sequence[str] | None = None,
        max_records: int = 500,
        lease_ms: int = 10_000,
        max_poll_interval_ms: int = 300_000,
        follow: bool = False,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> StoreConsumer:
        """A consumer that reads several topics for a group: those in the list `topics`, or those
        whose whole name matches the regular expression `pattern`. New topics that match are found
        within 10 seconds, and deleted ones leave.

        A batch has records of one topic, and its name in the column `topic`. Topics take turns.
        Each topic has its own positions of the group, and its partitions are shared by themselves.
        The other arguments are those of `Topic.consumer`. Callbacks get a dict such as
        `{"orders": (0, 1)}`.

        >>> with store.consumer("billing", pattern="orders-.*", member="worker-1") as consumer:
        ...     for record in consumer.records():
        ...         process(record.topic, record.value)
        ...         consumer.commit()
        """
        options = ConsumerOptions(
            group=group,
            member=member,
            auto_offset_reset=auto_offset_reset,
            columns=columns,
            max_records=max_records,
            lease_ms=lease_ms,
            max_poll_interval_ms=max_poll_interval_ms,
            follow=follow,
            callbacks=Callbacks(on_assign, on_revoke, on_lost),
        )

        def follow_topics(open_one: OpenOne) -> FollowedTopics:
            return FollowedTopics(topics, pattern, self._folders, open_one)

        def open_one(name: str, options: ConsumerOptions, heart: Heart) -> Consumer:
            topic = Topic(name, self._store.below(name), self._runtime)
            return open_consumer(name, topic._log, topic.at, options, heart)

        return StoreConsumer(options, follow_topics, open_one, self._runtime)
