"""Holds the newest known state of a consumer group, and changes it by putting the next state.

A change is planned on the known state first, without asking the store for a newer one. If there is
a newer one, the put fails, or it reuses a number that was cleaned up, which a check after the put
detects [GRP-6]. In both cases the change is planned again. The check is not needed if the known
state was the newest shortly before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from pylogtable.errors import CommitUnknownError, CorruptTopicError, LogTableError, StorageError
from pylogtable.format.group_model import GroupChange, GroupState
from pylogtable.format.json_codec import decode_group, decode_own, encode
from pylogtable.log.commit_loop import change_until_landed, put_numbered
from pylogtable.log.group_objects import GroupObjects, GroupTip
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore

#: Plans a change. The arguments are the newest state (None if there is none) and the time in
#: milliseconds. The result is None if there is nothing to do.
GroupPlan = Callable[[GroupState | None, int], GroupChange | None]


class GroupLog:
    """The newest known state of one group in one topic. It is bound to the topic's id."""

    def __init__(self, store: ObjectStore, runtime: Runtime, group: str, topic_id: str) -> None:
        self.runtime = runtime
        self._store = store
        self._group = group
        self._topic_id = topic_id
        self._objects = GroupObjects(store, group, topic_id)
        self._tip: GroupTip | None = None

    def newest(self) -> GroupState | None:
        """The newest state in the store."""
        return self._refresh().state

    def change(self, plan: GroupPlan) -> GroupState | None:
        """Plan a change and commit it; returns the state after it.

        If `plan` raises or returns None on the newest state, nothing is committed. A plan may be
        called several times, so it must depend on its arguments alone.
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
        return change_until_landed(first, attempt, self._refresh, self.runtime).state

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
        before_put_ms = self._store.last_reply_ms
        is_ours = put_numbered(
            lambda: self._objects.create(number, data), read_commit_id, unknown, self.runtime
        )
        if not is_ours:
            return None
        if not self._is_next(tip, unknown):
            self._objects.discard(state)
            return None
        self._tip = after = GroupTip(state, state, before_put_ms)
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
