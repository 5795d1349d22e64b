"""Reading a topic as a member of a consumer group, one batch at a time.

`poll` and `commit` do everything in the caller's thread: take or give up partitions, and look for
new records. A thread beside it does nothing but renew the lease of a dynamic member. Nothing is
committed unless the caller asks for it. Records that were polled but not committed are read again
after a restart, or by the next owner of the partition: at-least-once delivery, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pyarrow as pa

from pylogtable.arguments import is_whole
from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.paths import commit_path
from pylogtable.format.schema import PARTITION, TIMESTAMP, column_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.delivery import Batch, Delivery
from pylogtable.groups.fetcher import Fetcher
from pylogtable.groups.lag import measure_lag
from pylogtable.groups.listener import Listener
from pylogtable.groups.member import Member
from pylogtable.groups.one_thread import Turn, in_turn, one_thread
from pylogtable.groups.options import ConsumerOptions, check_count
from pylogtable.groups.polling import Polling
from pylogtable.groups.positions_plan import check_metadata, check_offsets
from pylogtable.groups.report import GroupLag
from pylogtable.groups.starting_point import StartingPoint, parse_policy
from pylogtable.operation import new_operation, operations
from pylogtable.read.position import Given, parse_position, resolve
from pylogtable.read.view import View
from pylogtable.runtime import Runtime
from pylogtable.storage.waiting import Place

# How often a poll starts again if its lease runs out while it reads, before it gives up.
MAX_LATE_READS = 3


@operations
@one_thread
class Consumer(Polling):
    """Reads a topic as a member of a consumer group. `topic.consumer()` makes one.

    Use it as a context manager, and iterate over it or call `poll`. Use it from one thread at a
    time.

    >>> with topic.consumer("billing") as consumer:
    ...     for batch in consumer:            # pyarrow tables, up to the end of the log
    ...         process(batch)
    ...         consumer.commit()

    `records` gives the records one by one. `async for` works with both, and `apoll` and `acommit`
    are for asynchronous code.

    `commit` raises `CommitConflictError` if another member owns a partition by now, or someone
    moved its position. The next `poll` then starts again from the committed positions.
    """

    def __init__(
        self,
        topic_name: str,
        member: Member,
        newest: Callable[[], View],
        runtime: Runtime,
        options: ConsumerOptions,
    ) -> None:
        self.topic_name = topic_name
        self.group = options.group
        #: True if it reads all partitions, and is no member among others.
        self.is_alone = options.member is None
        policy = parse_policy(options.auto_offset_reset)
        self._max_records = check_count(options.max_records)
        self._follow = options.follow
        self._member = member
        self._newest = newest
        self._runtime = runtime
        self._view = newest()
        # Raise for an unknown column before the consumer joins its group.
        column_schema(self._view.snapshot.info.fields, options.columns)
        self._start = StartingPoint(topic_name, self.group, policy, self._view.partition_count)
        self._columns = options.columns
        self._fetcher = Fetcher(options.columns)
        self._paused: set[int] = set()
        self._callbacks = options.callbacks
        self._listener = Listener(options.callbacks, topic_name)
        self._delivery = Delivery(self._fetcher)
        self._look_again_at = 0.0
        # The partitions and their tenures at the last look.
        self._tenures: Mapping[int, int] = {}
        # The tenure in which each partition was last read. Lost partitions stay here.
        self._read: dict[int, int] = {}
        self._has_failed = False
        #: True if the view is the newest one, which the next read need not ask for.
        self._has_looked = False
        self._is_closed = False
        self._turn: Turn | None = Turn()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"partitions {list(self._tenures)}"
        return f"<Consumer of topic {self.topic_name!r} in group {self.group!r}, {state}>"

    def commit(
        self, positions: Mapping[int, int] | None = None, metadata: str = ""
    ) -> dict[int, int]:
        """Commit the positions after the last records that `poll` returned, or the given
        `positions` (the next offset to read, by partition). Returns what was committed.

        Call it after the records are processed: a restart continues from here. `metadata` is stored
        with the positions.

        A dynamic member may give partitions up here, or take some. Without `positions`, those of
        partitions that it has lost since are left out: their next owner reads the records again.
        `positions` of such a partition are refused.
        """
        self._enter()
        check_metadata(metadata)
        if positions is not None:
            offsets = check_offsets(positions, self._newest().snapshot)
        elif metadata:
            offsets = self._positions()
        else:
            offsets = self._uncommitted()
        if offsets:
            self._member.commit(offsets, metadata, {**self._tenures, **self._read})
        return offsets

    async def acommit(
        self, positions: Mapping[int, int] | None = None, metadata: str = ""
    ) -> dict[int, int]:
        """`commit` for asynchronous code. It waits in a thread, and a cancellation does not stop
        it."""
        return await self._in_thread(
            partial(self.commit, positions, metadata), lambda committed: None
        )

    def committed(self) -> dict[int, int]:
        """The committed positions of this consumer's partitions, as the store has them now. A
        partition without one is missing."""
        self._update_assignment(find_positions=False)
        newest = self._member.newest_committed()
        return {number: newest[number] for number in self._tenures if number in newest}

    def lag(self) -> GroupLag:
        """How far the committed positions of this consumer's partitions are behind the end of the
        log, in records, bytes and seconds; see `Group.lag`."""
        committed = self.committed()
        view, now_ms = self._newest(), self._runtime.clock()
        positions = {number: committed.get(number) for number in self._tenures}
        lags = measure_lag(view._store, view, positions, now_ms)
        return GroupLag(self.group, self.topic_name, lags)

    def position(self, partition: int) -> int:
        """The next offset that `poll` reads from this partition."""
        self._update_assignment(find_positions=False)
        self._check_assigned([partition])
        return self.positions()[partition]

    def positions(self) -> dict[int, int]:
        """The next offset that `poll` reads, for each partition of this consumer."""
        self._update_assignment()
        positions = self._delivery.positions
        return {number: positions[number] for number in self._tenures}

    def seek(self, partition: int, to: Given) -> None:
        """Continue reading a partition from another position, such as an offset, "earliest",
        "latest" or a time. A time means the first record at or after it, or the end if there is
        none. An offset outside of the log is refused. This commits nothing."""
        self._update_assignment(find_positions=False)
        self._check_assigned([partition])
        self._delivery.take_back()
        self._view = self._newest()
        self._begin(resolve(self._view, {partition: parse_position(to)}))

    def begin_at(self, positions: Mapping[int, int] | None) -> None:
        """Continue at these positions, as if they were the committed ones: where records are gone
        by now, `auto_offset_reset` says where. A position beyond the end is refused. None stands
        for the committed positions themselves. This commits nothing."""
        self._update_assignment(find_positions=False)
        self._delivery.take_back()
        self._view = self._newest()
        if positions is None:
            committed = self._member.committed()
            asked = {number: committed.get(number) for number in self._tenures}
        else:
            asked = {number: positions[number] for number in self._check_assigned(positions)}
            for number, at in positions.items():
                log = self._view.snapshot.partitions[number]
                if at > log.end:
                    raise OffsetOutOfRangeError(number, at, log.log_start, log.end)
        self._begin(self._start.positions(self._view, asked))

    def pause(self, partitions: int | Iterable[int]) -> None:
        """Stop polling these partitions until `resume`. They stay assigned to this consumer."""
        self._update_assignment(find_positions=False)
        self._paused.update(self._check_assigned(partitions))
        self._delivery.take_back()

    def resume(self, partitions: int | Iterable[int]) -> None:
        """Poll these partitions again after `pause`."""
        self._update_assignment(find_positions=False)
        self._paused.difference_update(self._check_assigned(partitions))

    def assignment(self) -> tuple[int, ...]:
        """The partitions that this consumer reads now. A dynamic member joins the group here if it
        has not yet."""
        self._update_assignment(find_positions=False)
        return tuple(self._tenures)

    @property
    def snapshot(self) -> Snapshot:
        """The version of the topic that it reads now."""
        return self._view.snapshot

    @property
    def member(self) -> str | None:
        """The id of this consumer in its group, to find it in `Group.describe`. None unless it is
        a dynamic member that has joined."""
        return self._member.member_id

    def close(self, *, commit: bool = False) -> None:
        """Leave the group, so that other members get the partitions at once. With `commit=True`,
        commit the consumer's positions first."""
        if self._is_closed:
            return
        self._enter("close")
        try:
            self._say_goodbye()
        finally:
            leaving = self._uncommitted() if commit else {}
            self._delivery.take_back()
            self._is_closed = True
            self._member.leave(leaving)

    def _read_batch(self, count: int, ends_at: float) -> Batch:
        self._enter("poll")
        self._delivery.take_back()
        late_reads = 0
        while True:
            left = max(0.0, ends_at - self._runtime.monotonic())
            with new_operation(left + self._view._store.limits.reply_seconds):
                self._update_assignment()
                before, partitions = self._fetcher.positions, self._view.partition_count
                table = self._fetch(count)
            if table.num_rows and not self._member.is_lease_valid():
                # Reading took longer than the lease: another member may own the partitions now.
                self._fetcher.rewind(before)
                late_reads += 1
                self._check_pace(late_reads)
            elif table.num_rows or self._view.partition_count == partitions:
                return Batch(
                    self.topic_name,
                    self._view.snapshot.info,
                    table,
                    before,
                    self._delivery,
                    self._look_is_due,
                    self._look,
                )

    def _shown(self, batch: Batch) -> pa.Table:
        return batch.table if self._columns is None else batch.table.select(list(self._columns))

    @property
    def _has_full_share(self) -> bool:
        return self._member.has_full_share

    @property
    def _longest_pause_seconds(self) -> float:
        return self._member.longest_pause_seconds

    def _awaited(self) -> list[Place]:
        return [(self._view._store, commit_path(self._view.version + 1))]

    def _read_for_records(self) -> None:
        self._enter()
        keys = self._view.snapshot.info.key
        self._fetcher.read_also([PARTITION, TIMESTAMP, *keys])

    def _look_is_due(self) -> bool:
        return self._runtime.monotonic() >= self._look_again_at

    @in_turn
    def _look(self) -> None:
        if not self._is_closed:
            self._update_assignment(find_positions=False)

    def _say_goodbye(self) -> None:
        """Tell the program that it is about to leave, unless it was told."""
        self._listener.end(self, owns=self._member.is_lease_valid())

    def _look_ahead(self, *, for_records: bool) -> None:
        """Ask the store for what the next read, or the next look at the group, would ask for. It
        moves no partition of a program that is told of such moves, so it may run beside that of
        other topics."""
        if for_records:
            self._view, self._has_looked = self._newest(), True
        else:
            self._member.prepare(self._view.partition_count)

    def _knows_records(self) -> bool:
        """True if there are records to read that it need not ask for."""
        positions = self._fetcher.positions
        active = [n for n in self._tenures if n in positions and n not in self._paused]
        return any(not self._fetcher.is_at_end(number, self._view) for number in active)

    def _enter(self, method: str = "") -> None:
        """A method begins. With its name if it cannot be called by the program's callbacks."""
        self._settle()
        self._check_open()
        if method:
            self._callbacks.check_silent(method)

    def _update_assignment(self, *, find_positions: bool = True) -> None:
        """Bring the assigned partitions up to date, and find a position for each new one. One that
        was lost and is back is new, too: others may have moved its position."""
        self._enter()
        if not self._listener.is_talking:
            self._assign()
        known = self._fetcher.positions
        new = [number for number in self._tenures if number not in known]
        if new and find_positions:
            committed = self._member.committed()
            self._view = self._newest()
            asked = {number: committed.get(number) for number in new}
            self._begin(self._start.positions(self._view, asked))

    def _assign(self) -> None:
        revoke = partial(self._listener.revoke, self)
        tenures = dict(self._member.assigned(self._view.partition_count, revoke))
        self._look_again_at = self._runtime.monotonic() + self._member.look_seconds
        if tenures != self._tenures:
            self._delivery.take_back()
            kept = [number for number, at in tenures.items() if self._tenures.get(number) == at]
            self._fetcher.keep(kept)
            self._paused.intersection_update(kept)
            self._tenures = tenures
        self._listener.follow(self, tenures)

    def _begin(self, positions: Mapping[int, int]) -> None:
        for partition, offset in positions.items():
            self._fetcher.seek(partition, offset)
            self._read[partition] = self._tenures[partition]

    def _fetch(self, count: int) -> pa.Table:
        """The next records. The newest version is looked at only if the known one has no more
        records of some partition. But none are returned only if the newest has none."""
        table, is_newest = self._fetch_from(count, look=self._has_failed)
        return table if table.num_rows or is_newest else self._fetch_from(count, look=True)[0]

    def _fetch_from(self, count: int, *, look: bool) -> tuple[pa.Table, bool]:
        active = [number for number in self._tenures if number not in self._paused]
        at_end = (self._fetcher.is_at_end(number, self._view) for number in active)
        look = look or not active or any(at_end)
        if look and not self._has_looked:
            self._view = self._newest()
        self._has_looked = False
        positions = self._fetcher.positions
        idle = {n: positions[n] for n in active if not self._fetcher.is_open(n)}
        for number, at in self._start.positions(self._view, idle).items():
            if at != positions[number]:
                self._fetcher.seek(number, at)
        self._has_failed = True
        table = self._fetcher.take(self._view, active, count)
        self._has_failed = False
        return table, look

    def _positions(self) -> dict[int, int]:
        """The next offset to read of each partition that has been read, and not lost since."""
        positions, held = self._delivery.positions, self._member.tenures
        return {
            number: positions[number]
            for number, at in self._tenures.items()
            if number in positions and held.get(number) == at
        }

    def _uncommitted(self) -> dict[int, int]:
        """The positions that differ from the last known committed ones."""
        positions = self._positions()
        committed = self._member.committed() if positions else {}
        return {number: at for number, at in positions.items() if committed.get(number) != at}

    def _check_assigned(self, partitions: int | Iterable[int]) -> list[int]:
        asked = list(partitions) if isinstance(partitions, Iterable) else [partitions]
        for number in asked:
            if not is_whole(number) or number not in self._tenures:
                raise InvalidRequestError(
                    f"partition {number!r} is not assigned to this consumer; it has "
                    f"{', '.join(map(str, self._tenures)) or 'no partition'}"
                )
        return asked

    def _check_pace(self, late_reads: int) -> None:
        if late_reads >= MAX_LATE_READS:
            raise InvalidRequestError(
                f"a member of group {self.group!r} lost its lease while it read a batch, "
                f"{late_reads} times in a row: its heartbeat did not reach the store in time. Use "
                "a longer lease_ms or a smaller max_records"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError(
                f"this consumer of topic {self.topic_name!r} is closed; open another one"
            )
