"""A consumer's membership in its group: which partitions it reads, and how it commits.

A `StaticMember` computes its partitions from its number and the number of members. It commits like
any user of the group, and needs no lease.

A `DynamicMember` owns the partitions that the group's state gives it, while its lease lasts. Every
state it writes renews its lease. It writes one only while its consumer polls or commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    TopicNotFoundError,
)
from pylogtable.format.group_model import GroupChange, GroupOffer, GroupState
from pylogtable.groups.group import Group, committed_offsets
from pylogtable.groups.membership_plan import (
    assign,
    check_tenures,
    heartbeat,
    join,
    leave,
    member_id,
    owned,
    plan_offer,
    tenures,
)
from pylogtable.log.group_log import GroupPlan, MakeOffer

# The longest wait of a consumer that finds nothing to read, before it looks again.
LONGEST_PAUSE_SECONDS = 1.0
NO_OFFSETS: Mapping[int, int] = {}


class Member(Protocol):
    """What a consumer needs to know about its place in the group."""

    @property
    def member_id(self) -> str | None:
        """The member's id in the group's state. None for a static member, and for a dynamic one
        that is not in the group now."""

    @property
    def tenures(self) -> Mapping[int, int]:
        """The member's partitions as far as it knows, without a look at the group. Each has the
        number of its tenure: another one if the member lost the partition or its position in
        between, even if it has it again. The consumer then begins at the committed position."""

    @property
    def has_full_share(self) -> bool:
        """False while other members still hold partitions of this member's share."""

    @property
    def longest_pause_seconds(self) -> float:
        """How long the consumer may wait between two looks at the log."""

    def assigned(self, partition_count: int) -> Mapping[int, int]:
        """The member's partitions, with their tenures. The topic has `partition_count` of them. A
        dynamic member joins or renews its lease here if it has to."""

    def committed(self) -> Mapping[int, int]:
        """The committed positions, by partition."""

    def is_lease_valid(self) -> bool:
        """True while no other member can own the assigned partitions."""

    def commit(self, offsets: Mapping[int, int], metadata: str, read: Mapping[int, int]) -> None:
        """Commit positions. `read` has the tenures in which the consumer read them. Raise if a
        partition does not belong to this member, or was lost in between."""

    def leave(self, offsets: Mapping[int, int]) -> None:
        """Commit these positions, if there are any, and leave the group."""


class StaticMember:
    """Number `index` of `count` members that share the partitions: partition `p` belongs to member
    `p % count`. A single consumer is number 0 of 1."""

    member_id = None
    has_full_share = True
    longest_pause_seconds = LONGEST_PAUSE_SECONDS

    def __init__(self, group: Group, index: int, count: int) -> None:
        self._group = group
        self._index = index
        self._count = count
        self._positions: dict[int, int] | None = None
        # Its partitions stay. But each commit that is refused begins a new tenure of all of them.
        self._refused = 0
        self._partition_count = 0

    @property
    def tenures(self) -> Mapping[int, int]:
        mine = range(self._index, self._partition_count, self._count)
        return dict.fromkeys(mine, self._refused)

    def assigned(self, partition_count: int) -> Mapping[int, int]:
        self._partition_count = partition_count
        return self.tenures

    def committed(self) -> Mapping[int, int]:
        """Read once. If someone else moves a position later, the next commit is refused."""
        if self._positions is None:
            self._positions = self._group.positions()
        return self._positions

    def is_lease_valid(self) -> bool:
        return True

    def commit(self, offsets: Mapping[int, int], metadata: str, read: Mapping[int, int]) -> None:
        """`read` is not needed: the group refuses what others have moved since [GRP-8]."""
        for partition in offsets:
            if partition % self._count != self._index:
                raise InvalidRequestError(
                    f"partition {partition} is not assigned to this consumer: it is member "
                    f"{self._index} of {self._count} and has the partitions p with "
                    f"p % {self._count} == {self._index}"
                )
        try:
            self._positions = self._group.commit(offsets, metadata)
        except CommitConflictError:
            self._positions = None
            self._refused += 1
            raise

    def leave(self, offsets: Mapping[int, int]) -> None:
        if offsets:
            self.commit(offsets, "", self.tenures)


