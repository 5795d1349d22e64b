"""The newest known state of one consumer group, and the loop that changes it.

As for the manifest: a change is planned on the newest state, put as the next number, and planned
again if another got there first. It is planned on what is known at first, without a look: if that
is not the newest, the put loses or turns out to stand among numbers that were cleaned up [GRP-6].
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pylogtable.errors import (
    CommitUnknownError,
    CorruptTopicError,
    LogTableError,
    StorageError,
)
from pylogtable.format.codec import decode_group, encode
from pylogtable.format.model import GroupChange, GroupState
from pylogtable.log.group_objects import CLEAN_EVERY, GroupObjects, Tip
from pylogtable.log.head import DOUBT_PAUSE, LOST_RACE_PAUSE, put
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

#: Decides on the newest state, None if there is none, and the time; None is "nothing to do".
GroupPlan = Callable[[GroupState | None, int], GroupChange | None]


class GroupHead:
    """The states of one group in one topic, which it stays bound to by its id."""

    def __init__(self, store: ObjectStore, runtime: Runtime, group: str, topic_id: str) -> None:
        self.runtime = runtime
        self._group = group
        self._topic_id = topic_id
        self._objects = GroupObjects(store, group, topic_id)
        self._tip: Tip | None = None

    def newest(self) -> GroupState | None:
        """The newest state in the store."""
        return self._refresh().state

    def change(self, plan: GroupPlan) -> GroupState | None:
        """Plan and commit until it lands, and give the state after it. A plan that returns None or
        raises ends the loop once it has seen the newest state: then nothing was committed. A plan
        may be asked several times, so it must depend on its arguments alone."""
        commit_id = self.runtime.new_id()
        known = self._tip
        tip = self._refresh() if known is None else known
        is_fresh = known is None
        attempt = 0
        while True:
            now_ms = self.runtime.clock()
            decided = None
            try:
                decided = plan(tip.state, now_ms)
            except LogTableError:
                if is_fresh:
                    raise
            if decided is None and is_fresh:
                return tip.state
            if decided is not None:
                state = self._attempt(tip, decided, commit_id, now_ms)
                if state is not None:
                    return state
                self.runtime.back_off(attempt, longest_seconds=LOST_RACE_PAUSE)
                attempt += 1
            tip = self._refresh()
            is_fresh = True

    def _attempt(
        self, tip: Tip, change: GroupChange, commit_id: str, now_ms: int
    ) -> GroupState | None:
        """Put the change as the state after `tip`; None is a lost race. What does not decode is
        found before it is put."""
        state = GroupState(
            **msgspec.structs.asdict(change),
            number=tip.next_number,
            commit_id=commit_id,
            topic_id=self._topic_id,
            committed_at_ms=max(now_ms, tip.newest.committed_at_ms if tip.newest else 0),
        )
        state = decode_group(encode(state), self._group, state.number)
        doubt = CommitUnknownError(commit_id, state.number, self._group)

        def id_found() -> str | None:
            winner = self._objects.read(state.number)
            return None if winner is None else winner.commit_id

        if not put(lambda: self._objects.create(state), id_found, doubt, self.runtime):
            return None
        if not self._is_next(tip, doubt):
            self._objects.discard(state)
            return None
        self._tip = Tip(state, state)
        if state.number % CLEAN_EVERY == 0:
            self._objects.clean(state.number)
        return state

    def _is_next(self, before: Tip, doubt: CommitUnknownError) -> bool:
        """The state is in the store: not to know whether it counts is not to know the outcome."""
        deadline = self.runtime.monotonic() + self.runtime.patience_seconds
        attempt = 0
        while True:
            try:
                return self._objects.is_next(before)
            except CorruptTopicError as error:
                raise doubt from error
            except StorageError as error:
                if self.runtime.monotonic() > deadline:
                    raise doubt from error
            self.runtime.back_off(attempt, longest_seconds=DOUBT_PAUSE)
            attempt += 1

    def _refresh(self) -> Tip:
        self._tip = tip = self._objects.newest(self._tip)
        return tip
