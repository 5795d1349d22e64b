"""The place of a consumer in its group: which partitions are its, and how it commits them.

A plain seat has its partitions by arithmetic and commits as anybody may. A leased seat is a member
of the group: it owns what the group's state says, for as long as its lease runs, and renews that
only while its consumer polls or commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pylogtable.errors import CommitConflictError, CommitUnknownError, TopicNotFoundError
from pylogtable.format.codec import check_writable
from pylogtable.format.model import GroupChange, GroupState
from pylogtable.groups.group import Group
from pylogtable.log.group_head import GroupHead, GroupPlan
from pylogtable.log.head import Head
from pylogtable.plan.membership import assign, heartbeat, join, leave


class Seat(Protocol):
    @property
    def member(self) -> str | None:
        """Under which name it is in the group, if it is a dynamic member of it now."""

    @property
    def term(self) -> int:
        """Another number means that everything begins anew, from the committed positions."""

    @property
    def is_settled(self) -> bool:
        """Whether it has all that is its share, as far as is known."""

    def assigned(self, partitions: int) -> tuple[int, ...]:
        """What it has of so many partitions now; renews what has to be."""

    def committed(self) -> Mapping[int, int]:
        """The positions it is to begin from."""

    def is_held(self) -> bool:
        """Whether what was assigned is still its own."""

    def commit(self, offsets: Mapping[int, int], metadata: str) -> None: ...

    def give_up(self, offsets: Mapping[int, int]) -> None:
        """Commit these, if there are any, and leave."""


class PlainSeat:
    """All partitions, or of `count` static members those of number `index`."""

    member = None
    is_settled = True

    def __init__(self, group: Group, index: int, count: int) -> None:
        self._group = group
        self._index = index
        self._count = count
        self._positions: dict[int, int] | None = None
        self.term = 0

    def assigned(self, partitions: int) -> tuple[int, ...]:
        return tuple(range(self._index, partitions, self._count))

    def committed(self) -> Mapping[int, int]:
        """Read once: whoever moves a position afterwards is found out at the commit."""
        if self._positions is None:
            self._positions = self._group.positions()
        return self._positions

    def is_held(self) -> bool:
        return True

    def commit(self, offsets: Mapping[int, int], metadata: str) -> None:
        try:
            self._positions = self._group.commit(offsets, metadata)
        except CommitConflictError:
            self._positions = None
            self.term += 1
            raise

    def give_up(self, offsets: Mapping[int, int]) -> None:
        if offsets:
            self.commit(offsets, "")


class LeasedSeat:
    """A member `name` of a group. Each time it joins it does so under a new id, so that nobody,
    not even its own earlier life, is taken for it.

    It looks at the group's state every tenth of its lease, and writes one when a third has passed,
    or when there is something to take or to give up.
    """

    def __init__(self, group: str, name: str, lease_ms: int, log: GroupHead, head: Head) -> None:
        self._group = group
        self._name = name
        self._lease_ms = lease_ms
        self._log = log
        self._head = head
        self._state: GroupState | None = None
        self._looked_ms = 0
        self._partitions = 0
        self.member: str | None = None
        self.term = 0

    @property
    def is_settled(self) -> bool:
        if self._state is None or self.member is None:
            return False
        owned = {name: held.owned for name, held in self._state.members.items()}
        return set(assign(owned, self._partitions)[self.member]) <= set(owned[self.member])

    def assigned(self, partitions: int) -> tuple[int, ...]:
        if partitions != self._partitions:
            self._looked_ms = 0  # there may be new ones to take
        self._partitions = partitions
        if self.member is not None:
            self._renew()
        if self.member is None:
            self._join()
        assert self._state is not None
        assert self.member is not None
        return self._state.members[self.member].owned

    def committed(self) -> Mapping[int, int]:
        state = self._state
        return {} if state is None else {n: entry.offset for n, entry in state.positions.items()}

    def is_held(self) -> bool:
        if self._state is None or self.member is None:
            return False
        return self._now() < self._state.members[self.member].lease_until_ms

    def commit(self, offsets: Mapping[int, int], metadata: str) -> None:
        member = self.member
        if member is None:
            raise CommitConflictError(
                f"this consumer is not a member of group {self._group!r}: poll() joins. Nothing "
                "was committed"
            )

        def plan(state: GroupState | None, now_ms: int) -> GroupChange:
            return heartbeat(
                state, member, now_ms, self._lease_ms, self._partitions, offsets, metadata
            )

        self._change(plan)

    def give_up(self, offsets: Mapping[int, int]) -> None:
        member, self.member = self.member, None
        if member is None:
            return
        try:
            self._head.latest()
        except TopicNotFoundError:
            return  # the group went with it
        self._log.change(lambda state, now_ms: leave(state, member, now_ms, offsets))

    def _join(self) -> None:
        member = f"{self._name}-{self._head.runtime.new_id()[-8:]}"
        self.term += 1
        self._change(
            lambda state, now_ms: join(state, member, now_ms, self._lease_ms, self._partitions)
        )
        self.member = member

    def _renew(self) -> None:
        now_ms, member = self._now(), self.member
        assert self._state is not None
        assert member is not None
        left_ms = self._state.members[member].lease_until_ms - now_ms
        is_due = left_ms <= self._lease_ms * 2 // 3
        if not is_due and now_ms - self._looked_ms < self._lease_ms // 10:
            return

        def plan(state: GroupState | None, now_ms: int) -> GroupChange | None:
            change = heartbeat(state, member, now_ms, self._lease_ms, self._partitions)
            assert state is not None
            is_same = change.members[member].owned == state.members[member].owned
            return None if is_same and not is_due else change

        try:
            self._change(plan)
        except CommitConflictError:
            return  # joins again

    def _change(self, plan: GroupPlan) -> None:
        """Whoever is not a member any more, or cannot tell, has lost all that it had. Nothing is
        written into a topic that is gone."""
        check_writable(self._head.latest().protocol)
        try:
            self._state = self._log.change(plan)
        except (CommitConflictError, CommitUnknownError):
            self.member = self._state = None
            raise
        self._looked_ms = self._now()

    def _now(self) -> int:
        return self._head.runtime.clock()
