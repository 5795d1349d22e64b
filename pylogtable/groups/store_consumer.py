"""Reading several topics as a member of a consumer group.

Each topic has its own state of the group, so this is a consumer for each topic. They take turns,
wait for records together, and share one heartbeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar
from weakref import ref

import pyarrow as pa

from pylogtable.arguments import check_mapping
from pylogtable.errors import InvalidRequestError, LogTableError, TopicNotFoundError
from pylogtable.format.model import TopicInfo
from pylogtable.format.schema import LOG_FIELDS
from pylogtable.groups.consumer import Consumer
from pylogtable.groups.delivery import Batch, Delivery
from pylogtable.groups.fetcher import Fetcher
from pylogtable.groups.followed_topics import FollowedTopics
from pylogtable.groups.heart import Heart
from pylogtable.groups.member import LONGEST_PAUSE_SECONDS
from pylogtable.groups.one_thread import Turn, one_thread
from pylogtable.groups.options import ConsumerOptions, check_count
from pylogtable.groups.polling import Polling
from pylogtable.groups.report import GroupLag
from pylogtable.operation import Threads, operations
from pylogtable.read.position import Given
from pylogtable.runtime import Runtime
from pylogtable.storage.waiting import Place

TOPIC = "topic"
#: While other topics have records, a topic without any is asked for news no more often than this.
IDLE_LOOK_SECONDS = 0.1
#: How many topics are asked at once.
AT_ONCE = 8

Found = TypeVar("Found")

#: Opens the consumer of a topic.
OpenConsumer = Callable[[str, ConsumerOptions, Heart], Consumer]


@operations
@one_thread
class StoreConsumer(Polling):
    """Reads several topics as a member of a consumer group. `store.consumer()` makes one.

    >>> with store.consumer("billing", ["orders", "refunds"]) as consumer:
    ...     for batch in consumer:            # each batch has records of one topic
    ...         process(batch["topic"][0].as_py(), batch)
    ...         consumer.commit()

    It is used as a `Consumer`. Where that has partitions, this has topics and their partitions.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        follow_topics: Callable[[Callable[[str, bool], Consumer]], FollowedTopics],
        open_consumer: OpenConsumer,
        runtime: Runtime,
    ) -> None:
        options.check()
        self.group = options.group
        self._max_records = check_count(options.max_records)
        self._follow = options.follow
        self._runtime = runtime
        self._is_closed = False
        self._turn = Turn()
        self._columns = options.columns
        self._needs_more = False  # for records
        self._failure: LogTableError | None = None
        heart = Heart(runtime, options.max_poll_interval_ms)
        if options.callbacks:
            # Weak: a consumer that was dropped must not live on in its own callbacks.
            options = replace(options, callbacks=replace(options.callbacks, owner=ref(self)))
        self._callbacks = options.callbacks

        def open_one(name: str, is_new: bool) -> Consumer:
            consumer = open_consumer(name, options, heart)
            consumer._turn = None  # it is part of this one
            if is_new:
                # In a topic that came later, every record is new.
                consumer._start = replace(consumer._start, first_new=0)
            return consumer

        self._topics = follow_topics(open_one)
        #: By topic, in the order in which they are served.
        self._consumers = self._topics.open_new((), runtime.clock())
        #: When a topic had no records.
        self._empty_at: dict[str, float] = {}

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"topics {sorted(self._consumers)}"
        return f"<StoreConsumer of {self._topics!r} in group {self.group!r}, {state}>"

    def topics(self) -> list[str]:
        """The names of the topics that it reads now, sorted."""
        return sorted(self._consumers)

    def commit(
        self, positions: Mapping[str, Mapping[int, int]] | None = None, metadata: str = ""
    ) -> dict[str, dict[int, int]]:
        """Commit the positions after the last records that `poll` returned, or the given
        `positions`, such as `{"orders": {0: 42}}`. Returns what was committed, by topic.

        Each topic is a commit of its own; see `Consumer.commit`. If one is refused, the others are
        committed all the same before the error is raised.
        """
        self._enter()
        if positions is None:
            chosen = {
                name: partial(consumer.commit, None, metadata)
                for name, consumer in self._consumers.items()
                if metadata or consumer._uncommitted()
            }
        else:
            check_mapping("positions", positions, '{"orders": {0: 100}}')
            chosen = {
                name: partial(self._of(name).commit, offsets, metadata)
                for name, offsets in positions.items()
            }
        found = _side_by_side(chosen)
        for outcome in found.values():
            if isinstance(outcome, LogTableError):
                raise outcome
        return {
            name: outcome
            for name, outcome in found.items()
            if outcome and not isinstance(outcome, LogTableError)
        }

    async def acommit(
        self, positions: Mapping[str, Mapping[int, int]] | None = None, metadata: str = ""
    ) -> dict[str, dict[int, int]]:
        """`commit` for asynchronous code; see `Consumer.acommit`."""
        return await self._in_thread(
            partial(self.commit, positions, metadata), lambda committed: None
        )

    def committed(self) -> dict[str, dict[int, int]]:
        """The committed positions of its partitions, by topic; see `Consumer.committed`."""
        return self._each(Consumer.committed)

    def lag(self) -> dict[str, GroupLag]:
        """How far its partitions are behind, by topic; see `Consumer.lag`."""
        return self._each(Consumer.lag)

    def positions(self) -> dict[str, dict[int, int]]:
        """The next offset that `poll` reads, by topic and partition."""
        return self._each(Consumer.positions)

    def assignment(self) -> dict[str, tuple[int, ...]]:
        """The partitions that it reads now, by topic. A dynamic member joins the groups here if it
        has not yet."""
        return self._each(Consumer.assignment)

    def position(self, topic: str, partition: int) -> int:
        """The next offset that `poll` reads from this partition."""
        return self._of(topic).position(partition)

    def seek(self, topic: str, partition: int, to: Given) -> None:
        """Continue reading a partition from another position; see `Consumer.seek`."""
        self._of(topic).seek(partition, to)

    def pause(self, topic: str, partitions: int | Iterable[int]) -> None:
        """Stop polling these partitions until `resume`. They stay assigned to this consumer."""
        self._of(topic).pause(partitions)

    def resume(self, topic: str, partitions: int | Iterable[int]) -> None:
        """Poll these partitions again after `pause`."""
        self._of(topic).resume(partitions)

    @property
    def members(self) -> dict[str, str]:
        """The ids of this consumer in its groups, by topic; see `Consumer.member`."""
        found = {name: consumer.member for name, consumer in self._consumers.items()}
        return {name: member for name, member in sorted(found.items()) if member is not None}

    def close(self, *, commit: bool = False) -> None:
        """Leave the groups, so that other members get the partitions at once. With `commit=True`,
        commit the consumer's positions first."""
        if self._is_closed:
            return
        self._enter("close")
        with ExitStack() as closing:  # each is closed, also if another one fails
            closing.callback(self._close_self)
            for consumer in self._consumers.values():
                closing.callback(consumer.close, commit=commit)
            # The program is told first, while all of them can still commit.
            for consumer in self._consumers.values():
                closing.callback(consumer._say_goodbye)

    def _close_self(self) -> None:
        self._is_closed = True

    def _read_batch(self, count: int, ends_at: float) -> Batch:
        self._enter("poll")
        for consumer in self._consumers.values():
            consumer._delivery.take_back()
        self._raise_failure()
        self._update_topics()
        self._update_assignments()
        now = self._runtime.monotonic()
        resting = [name for name in self._consumers if self._rests(name, now)]
        first = [name for name in self._consumers if name not in resting]
        # The last poll may have looked at topics, and found what it returned in another one. So
        # these are asked again, as those that rest, if the others have nothing.
        looked = [name for name in first if self._consumers[name]._has_looked]
        for name in resting:
            self._consumers[name]._has_looked = False
        for names in (first, [*resting, *looked]):
            self._look_ahead(names, for_records=True)
            for name in names:
                batch = self._read_from(name, count, ends_at)
                if batch is not None:
                    return batch
        self._raise_failure()
        return _nothing()

    def _read_from(self, name: str, count: int, ends_at: float) -> Batch | None:
        """The next records of this topic. It goes to the end of the queue, also if it fails, so
        that the others are served."""
        if name not in self._consumers:
            return None  # it was deleted
        consumer = self._consumers[name] = self._consumers.pop(name)
        with self._unless_gone(name):
            batch = consumer._read_batch(count, ends_at)
            if batch.table.num_rows:
                return batch
            self._empty_at[name] = self._runtime.monotonic()
        return None

    def _rests(self, name: str, now: float) -> bool:
        """True if the topic had no records a moment ago."""
        if self._consumers[name]._knows_records():
            return False
        return now - self._empty_at.get(name, -math.inf) < IDLE_LOOK_SECONDS

    def _update_topics(self) -> None:
        found = self._topics.open_new(list(self._consumers), self._runtime.clock())
        if self._needs_more:
            for consumer in found.values():
                consumer._read_for_records()
        self._consumers.update(found)

    def _update_assignments(self) -> None:
        """Let every topic look whether others wait for its partitions. If one fails, that is raised
        when the others have been served."""
        self._look_ahead(list(self._consumers), for_records=False)
        for name in list(self._consumers):
            try:
                with self._unless_gone(name):
                    self._consumers[name]._update_assignment(find_positions=False)
            except LogTableError as error:  # noqa: PERF203 (each topic may fail)
                self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _look_ahead(self, names: Sequence[str], *, for_records: bool) -> None:
        """Where each request takes a round trip, send those of several topics side by side. What
        fails here fails again when it is its turn."""
        looks = {}
        for name in names:
            consumer = self._consumers.get(name)
            if consumer is None:
                continue
            if for_records:
                needs = not consumer._has_looked and not consumer._knows_records()
            else:
                needs = consumer._member.needs_store
            if needs and consumer._view._store.is_remote:
                looks[name] = partial(consumer._look_ahead, for_records=for_records)
        if len(looks) > 1:
            _side_by_side(looks)

    def _each(self, what: Callable[[Consumer], Found]) -> dict[str, Found]:
        self._enter()
        found: dict[str, Found] = {}
        for name in sorted(self._consumers):
            with self._unless_gone(name):
                found[name] = what(self._consumers[name])
        return found

    def _of(self, topic: str) -> Consumer:
        self._enter()
        if topic not in self._consumers:
            raise InvalidRequestError(
                f"this consumer does not read topic {topic!r}; it reads "
                f"{', '.join(self.topics()) or 'none yet'}"
            )
        return self._consumers[topic]

    @contextmanager
    def _unless_gone(self, name: str) -> Iterator[None]:
        """A topic of a pattern that was deleted leaves."""
        try:
            yield
        except TopicNotFoundError:
            if not self._topics.may_change:
                raise
            consumer = self._consumers.pop(name)
            self._empty_at.pop(name, None)
            consumer._listener.end(consumer, owns=False)
            consumer.close()

    def _read_for_records(self) -> None:
        self._needs_more = True
        for consumer in self._consumers.values():
            consumer._read_for_records()

    def _shown(self, batch: Batch) -> pa.Table:
        if batch is _nothing():
            return batch.table
        table = batch.table if self._columns is None else batch.table.select(list(self._columns))
        return table.add_column(0, TOPIC, pa.repeat(pa.scalar(batch.topic), table.num_rows))

    @property
    def _has_full_share(self) -> bool:
        return all(consumer._has_full_share for consumer in self._consumers.values())

    @property
    def _longest_pause_seconds(self) -> float:
        pauses = (consumer._longest_pause_seconds for consumer in self._consumers.values())
        return min(pauses, default=LONGEST_PAUSE_SECONDS)

    def _awaited(self) -> list[Place]:
        return [place for consumer in self._consumers.values() for place in consumer._awaited()]

    def _enter(self, method: str = "") -> None:
        """A method begins. With its name if it cannot be called by the program's callbacks."""
        self._settle()
        self._check_open()
        if method:
            self._callbacks.check_silent(method)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError("this consumer is closed; open another one")


def _side_by_side(work: Mapping[str, Callable[[], Found]]) -> dict[str, Found | LogTableError]:
    """Do this for each topic, several at a time. Returns what each has given or raised."""

    def outcome(name: str) -> Found | LogTableError:
        try:
            return work[name]()
        except LogTableError as error:
            return error

    if len(work) < 2:
        return {name: outcome(name) for name in work}
    with Threads(min(AT_ONCE, len(work))) as pool:
        return dict(zip(work, pool.map(outcome, work), strict=True))


@cache
def _nothing() -> Batch:
    """An empty batch of no topic. It is made when it is needed: Arrow's first table takes time."""
    return Batch(
        topic="",
        info=TopicInfo(fields=(), partitions=1, created_at_ms=0),
        table=pa.schema([pa.field(TOPIC, pa.string()), *LOG_FIELDS]).empty_table(),
        before={},
        delivery=Delivery(Fetcher(None)),
        look_is_due=lambda: False,
        look=lambda: None,
    )
