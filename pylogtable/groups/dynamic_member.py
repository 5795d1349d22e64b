"""A member of a group that has a lease.

It owns the partitions that the group's state gives it, while its lease lasts. Every state that it
writes renews its lease. Partitions change hands while its consumer polls or commits. In between, a
heartbeat renews the lease in a thread of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from threading import RLock

from pylogtable.errors import (
    CommitConflictError,
    CommitUnknownError,
    LogTableError,
    TopicNotFoundError,
)
from pylogtable.format.group_model import GroupChange, GroupMember, GroupOffer, GroupState
from pylogtable.groups.group import Group, committed_offsets
from pylogtable.groups.heart import Heart
from pylogtable.groups.heartbeat_plan import Act, Beat, is_due, plan_beat
from pylogtable.groups.member import LONGEST_PAUSE_SECONDS, Revoke
from pylogtable.groups.membership_plan import (
    assign,
    check_member,
    check_tenures,
    heartbeat,
    join,
    leave,
    member_id,
    owned,
    plan_offer,
    renew,
    tenures,
)
from pylogtable.log.group_log import GroupPlan, MakeOffer
from pylogtable.operation import new_operation

NO_OFFSETS: Mapping[int, int] = {}

_log = logging.getLogger(__name__)


class DynamicMember:
    """A member with a lease. It gets a new id each time it joins, so that it is never confused with
    another member of the same name, or with itself before it lost its lease.

    It reads the group's state every tenth of its lease. It writes one when a third of the lease has
    passed, or when there are partitions to take or to give up. `beat` renews the lease as well, and
    runs in the thread of `heart`. So whatever changes the group's state holds the lock.

    If `is_heard`, the program is told before partitions are given up. So a commit gives up none.
    """

    def __init__(
        self, group: Group, name: str, lease_ms: int, heart: Heart, *, is_heard: bool = False
    ) -> None:
        self._group = group
        self._name = name
        self._lease_ms = lease_ms
        self._heart = heart
        self._is_heard = is_heard
        self._runtime = group._log.runtime
        self._process = self._runtime.process_id()
        self._lock = RLock()
        self._state: GroupState | None = None
        self._looked_at_ms: int | None = None  # None: look at the group's state at once
        #: The number of the last state in which the member has what it can have.
        self._settled_in = -1
        self._partition_count = 0
        self.longest_pause_seconds = min(LONGEST_PAUSE_SECONDS, lease_ms / 10_000)
        self.look_seconds = lease_ms / 10_000
        self.member_id: str | None = None
        self._tenures: dict[int, int] = {}
        self._offered_on_ms = -1  # the lease of the last offer
        self._is_beating = False
        #: True after a heartbeat was refused: the next poll or commit finds out why.
        self._is_refused = False
        self._was_idle = False

    @property
    def tenures(self) -> Mapping[int, int]:
        return self._tenures

    @property
    def has_full_share(self) -> bool:
        state, member = self._state, self.member_id
        if state is None or member is None:
            return False
        by_name = {name: held.owned for name, held in state.members.items()}
        share = assign(by_name, self._partition_count)[member]
        return set(share) <= set(by_name[member])

    def assigned(self, partition_count: int, revoke: Revoke | None = None) -> Mapping[int, int]:
        self._note_work()
        if partition_count != self._partition_count:
            self._partition_count = partition_count
            self._looked_at_ms, self._settled_in = None, -1  # there may be new partitions to take
        if self.member_id is not None:
            self._renew(revoke)
        if self.member_id is None:
            with self._lock:
                self._join()
            self._heart.add(self)
        return self._tenures

    @property
    def needs_store(self) -> bool:
        held = self._held()
        return held is None or self._is_due(held) or not self._has_looked()

    def prepare(self, partition_count: int) -> None:
        if self.member_id is None:
            self.assigned(partition_count)
        elif not self._is_beating:
            with self._lock, suppress(CommitConflictError):
                self._freshen()

    def committed(self) -> Mapping[int, int]:
        return committed_offsets(self._state)

    def newest_committed(self) -> Mapping[int, int]:
        with self._lock:
            return committed_offsets(self._group._group_log.newest())

    def is_lease_valid(self) -> bool:
        held = self._held()
        return held is not None and held.is_live(self._now())

    def commit(self, offsets: Mapping[int, int], metadata: str, read: Mapping[int, int]) -> None:
        self._note_work()
        with self._lock:
            member = self.member_id
            if member is None:
                raise CommitConflictError(self._why_no_member())
            check_tenures(self._state, member, offsets, self._tenures, read)

            def plan(state: GroupState | None, now_ms: int) -> GroupChange:
                make = self._renewed if self._is_heard else self._shared
                return make(state, member, now_ms, offsets, metadata)

            def offer(state: GroupState, now_ms: int) -> GroupOffer:
                made = plan_offer(state, member, now_ms, self._lease_ms, offsets, metadata)
                self._offered_on_ms = made.lease_before_ms
                return made

            self._change(member, plan, offsets, offer)

    def leave(self, offsets: Mapping[int, int]) -> None:
        self._heart.discard(self)
        self._note_work()
        with self._lock:
            member, self.member_id = self.member_id, None
            if member is None:
                return
            try:
                self._group._log.latest()
            except TopicNotFoundError:
                return  # the group was deleted with its topic
            self._leave(member, offsets)

    def beat(self) -> float:
        """Renew the lease if it is time, or leave the group if the program has neither polled nor
        committed for too long. Returns how many seconds to wait for the next beat. The heart calls
        it in its thread."""
        beat = self._plan_beat()
        if beat.act is Act.WAIT:
            return beat.wait_seconds
        with self._lock:
            # A poll or a commit may have renewed the lease meanwhile.
            beat, member = self._plan_beat(), self.member_id
            if beat.act is not Act.WAIT and member is not None:
                self._is_beating = True
                try:
                    # A store that is silent must not hold up the program's own requests for long.
                    most = min(beat.wait_seconds, self._group._log.store.limits.reply_seconds)
                    with new_operation(most):
                        self._beat(beat.act, member)
                finally:
                    self._is_beating = False
        beat = self._plan_beat()
        return beat.wait_seconds if beat.act is Act.WAIT else self._lease_ms / 10_000

    def _beat(self, act: Act, member: str) -> None:
        if act is Act.LEAVE:
            self.member_id = self._state = None
            self._was_idle = True
            self._leave(member, NO_OFFSETS)
            return
        try:
            self._put(member, lambda state, now_ms: self._renewed(state, member, now_ms))
        except (CommitConflictError, TopicNotFoundError):
            self._is_refused, self._looked_at_ms = True, None
        except LogTableError:
            # It is tried again. If the lease ends before that, a poll or a commit tells why.
            _log.debug("member %s could not renew its lease", member, exc_info=True)

    def _plan_beat(self) -> Beat:
        held = None if self._is_refused else self._held()
        return plan_beat(
            self._now(),
            None if held is None else held.lease_until_ms,
            self._lease_ms,
            self._heart.idle_ms,
            max(self._heart.most_idle_ms, self._lease_ms),
        )

    def _leave(self, member: str, offsets: Mapping[int, int]) -> None:
        self._group._group_log.change(lambda state, now_ms: leave(state, member, now_ms, offsets))

    def _note_work(self) -> None:
        """The program is at work. In a forked process this is another member, without a place in
        the group yet: the place is its parent's, whose thread may hold the lock."""
        process = self._runtime.process_id()
        if process != self._process:
            self._process, self._lock = process, RLock()
            self.member_id = self._state = None
            self._is_beating = False
        self._heart.touch()

    def _held(self) -> GroupMember | None:
        """The member's entry in the last state that it knows."""
        state, member = self._state, self.member_id
        return None if state is None or member is None else state.members.get(member)

    def _why_no_member(self) -> str:
        name = self._group.name
        said = f"this consumer is not a member of group {name!r}. Nothing was committed."
        if not self._was_idle:
            return f"{said} Call poll() to join, and commit what it returns"
        return (
            f"{said} The program had neither polled nor committed for "
            f"{self._heart.most_idle_ms / 1000:g} s (max_poll_interval_ms), so its heartbeat left "
            "the group. poll() joins again, from the committed positions. Poll fewer records at a "
            "time (max_records), or use a longer max_poll_interval_ms"
        )

    def _shared(
        self,
        state: GroupState | None,
        member: str,
        now_ms: int,
        offsets: Mapping[int, int] = NO_OFFSETS,
        metadata: str = "",
        giving: Collection[int] | None = None,
    ) -> GroupChange:
        """A new lease, and the member's share of the partitions."""
        return heartbeat(
            state,
            member,
            now_ms,
            self._lease_ms,
            self._partition_count,
            offsets,
            metadata,
            self._offered_on_ms,
            giving,
        )

    def _renewed(
        self,
        state: GroupState | None,
        member: str,
        now_ms: int,
        offsets: Mapping[int, int] = NO_OFFSETS,
        metadata: str = "",
    ) -> GroupChange:
        """A new lease, and the partitions that the member has."""
        return renew(state, member, now_ms, self._lease_ms, offsets, metadata, self._offered_on_ms)

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
        self._was_idle = False

    def _renew(self, revoke: Revoke | None) -> None:
        if self._is_beating and self.is_lease_valid():
            return  # the heartbeat waits for the store, and this need not
        with self._lock, suppress(CommitConflictError):  # `assigned` joins again
            self._freshen()
        giving = self._to_give()
        if giving is None:
            return
        if giving and revoke is not None:
            revoke(giving)
        with self._lock, suppress(CommitConflictError):
            if (member := self.member_id) is not None:
                exactly = giving if self._is_heard else None
                self._change(
                    member,
                    lambda state, now_ms: self._shared(state, member, now_ms, giving=exactly),
                )

    def _freshen(self) -> None:
        """Renew the lease if it is time, or look at the newest state if the last look was a while
        ago. Who is not a member any more notices it here."""
        member, held = self.member_id, self._held()
        if member is None or held is None:
            return
        if self._is_due(held):
            make = self._renewed if self._is_heard else self._shared
            self._change(member, lambda state, now_ms: make(state, member, now_ms))
        elif not self._has_looked():

            def look(state: GroupState | None, now_ms: int) -> None:
                check_member(state, member, now_ms)

            self._change(member, look)
            self._settled_in = -1  # a lease may have run out since

    def _is_due(self, held: GroupMember) -> bool:
        return is_due(self._now(), held.lease_until_ms, self._lease_ms)

    def _has_looked(self) -> bool:
        """True if the last look at the group was a short while ago."""
        looked_at_ms = self._looked_at_ms
        return looked_at_ms is not None and 0 <= self._now() - looked_at_ms < self._lease_ms // 10

    def _to_give(self) -> tuple[int, ...] | None:
        """The partitions to give up, by the state that the member knows. None if there is nothing
        to give and nothing to take."""
        state, member = self._state, self.member_id
        if state is None or member is None or state.number == self._settled_in:
            return None
        have = wanted = owned(state, member)
        with suppress(CommitConflictError):  # the lease is over, which the next look notices
            wanted = owned(self._shared(state, member, self._now()), member)
        if wanted == have:
            self._settled_in = state.number
            return None
        return tuple(number for number in have if number not in wanted)

    def _change(
        self,
        member: str,
        plan: GroupPlan,
        offsets: Mapping[int, int] = NO_OFFSETS,
        offer: MakeOffer | None = None,
    ) -> None:
        """Write a state, unless the topic is gone. After a refused commit, or one whose outcome is
        unknown, the member considers itself no longer in the group."""
        try:
            self._put(member, plan, offsets, offer)
        except (CommitConflictError, CommitUnknownError):
            self.member_id = self._state = None
            raise

    def _put(
        self,
        member: str,
        plan: GroupPlan,
        offsets: Mapping[int, int] = NO_OFFSETS,
        offer: MakeOffer | None = None,
    ) -> None:
        """Write a state, and remember it.

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

        state = self._group._group_log.change(giving_up, offer)
        assert state is not None
        self._state = state
        self._tenures = tenures(held, state, member)
        self._looked_at_ms = self._now()
        self._is_refused = False

    def _now(self) -> int:
        return self._runtime.clock()
