"""Reading a topic as a member of a consumer group, a batch at a time.

Nothing happens behind the caller's back: leases are renewed, partitions taken and given up, new
data looked for, all inside of `poll` and `commit`, in the caller's thread. Nothing is committed
that was not asked for. So what was polled and not committed is read again after a restart, or by
the next owner of the partition: at least once, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType

import pyarrow as pa

from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.format.paths import check_group_name, check_member_name
from pylogtable.format.schema import column_schema
from pylogtable.groups.fetcher import Fetcher
from pylogtable.groups.group import Group
from pylogtable.groups.member import LeasedSeat, PlainSeat, Seat
from pylogtable.log.group_head import GroupHead
from pylogtable.log.head import Head
from pylogtable.plan.positions import check_metadata, check_offsets
from pylogtable.plan.reset_policy import EARLIEST, LATEST, NONE, parse_policy
from pylogtable.read.view import View
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

_log = logging.getLogger(__name__)

# How long to wait before the log is looked at again: longer each time there was nothing.
FIRST_PAUSE = 0.01
LONGEST_PAUSE = 1.0
MIN_LEASE_MS = 100
# So often a poll begins anew because its lease ran out while it was reading.
TOO_LATE = 3


class Consumer:
    """Made by `topic.consumer()`; a context manager, and an iterator over batches. It is used by
    one thread at a time.

    A commit by somebody whose partition was moved, or given to another since its lease had run
    out, is refused with a `CommitConflictError`; the next `poll` begins anew, from the committed
    positions, with the partitions it has then.
    """

    def __init__(
        self,
        topic_name: str,
        group: str,
        seat: Seat,
        newest: Callable[[], View],
        runtime: Runtime,
        *,
        auto_offset_reset: str,
        columns: Sequence[str] | None,
        max_records: int,
        follow: bool,
        longest_pause: float,
    ) -> None:
        self.topic_name = topic_name
        self.group = group
        self._policy = parse_policy(auto_offset_reset)
        self._max_records = _check_count(max_records)
        self._follow = follow
        self._longest_pause = longest_pause
        self._seat = seat
        self._newest = newest
        self._runtime = runtime
        self._view = newest()
        # An unknown column is an error before the consumer joins its group.
        column_schema(self._view.snapshot.info.fields, columns)
        self._first_new = self._view.partition_count
        self._fetcher = Fetcher(columns)
        self._paused: set[int] = set()
        self._assigned: tuple[int, ...] = ()
        self._term: int | None = None
        self._has_failed = False
        self._is_closed = False

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"partitions {list(self._assigned)}"
        return f"<Consumer of topic {self.topic_name!r} in group {self.group!r}, {state}>"

    def __iter__(self) -> Iterator[pa.Table]:
        """Batch after batch, up to the end of the log, or without end if it follows."""
        while not self._is_closed:
            batch = self.poll()
            if batch.num_rows:
                yield batch
            elif not self._follow:
                if self._seat.is_settled:
                    return
                # Others have not given up yet what is to be read here.
                self._runtime.pause(self._longest_pause)

    def poll(self, max_records: int | None = None, timeout: float | None = None) -> pa.Table:
        """The next records, at most so many, in offset order inside each partition, and evenly from
        all partitions that have some. None are left out but those that compaction removed.

        Where there are none it waits up to `timeout` seconds; by default it does not, or without
        end if the consumer follows.
        """
        self._check_open()
        count = self._max_records if max_records is None else _check_count(max_records)
        began, attempt, too_late = self._runtime.monotonic(), 0, 0
        while True:
            self._settle()
            before, partitions = self._fetcher.positions, self._view.partition_count
            table = self._fetch(count)
            if table.num_rows and self._seat.is_held():
                return table
            if table.num_rows:
                # It took longer than the lease, and another may have been given them.
                self._fetcher.rewind(before)
                too_late += 1
                self._check_pace(too_late)
                continue
            if self._view.partition_count != partitions:
                continue
            wait = self._pause_before(attempt, began, timeout)
            if wait is None:
                return table
            self._runtime.pause(wait)
            attempt += 1

    def commit(
        self, positions: Mapping[int, int] | None = None, metadata: str = ""
    ) -> dict[int, int]:
        """Commit where the consumer stands, after all that `poll` has returned, or the positions
        given: next offsets to read by partition. Gives what it committed."""
        self._check_open()
        check_metadata(metadata)
        if positions is not None:
            offsets = self._checked(positions)
        elif metadata:
            offsets = self._standing()
        else:
            offsets = self._moved()
        if offsets:
            self._seat.commit(offsets, metadata)
        return offsets

    def position(self, partition: int) -> int:
        """The offset of a partition that comes next."""
        self._settle(resolve=False)
        self._check_assigned([partition])
        self._settle()
        return self._fetcher.positions[partition]

    def seek(self, partition: int, to: int | str | datetime) -> None:
        """Go on elsewhere: at an offset, at "earliest" or "latest", or at the first record at or
        after a time, the end if there is none. Nothing is committed by it."""
        self._settle(resolve=False)
        self._check_assigned([partition])
        self._view = view = self._newest()
        if isinstance(to, datetime):
            offset = self._at_time(view, partition, to)
        elif to == EARLIEST:
            offset = view.snapshot.partitions[partition].log_start
        elif to == LATEST:
            offset = view.snapshot.partitions[partition].end
        else:
            (offset,) = check_offsets({partition: to}, view.snapshot).values()  # type: ignore[dict-item]
            if not _is_inside(view, partition, offset):
                raise _out_of_range(view, partition, offset)
        self._fetcher.seek(partition, offset)

    def pause(self, partitions: int | Iterable[int]) -> None:
        """Poll nothing of these until they are resumed. They stay assigned."""
        self._settle(resolve=False)
        self._paused.update(self._check_assigned(partitions))

    def resume(self, partitions: int | Iterable[int]) -> None:
        """Poll these again."""
        self._settle(resolve=False)
        self._paused.difference_update(self._check_assigned(partitions))

    def assignment(self) -> tuple[int, ...]:
        """The partitions that it reads now; a dynamic member joins by this, if it has not."""
        self._settle(resolve=False)
        return self._assigned

    @property
    def member(self) -> str | None:
        """Under which name it is in the group, if it is a dynamic member of it now."""
        return self._seat.member

    def close(self, *, commit: bool = False) -> None:
        """Leave the group; with `commit`, commit where the consumer stands before."""
        if not self._is_closed:
            self._is_closed = True
            self._seat.give_up(self._moved() if commit else {})

    def _settle(self, *, resolve: bool = True) -> None:
        """Have the partitions that are to be had, each with a position, unless that can wait."""
        self._check_open()
        assigned = self._seat.assigned(self._view.partition_count)
        if self._seat.term != self._term:
            self._fetcher.keep([])
            self._paused.clear()
            self._term = self._seat.term
        self._fetcher.keep(assigned)
        self._paused.intersection_update(assigned)
        self._assigned = assigned
        known = self._fetcher.positions
        new = [number for number in assigned if number not in known]
        if new and resolve:
            committed = self._seat.committed()
            self._view = self._newest()
            for number in new:
                self._fetcher.seek(number, self._begin(number, committed.get(number)))

    def _begin(self, partition: int, position: int | None) -> int:
        """Where to read on from a position, which may be none, or not in the log any more."""
        view = self._view
        if position is not None and _is_inside(view, partition, position):
            return position
        if self._policy.at == NONE:
            if position is not None:
                raise _out_of_range(view, partition, position)
            raise InvalidRequestError(
                f"group {self.group!r} has no position for partition {partition} of topic "
                f"{self.topic_name!r}, and auto_offset_reset is 'none'; commit one, or reset it"
            )
        if position is None and partition >= self._first_new:
            # It did not exist when the consumer began, so all of it is later than that.
            offset = view.snapshot.partitions[partition].log_start
        elif self._policy.ago is not None:
            since_ms = self._runtime.clock() - self._policy.ago // timedelta(milliseconds=1)
            offset = self._at_time(view, partition, since_ms)
        elif self._policy.at == LATEST:
            offset = view.snapshot.partitions[partition].end
        else:
            offset = view.snapshot.partitions[partition].log_start
        if position is not None:
            _log.warning(
                "position %d of partition %d of %s is not in the log any more; group %s goes on "
                "at %d (%s)",
                position,
                partition,
                self.topic_name,
                self.group,
                offset,
                self._policy.at,
            )
        return offset

    def _fetch(self, count: int) -> pa.Table:
        active = [number for number in self._assigned if number not in self._paused]
        at_end = (self._fetcher.is_at_end(number, self._view) for number in active)
        if self._has_failed or not active or any(at_end):
            self._view = self._newest()
        positions = self._fetcher.positions
        for number in active:
            at = positions[number]
            if not self._fetcher.is_open(number) and not _is_inside(self._view, number, at):
                self._fetcher.seek(number, self._begin(number, at))
        self._has_failed = True
        table = self._fetcher.take(self._view, active, count)
        self._has_failed = False
        return table

    def _at_time(self, view: View, partition: int, when: datetime | int) -> int:
        found = view.offsets_for_time(when, [partition])[partition]
        return view.snapshot.partitions[partition].end if found is None else found

    def _pause_before(self, attempt: int, began: float, timeout: float | None) -> float | None:
        """How long to wait before the next look; None if the time is over."""
        pause = min(self._longest_pause, FIRST_PAUSE * 2 ** min(attempt, 16))
        if timeout is None:
            return pause if self._follow else None
        left = timeout - (self._runtime.monotonic() - began)
        return min(pause, left) if left > 0 else None

    def _standing(self) -> dict[int, int]:
        if self._seat.term != self._term:
            return {}  # a commit was refused: where it stood does not count any more
        positions = self._fetcher.positions
        return {number: positions[number] for number in self._assigned if number in positions}

    def _moved(self) -> dict[int, int]:
        """Where it stands elsewhere than is committed, as far as is known."""
        standing = self._standing()
        committed = self._seat.committed() if standing else {}
        return {number: at for number, at in standing.items() if committed.get(number) != at}

    def _checked(self, positions: Mapping[int, int]) -> dict[int, int]:
        offsets = check_offsets(positions, self._newest().snapshot)
        if isinstance(self._seat, PlainSeat):
            self._settle(resolve=False)
            self._check_assigned(offsets)
        return offsets

    def _check_assigned(self, partitions: int | Iterable[int]) -> list[int]:
        asked = [partitions] if isinstance(partitions, int) else list(partitions)
        for number in asked:
            if number not in self._assigned:
                raise InvalidRequestError(
                    f"partition {number!r} is not assigned to this consumer; it has "
                    f"{', '.join(map(str, self._assigned)) or 'none'}"
                )
        return asked

    def _check_pace(self, too_late: int) -> None:
        if too_late >= TOO_LATE:
            raise InvalidRequestError(
                f"reading a batch took member {self.member!r} of group {self.group!r} longer than "
                f"its lease, {too_late} times in a row: take a longer lease_ms or fewer records"
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError(f"the consumer of {self.topic_name!r} is closed")


def open_consumer(
    topic_name: str,
    store: ObjectStore,
    head: Head,
    newest: Callable[[], View],
    group: str,
    member: tuple[int, int] | str | None,
    *,
    auto_offset_reset: str,
    columns: Sequence[str] | None,
    max_records: int,
    lease_ms: int,
    follow: bool,
) -> Consumer:
    """A consumer of the topic of `head`; nothing is written by opening it."""
    check_group_name(group)
    if isinstance(lease_ms, bool) or not isinstance(lease_ms, int) or lease_ms < MIN_LEASE_MS:
        raise InvalidRequestError(f"lease_ms must be at least {MIN_LEASE_MS}, not {lease_ms!r}")
    seat: Seat
    longest_pause = LONGEST_PAUSE
    if isinstance(member, str):
        check_member_name(member)
        log = GroupHead(store, head.runtime, group, head.known.topic_id)
        seat = LeasedSeat(group, member, lease_ms, log, head)
        longest_pause = min(longest_pause, lease_ms / 10_000)
    else:
        index, count = _static(member)
        seat = PlainSeat(Group(group, topic_name, store, head), index, count)
    return Consumer(
        topic_name,
        group,
        seat,
        newest,
        head.runtime,
        auto_offset_reset=auto_offset_reset,
        columns=columns,
        max_records=max_records,
        follow=follow,
        longest_pause=longest_pause,
    )


def _static(member: object) -> tuple[int, int]:
    """`(index, count)` of a static member; alone it is 0 of 1."""
    match member:
        case None:
            return 0, 1
        case (int(index), int(count)) if (
            not isinstance(index, bool) and not isinstance(count, bool) and 0 <= index < count
        ):
            return index, count
    raise InvalidRequestError(
        f"member is (index, count) with 0 <= index < count, or a name, not {member!r}"
    )


def _is_inside(view: View, partition: int, offset: int) -> bool:
    log = view.snapshot.partitions[partition]
    return log.log_start <= offset <= log.end


def _out_of_range(view: View, partition: int, offset: int) -> OffsetOutOfRangeError:
    log = view.snapshot.partitions[partition]
    return OffsetOutOfRangeError(partition, offset, log.log_start, log.end)


def _check_count(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidRequestError(f"max_records must be at least 1, not {count!r}")
    return count
