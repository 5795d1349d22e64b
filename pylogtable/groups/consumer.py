"""Reading a topic as a member of a consumer group, one batch at a time.

There is no background thread. `poll` and `commit` do everything in the caller's thread: renew
leases, take or give up partitions, and look for new records. Nothing is committed unless the caller
asks for it. Records that were polled but not committed are read again after a restart, or by the
next owner of the partition: at-least-once delivery, as in Kafka.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

import pyarrow as pa

from pylogtable.arguments import check_number, is_whole
from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.group_model import MAX_LEASE_MS
from pylogtable.format.paths import check_member_name, commit_path
from pylogtable.format.schema import column_schema
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.fetcher import Fetcher
from pylogtable.groups.group import Group
from pylogtable.groups.member import DynamicMember, Member, StaticMember
from pylogtable.groups.positions_plan import check_metadata, check_offsets
from pylogtable.groups.starting_point import StartingPoint, parse_policy
from pylogtable.log.topic_log import TopicLog
from pylogtable.operation import Closing, new_operation, operations
from pylogtable.read.position import Given, parse_position, resolve
from pylogtable.read.view import View
from pylogtable.runtime import Runtime
from pylogtable.storage.waiting import wait_for_any

# The first wait for new records. It doubles each time there are none, up to the member's limit.
FIRST_PAUSE_SECONDS = 0.01
MIN_LEASE_MS = 100
# How often a poll starts again if its lease runs out while it reads, before it gives up.
MAX_LATE_READS = 3


@dataclass(frozen=True)
class ConsumerOptions:
    """The arguments of `Topic.consumer`."""

    group: str
    member: tuple[int, int] | str | None
    auto_offset_reset: str
    columns: Sequence[str] | None
    max_records: int
    lease_ms: int
    follow: bool


@operations
class Consumer(Closing):
    """Reads a topic as a member of a consumer group. `topic.consumer()` makes one.

    Use it as a context manager, and iterate over it or call `poll`. Use it from one thread at a
    time.

    >>> with topic.consumer("billing") as consumer:
    ...     for batch in consumer:            # pyarrow tables, up to the end of the log
    ...         process(batch)
    ...         consumer.commit()

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
        self._max_records = _check_count(options.max_records)
        self._follow = options.follow
        self._member = member
        self._newest = newest
        self._runtime = runtime
        self._view = newest()
        # Raise for an unknown column before the consumer joins its group.
        column_schema(self._view.snapshot.info.fields, options.columns)
        self._start = StartingPoint(topic_name, self.group, policy, self._view.partition_count)
        self._fetcher = Fetcher(options.columns)
        self._paused: set[int] = set()
        # The partitions and their tenures at the last look.
        self._tenures: Mapping[int, int] = {}
        # The tenure in which each partition was last read. Lost partitions stay here.
        self._read: dict[int, int] = {}
        self._has_failed = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"partitions {list(self._tenures)}"
        return f"<Consumer of topic {self.topic_name!r} in group {self.group!r}, {state}>"

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield batches up to the end of the log, or forever with `follow=True`."""
        while not self._is_closed:
            batch = self.poll()
            if batch.num_rows:
                yield batch
            elif not self._follow:
                if self._member.has_full_share:
                    return
                # Other members still hold partitions of this member's share.
                self._runtime.pause(self._member.longest_pause_seconds)

    def poll(self, max_records: int | None = None, timeout: float | None = None) -> pa.Table:
        """The next records, at most `max_records`. They are in offset order inside each partition,
        and taken evenly from all partitions that have some. No record is skipped.

        If there are none, it waits up to `timeout` seconds and returns an empty table. Without a
        timeout it returns at once, or waits for a record if the consumer was made with
        `follow=True`. If the store does not answer, it raises after the timeout and the time of one
        request.
        """
        self._check_open()
        count = self._max_records if max_records is None else _check_count(max_records)
        seconds = None if timeout is None else _check_timeout(timeout)
        began, attempt, late_reads = self._runtime.monotonic(), 0, 0
        while True:
            with new_operation(self._longest_silence(began, seconds)):
                self._update_assignment()
                before, partitions = self._fetcher.positions, self._view.partition_count
                table = self._fetch(count)
            if table.num_rows and self._member.is_lease_valid():
                return table
            if table.num_rows:
                # Reading took longer than the lease: another member may own the partitions now.
                self._fetcher.rewind(before)
                late_reads += 1
                self._check_pace(late_reads)
                continue
            if self._view.partition_count != partitions:
                continue
            wait = self._pause_before(attempt, began, seconds)
            if wait is None:
                return table
            next_commit = commit_path(self._view.version + 1)
            wait_for_any([(self._view._store, next_commit)], wait, self._runtime)
            attempt += 1

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
        self._check_open()
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

    def position(self, partition: int) -> int:
        """The next offset that `poll` reads from this partition."""
        self._update_assignment(find_positions=False)
        self._check_assigned([partition])
        self._update_assignment()
        return self._fetcher.positions[partition]

    def positions(self) -> dict[int, int]:
        """The next offset that `poll` reads, for each partition of this consumer."""
        self._update_assignment()
        positions = self._fetcher.positions
        return {number: positions[number] for number in self._tenures}

    def seek(self, partition: int, to: Given) -> None:
        """Continue reading a partition from another position, such as an offset, "earliest",
        "latest" or a time. A time means the first record at or after it, or the end if there is
        none. An offset outside of the log is refused. This commits nothing."""
        self._update_assignment(find_positions=False)
        self._check_assigned([partition])
        self._view = self._newest()
        self._begin(resolve(self._view, {partition: parse_position(to)}))

    def begin_at(self, positions: Mapping[int, int] | None) -> None:
        """Continue at these positions, as if they were the committed ones: where records are gone
        by now, `auto_offset_reset` says where. A position beyond the end is refused. None stands
        for the committed positions themselves. This commits nothing."""
        self._update_assignment(find_positions=False)
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
        if not self._is_closed:
            self._is_closed = True
            self._member.leave(self._uncommitted() if commit else {})

    def _update_assignment(self, *, find_positions: bool = True) -> None:
        """Bring the assigned partitions up to date, and find a position for each new one. One that
        was lost and is back is new, too: others may have moved its position."""
        self._check_open()
        tenures = dict(self._member.assigned(self._view.partition_count))
        kept = [number for number, at in tenures.items() if self._tenures.get(number) == at]
        self._fetcher.keep(kept)
        self._paused.intersection_update(kept)
        self._tenures = tenures
        known = self._fetcher.positions
        new = [number for number in tenures if number not in known]
        if new and find_positions:
            committed = self._member.committed()
            self._view = self._newest()
            asked = {number: committed.get(number) for number in new}
            self._begin(self._start.positions(self._view, asked))

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
        if look:
            self._view = self._newest()
        positions = self._fetcher.positions
        idle = {n: positions[n] for n in active if not self._fetcher.is_open(n)}
        for number, at in self._start.positions(self._view, idle).items():
            if at != positions[number]:
                self._fetcher.seek(number, at)
        self._has_failed = True
        table = self._fetcher.take(self._view, active, count)
        self._has_failed = False
        return table, look

    def _longest_silence(self, began: float, timeout: float | None) -> float:
        if timeout is None:
            return math.inf
        left = max(0.0, timeout - (self._runtime.monotonic() - began))
        return left + self._view._store.limits.reply_seconds

    def _pause_before(self, attempt: int, began: float, timeout: float | None) -> float | None:
        """How many seconds to wait before the next look at the log. None if the timeout has
        passed."""
        longest = self._member.longest_pause_seconds
        pause = min(longest, FIRST_PAUSE_SECONDS * 2 ** min(attempt, 16))
        if timeout is None:
            return pause if self._follow else None
        left = timeout - (self._runtime.monotonic() - began)
        return min(pause, left) if left > 0 else None

    def _positions(self) -> dict[int, int]:
        """The next offset to read of each partition that has been read, and not lost since."""
        positions, held = self._fetcher.positions, self._member.tenures
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
                f"member {self.member!r} of group {self.group!r} needed longer than its lease to "
                f"read a batch, {late_reads} times in a row. Use a longer lease_ms or a smaller "
                "max_records"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError(
                f"this consumer of topic {self.topic_name!r} is closed; open another one"
            )


def open_consumer(
    topic_name: str,
    log: TopicLog,
    newest: Callable[[], View],
    options: ConsumerOptions,
) -> Consumer:
    """A consumer of the topic of `log`. Opening it writes nothing."""
    lease_ms = options.lease_ms
    check_number("lease_ms", lease_ms, MIN_LEASE_MS)
    if lease_ms > MAX_LEASE_MS:
        raise InvalidRequestError(
            f"lease_ms must be at most {MAX_LEASE_MS:,} (24 hours), not {lease_ms:,}: a longer "
            "lease would not be believed"
        )
    group = Group(options.group, topic_name, log)
    member: Member
    if isinstance(options.member, str):
        check_member_name(options.member)
        member = DynamicMember(group, options.member, lease_ms)
    else:
        member = StaticMember(group, *_static(options.member))
    return Consumer(topic_name, member, newest, log.runtime, options)


def _static(member: object) -> tuple[int, int]:
    """`(index, count)` of a static member. A single consumer is number 0 of 1."""
    match member:
        case None:
            return 0, 1
        case (int(index), int(count)) if is_whole(index) and is_whole(count) and 0 <= index < count:
            return index, count
    raise InvalidRequestError(
        "member must be a name, or (index, count) with 0 <= index < count such as (0, 3), "
        f"not {member!r}"
    )


def _check_count(count: int) -> int:
    check_number("max_records", count, 1)
    return min(count, sys.maxsize)


def _check_timeout(timeout: object) -> float:
    is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
    if not is_number or timeout != timeout:  # NaN is no number of seconds
        raise InvalidRequestError(f"timeout must be a number of seconds, not {timeout!r}")
    try:
        return float(timeout)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