class DynamicMember:
    """A member with a lease. It gets a new id each time it joins, so that it is never confused with
    another member of the same name, or with itself before it lost its lease.

    It reads the group's state every tenth of its lease. It writes one when a third of the lease has
    passed, or when there are partitions to take or to give up.
    """

    def __init__(self, group: Group, name: str, lease_ms: int) -> None:
        self._group = group
        self._name = name
        self._lease_ms = lease_ms
        self._runtime = group._log.runtime
        self._state: GroupState | None = None
        self._looked_at_ms: int | None = None  # None: look at the group's state at once
        self._partition_count = 0
        self.longest_pause_seconds = min(LONGEST_PAUSE_SECONDS, lease_ms / 10_000)
        self.member_id: str | None = None
        self._tenures: dict[int, int] = {}
        self._offered_on_ms = -1  # the lease of the last offer

    @property
    def tenures(self) -> Mapping[int, int]:
        return self._tenures

    @property
    def has_full_share(self) -> bool:
        if self._state is None or self.member_id is None:
            return False
        by_name = {name: held.owned for name, held in self._state.members.items()}
        share = assign(by_name, self._partition_count)[self.member_id]
        return set(share) <= set(by_name[self.member_id])

    def assigned(self, partition_count: int) -> Mapping[int, int]:
        if partition_count != self._partition_count:
            self._looked_at_ms = None  # there may be new partitions to take
        self._partition_count = partition_count
        if self.member_id is not None:
            self._renew()
        if self.member_id is None:
            self._join()
        return self._tenures

    def committed(self) -> Mapping[int, int]:
        return committed_offsets(self._state)

    def is_lease_valid(self) -> bool:
        if self._state is None or self.member_id is None:
            return False
        return self._state.members[self.member_id].is_live(self._now())

    def commit(self, offsets: Mapping[int, int], metadata: str, read: Mapping[int, int]) -> None:
        member = self.member_id
        if member is None:
            raise CommitConflictError(
                f"this consumer is not a member of group {self._group.name!r}. Nothing was "
                "committed. Call poll() to join, and commit what it returns"
            )
        check_tenures(self._state, member, offsets, self._tenures, read)

        def plan(state: GroupState | None, now_ms: int) -> GroupChange:
            return self._heartbeat(state, member, now_ms, offsets, metadata)

        def offer(state: GroupState, now_ms: int) -> GroupOffer:
            made = plan_offer(state, member, now_ms, self._lease_ms, offsets, metadata)
            self._offered_on_ms = made.lease_before_ms
            return made

        self._change(member, plan, offsets, offer)

    def leave(self, offsets: Mapping[int, int]) -> None:
        member, self.member_id = self.member_id, None
        if member is None:
            return
        try:
            self._group._log.latest()
        except TopicNotFoundError:
            return  # the group was deleted with its topic
        self._group._group_log.change(lambda state, now_ms: leave(state, member, now_ms, offsets))

    def _heartbeat(
        self,
        state: GroupState | None,
        member: str,
        now_ms: int,
        offsets: Mapping[int, int] = NO_OFFSETS,
        metadata: str = "",
    ) -> GroupChange:
        return heartbeat(
            state,
            member,
            now_ms,
            self._lease_ms,
            self._partition_count,
            offsets,
            metadata,
            self._offered_on_ms,
        )

    def _join(self) -> None:
        member = member_id(self._name, self._runtime.new_id())
        self._tenures = {}
        self._offered_on_ms = -1
        self._change(
            member,
            lambda state, now_ms: join(
                state, member, now_ms, self._lease_ms, self._partition_count
            ),
        )
        self.member_id = member

    def _renew(self) -> None:
        now_ms, member = self._now(), self.member_id
        assert self._state is not None
        assert member is not None
        left_ms = self._state.members[member].lease_until_ms - now_ms
        is_due = left_ms <= self._lease_ms * 2 // 3
        looked_at_ms = self._looked_at_ms
        is_recent = looked_at_ms is not None and now_ms - looked_at_ms < self._lease_ms // 10
        if not is_due and is_recent:
            return

        def plan(state: GroupState | None, now_ms: int) -> GroupChange | None:
            change = self._heartbeat(state, member, now_ms)
            assert state is not None
            is_same = owned(change, member) == owned(state, member)
            return None if is_same and not is_due else change

        try:
            self._change(member, plan)
        except CommitConflictError:
            return  # no longer a member: `assigned` joins again

    def _change(
        self,
        member: str,
        plan: GroupPlan,
        offsets: Mapping[int, int] = NO_OFFSETS,
        offer: MakeOffer | None = None,
    ) -> None:
        """Write a state, unless the topic is gone. After a refused commit, or one whose outcome is
        unknown, the member considers itself no longer in the group.

        What a state gives up is forgotten before the state is put. So if this is interrupted, by
        Ctrl-C for example, the member does not go on with partitions that it may have lost.
        """
        self._group._checked(offsets)
        held = self._tenures

        def giving_up(state: GroupState | None, now_ms: int) -> GroupChange | None:
            change = plan(state, now_ms)
            if change is not None:
                mine = owned(change, member)
                self._tenures = {n: at for n, at in self._tenures.items() if n in mine}
            return change

        try:
            state = self._group._group_log.change(giving_up, offer)
        except (CommitConflictError, CommitUnknownError):
            self.member_id = self._state = None
            raise
        assert state is not None
        self._state = state
        self._tenures = tenures(held, state, member)
        self._looked_at_ms = self._now()

    def _now(self) -> int:
        return self._runtime.clock()
