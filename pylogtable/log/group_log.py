"""Holds the newest known state of a consumer group, and changes it by putting the next state.

A change is planned on the known state first, without asking the store for a newer one. If there is
a newer one, the put fails, or it reuses a number that was cleaned up, which a check after the put
detects [GRP-6]. In both cases the change is planned again. The check is not needed if the known
state was the newest shortly before.

Where a request takes a round trip, many members would race each other into seconds. So who has met
others looks first. If there is a crowd, a member offers its commit, and the first in line commits
for all [GRP-16]. No member depends on another one: if nobody takes its offer along, it commits
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from pylogtable.errors import CommitUnknownError, CorruptTopicError, LogTableError, StorageError
from pylogtable.format.group_model import GroupChange, GroupOffer, GroupState
from pylogtable.format.group_offer import name_of
from pylogtable.format.json_codec import decode_group, decode_own, encode
from pylogtable.log.commit_events import (
    log_group,
    log_lost_races,
    note_lost_race,
    place_of,
)
from pylogtable.log.commit_loop import change_until_landed, put_numbered
from pylogtable.log.group_objects import GroupObjects, GroupTip, Sight
from pylogtable.log.offers_plan import has_landed, is_open, may_land, take, withdraw
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

#: Plans a change. The arguments are the newest state (None if there is none) and the time in
#: milliseconds. The result is None if there is nothing to do.
GroupPlan = Callable[[GroupState | None, int], GroupChange | None]
#: What a member would offer, planned on the last state that it knows [GRP-16].
MakeOffer = Callable[[GroupState, int], GroupOffer]

#: How often a member looks whether its offer was taken, before it commits itself.
PATIENCE_LOOKS = 3


class GroupLog:
    """The newest known state of one group in one topic. It is bound to the topic's id."""

    def __init__(self, store: ObjectStore, runtime: Runtime, group: str, topic_id: str) -> None:
        self.runtime = runtime
        self._store = store
        self._group = group
        self._topic_id = topic_id
        self._objects = GroupObjects(store, group, topic_id)
        self._tip: GroupTip | None = None
        #: Whether others have written states since the one before the last change.
        self._has_company = False
        #: Whether the last change met offers, or lost a race.
        self._is_crowded = False

    def newest(self) -> GroupState | None:
        """The newest state in the store."""
        return self._refresh().state

    def change(self, plan: GroupPlan, offer: MakeOffer | None = None) -> GroupState | None:
        """Plan a change and commit it; returns the state after it.

        If `plan` raises or returns None on the newest state, nothing is committed. A plan may be
        called several times, so it must depend on its arguments alone. With `offer`, others may
        commit the change instead; then `plan` alone is not in the state.
        """
        commit_id = self.runtime.new_id()
        remembered = self._tip

        def attempt(tip: GroupTip) -> GroupTip | None:
            now_ms = self.runtime.clock()
            may_be_outdated = tip is remembered
            try:
                change = plan(tip.state, now_ms)
            except LogTableError:
                if may_be_outdated:
                    return None
                raise
            if change is None:
                return None if may_be_outdated else tip
            return self._attempt(tip, change, commit_id, now_ms)

        first = self._refresh() if remembered is None else remembered
        if not self._store.is_remote:
            return change_until_landed(first, attempt, self._refresh, self.runtime).state
        landed = None if self._has_company else attempt(first)
        if landed is None:
            landed = self._change_in_company(plan, offer, commit_id)
        return landed.state

    def _change_in_company(
        self, plan: GroupPlan, offer: MakeOffer | None, commit_id: str
    ) -> GroupTip:
        """Commit a change beside others: look first, and take their offers along."""
        offered = None if offer is None else _Offered.make(self._tip, plan, offer, self.runtime)
        try:
            return self._until_landed(plan, offered, commit_id)
        except StorageError as error:
            if offered is None or not offered.is_put or self._tip is None:
                raise
            # Somebody may take the offer along, at any time.
            number = self._tip.next_number
            raise CommitUnknownError(commit_id, number, self._group) from error
        finally:
            if offered is not None and offered.is_put:
                self.runtime.later(partial(self._objects.remove_offer, offered.name))

    def _until_landed(self, plan: GroupPlan, offered: _Offered | None, commit_id: str) -> GroupTip:
        looks, is_crowded = 0, self._is_crowded
        self._is_crowded = self._has_company = False
        while True:
            began = self.runtime.monotonic()
            tip, offers = self._look(offered if is_crowded else None)
            took = self.runtime.monotonic() - began
            landed = None if offered is None else self._landed(offered, tip)
            if landed is not None:
                return landed
            now_ms = self.runtime.clock()
            waiting = sorted(
                name for name, each in offers.items() if is_open(each, tip.state, now_ms)
            )
            self._is_crowded = is_crowded = is_crowded or bool(waiting)
            if (
                offered is not None
                and is_open(offered.offer, tip.state, now_ms)
                and min(waiting, default=offered.name) < offered.name
                and looks < PATIENCE_LOOKS
            ):
                # The first in line commits for all.
                if offered.is_put:
                    looks += 1
                    self.runtime.pause(took * (0.2 + 0.6 * self.runtime.chance()))
                continue
            try:
                change = plan(tip.state, now_ms)
            except LogTableError:
                if self._is_withdrawn(offered, tip, now_ms):
                    raise
                continue
            if change is None:
                return tip
            others = [offers[name] for name in waiting if offered is None or name != offered.name]
            after = self._attempt(tip, take(change, others, now_ms), commit_id, now_ms)
            if after is not None:
                return after
            looks, self._is_crowded, is_crowded = 0, True, True
            self.runtime.pause(took * 0.5 * self.runtime.chance())

    def _is_withdrawn(self, offered: _Offered | None, tip: GroupTip, now_ms: int) -> bool:
        """True if the member's offer is not in a state after `tip`, and never will be. Others may
        have taken it along since the look, while the member was asleep [GRP-16]."""
        if offered is None or not offered.is_put or tip.state is None:
            return True
        if not may_land(offered.offer, tip.state):
            return True
        change = withdraw(offered.offer, tip.state)
        return self._attempt(tip, change, self.runtime.new_id(), now_ms) is not None

    def _look(self, offered: _Offered | None) -> Sight:
        """The newest state and the offers. Puts the member's own offer with the first look."""
        known = self._tip or GroupTip()
        name = None if offered is None or offered.is_put else offered.name
        if offered is not None:
            offered.is_put = True
        sight = self._objects.look(known, offering=name, reads_next=name is None)
        self._tip = sight.tip
        if sight.tip.next_number > known.next_number:
            self._has_company = True
        return sight

    def _landed(self, offered: _Offered, tip: GroupTip) -> GroupTip | None:
        """The state with the member's offer, if there is one. If the member is not in the newest
        state, the offer may be in one before it."""
        if has_landed(offered.offer, tip.state):
            return tip
        if not offered.is_put or tip.state is None or offered.offer.member in tip.state.members:
            return None
        for number in range(offered.planned_on + 1, tip.state.number):
            state = self._objects.read(number)
            if state is None:
                raise StorageError(
                    f"state {number} of group {self._group!r} is gone, which may have the commit"
                )
            if has_landed(offered.offer, state):
                return GroupTip(tip.newest, state, tip.confirmed_ms)
        return None

    def _attempt(
        self, tip: GroupTip, change: GroupChange, commit_id: str, now_ms: int
    ) -> GroupTip | None:
        """Put the change as the state after `tip`. Returns None after a lost race. The state is
        decoded before it is put, because a broken state could never be removed."""
        number = tip.next_number
        state = GroupState(
            **msgspec.structs.asdict(change),
            number=number,
            commit_id=commit_id,
            topic_id=self._topic_id,
            committed_at_ms=max(now_ms, tip.newest.committed_at_ms if tip.newest else 0),
        )
        data = encode(state)
        state = decode_own(decode_group, data, self._group, number)

        def read_commit_id() -> str | None:
            winner = self._objects.read(number)
            return None if winner is None else winner.commit_id

        unknown = CommitUnknownError(commit_id, number, self._group)
        before_put_ms, began = self._store.last_reply_ms, self.runtime.monotonic()
        is_ours = put_numbered(
            lambda: self._objects.create(number, data), read_commit_id, unknown, self.runtime
        )
        if not is_ours:
            note_lost_race(began)
            return None
        if not self._is_next(tip, unknown):
            self._objects.discard(state)
            return None
        self._tip = after = GroupTip(state, state, before_put_ms)
        log_group(tip.state, state, self._store.url, self._group)
        log_lost_races(place_of(self._store.url), f"{state.operation} of a group", self.runtime)
        if number and number % self._store.limits.group_clean_every == 0:
            self._clean(number)
        return after

    def _clean(self, newest: int) -> None:
        """Remove old states. They go one by one, so the committer of a remote store does not wait
        for that."""
        if self._store.is_remote:
            self.runtime.later(partial(self._objects.clean, newest))
        else:
            self._objects.clean(newest)

    def _is_next(self, before: GroupTip, unknown: CommitUnknownError) -> bool:
        """True if the state that was just put is the next one after `before` [GRP-6]. It is already
        in the store, so if this check fails, the outcome of the commit is unknown."""
        failure: StorageError | None = None
        for _ in self.runtime.patient_attempts():
            try:
                return self._objects.is_next(before)
            except CorruptTopicError as error:  # noqa: PERF203 (a retry needs it)
                raise unknown from error
            except StorageError as error:
                failure = error
        raise unknown from failure

    def _refresh(self) -> GroupTip:
        self._tip = tip = self._objects.newest(self._tip)
        return tip


@dataclass
class _Offered:
    """The offer of a member that commits. `planned_on` is the number of the state it was planned
    on. `is_put` is true from when it may be in the store."""

    offer: GroupOffer
    name: str
    planned_on: int
    is_put: bool = False

    @classmethod
    def make(
        cls, tip: GroupTip | None, plan: GroupPlan, offer: MakeOffer, runtime: Runtime
    ) -> _Offered | None:
        """None if the member could not commit on the state that it knows, or the name of the offer
        would be too long."""
        if tip is None or tip.state is None:
            return None
        now_ms = runtime.clock()
        try:
            plan(tip.state, now_ms)
        except LogTableError:
            return None
        made = offer(tip.state, now_ms)
        name = name_of(made) if is_open(made, tip.state, now_ms) else None
        return None if name is None else cls(made, name, tip.state.number)
