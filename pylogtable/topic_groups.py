"""`TopicGroups`: the methods of a topic about its consumers and their groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pylogtable.arguments import check_flags
from pylogtable.groups.consumer import Consumer
from pylogtable.groups.group import Group, describe_groups, expire_groups
from pylogtable.groups.opening import open_consumer
from pylogtable.groups.options import Callbacks, ConsumerOptions, OnPartitions
from pylogtable.groups.report import GroupDescription
from pylogtable.log.group_objects import load_groups
from pylogtable.log.topic_log import TopicLog
from pylogtable.operation import operations
from pylogtable.read.view import View
from pylogtable.storage.base import ObjectStore


@operations
class TopicGroups:
    """The consumers of one topic, and their groups. Users call these methods on a `Topic`.

    >>> with topic.consumer("billing") as consumer:
    ...     batch = consumer.poll(timeout=1.0)
    """

    name: str
    _store: ObjectStore
    _log: TopicLog

    def at(self) -> View:
        """The newest version."""
        raise NotImplementedError

    def group(self, name: str) -> Group:
        """A consumer group of this topic, to commit, inspect or reset positions. Opening it writes
        nothing."""
        return Group(name, self.name, self._log)

    def consumer(
        self,
        group: str,
        member: tuple[int, int] | str | None = None,
        *,
        auto_offset_reset: str = "earliest",
        columns: Sequence[str] | None = None,
        max_records: int = 500,
        lease_ms: int = 10_000,
        max_poll_interval_ms: int = 300_000,
        follow: bool = False,
        on_assign: OnPartitions | None = None,
        on_revoke: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
    ) -> Consumer:
        """A consumer that reads this topic for a group and can commit its positions.

        `member` says how the partitions are shared:
        - None: this consumer reads all partitions.
        - `(index, count)`: a static member. It reads every `count`-th partition from `index` on.
        - a name: a dynamic member. It shares the partitions with the other dynamic members, under a
          lease of `lease_ms`. A thread renews the lease while the process lives. It leaves the
          group if the program neither polls nor commits for `max_poll_interval_ms`.

        `auto_offset_reset` says where to start without a committed position, or if that position is
        no longer in the log: "earliest", "latest", "none" (raise an error) or "by_duration:PT1H".

        `poll` returns at most `max_records`. With `follow=True`, iteration waits for new records
        instead of ending.

        `on_assign(consumer, partitions)` is called when the consumer has got partitions,
        `on_revoke` before it gives some up, so that it can still commit, and `on_lost` after its
        lease or position was lost (or `on_revoke`, if there is no `on_lost`). They are called in
        the thread that polls, and by `close`.
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
        return open_consumer(self.name, self._log, self.at, options)

    def groups(self) -> list[str]:
        """The names of the consumer groups of this topic, sorted. Damaged groups are included."""
        return load_groups(self._store, self._log.latest().topic_id).names

    def describe_groups(self) -> GroupDescription:
        """Position, lag and owner of every partition, for all consumer groups of this topic."""
        groups = load_groups(self._store, self._log.latest().topic_id)
        for error in groups.damaged.values():
            raise error
        return describe_groups(self._log, self.at(), groups.states)

    def expire_groups(self, older_than: timedelta | int, *, dry_run: bool = False) -> list[str]:
        """Delete the groups that have had no member and no commit for this long: a timedelta, or
        milliseconds. Returns their names. Run it from time to time to remove groups that nobody
        uses any more; `dry_run=True` only lists them."""
        check_flags(dry_run=dry_run)
        return expire_groups(self._log, older_than, dry_run=dry_run)
