"""A consumer group of one topic: positions, lag, reset."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from pylogtable.arguments import check_text, is_whole
from pylogtable.errors import CommitUnknownError, InvalidRequestError, StorageError
from pylogtable.format.group_model import GroupChange, GroupState
from pylogtable.format.json_codec import check_writable
from pylogtable.format.paths import check_group_name
from pylogtable.format.snapshot import Snapshot
from pylogtable.groups.lag import measure_lag, positions_of
from pylogtable.groups.membership_plan import remove
from pylogtable.groups.positions_plan import (
    Move,
    Positions,
    Target,
    check_metadata,
    check_offsets,
    overtaken,
    plan_commit,
    plan_delete,
    plan_expiry,
    plan_moves,
    plan_reset,
    plan_reset_notice,
    seen_after_commit,
)
from pylogtable.groups.report import GroupDescription, GroupLag, ResetReport, group_rows
from pylogtable.log.group_log import GroupLog
from pylogtable.log.group_objects import load_groups
from pylogtable.log.topic_log import TopicLog
from pylogtable.operation import operations
from pylogtable.read.plan import choose_partitions
from pylogtable.read.position import Bound, locate, parse_bound
from pylogtable.read.view import View


@operations
class Group:
    """The positions of a consumer group in a topic: for each partition the next offset to read.
    `topic.group(name)` makes one. Use it to keep the positions of a reader of your own;
    `topic.consumer` does this for you.

    >>> group = topic.group("billing")
    >>> start = group.positions()             # {} at first
    >>> group.commit({0: 42})                 # offset 41 is processed

    A commit changes a partition only if its position is still what this object last read or wrote.
    If two readers saw the same position, one commit succeeds and the other raises
    `CommitConflictError`. Commits of different partitions do not disturb each other.
    """

    def __init__(self, name: str, topic_name: str, log: TopicLog) -> None:
        check_group_name(name)
        self.name = name
        self.topic_name = topic_name
        self._log = log
        self._group_log = GroupLog(log.store, log.runtime, name, log.known.topic_id)
        self._seen: Positions | None = None

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of topic {self.topic_name!r} at {self._log.store.url}>"

    def _repr_html_(self) -> str:
        return self.describe()._repr_html_()

    def positions(self) -> dict[int, int]:
        """The next offset to read, of each partition that has a committed position. Later commits
        of this object are checked against these positions."""
        self._log.latest()
        return _offsets(self._remember(self._group_log.newest()))

    def commit(self, offsets: Mapping[int, int], metadata: str = "") -> dict[int, int]:
        """Commit positions: the next offset to read, by partition. Returns all positions of the
        group. Later commits of other partitions are still checked against what `positions`
        returned for them.

        A position may go backward, and may lie outside the log. If the group has live members,
        only these may commit, through their consumers.
        """
        check_metadata(metadata)
        checked = self._checked(offsets)
        seen = self._remember(self._group_log.newest()) if self._seen is None else self._seen
        if not checked:
            return _offsets(seen)
        after = self._group_log.change(
            lambda state, now_ms: plan_commit(self.name, state, seen, checked, metadata, now_ms)
        )
        assert after is not None
        self._seen = seen_after_commit(seen, after, checked)
        return _offsets(after.positions)

    def lag(self) -> GroupLag:
        """How far the group is behind, by partition: in records, bytes and seconds. Use it for
        monitoring. Where the group has no position, everything in the log counts as unread, also if
        there is no such group. It does not change what later commits are checked against."""
        state = self._group_log.newest()
        view, now_ms = self._pinned(), self._log.runtime.clock()
        lags = measure_lag(self._log.store, view, positions_of(view, state), now_ms)
        return GroupLag(self.name, self.topic_name, lags)

    def describe(self) -> GroupDescription:
        """Position, lag and owner of every partition. Use it to see who reads what. It does not
        change what later commits are checked against."""
        state = self._group_log.newest()
        if state is None or state.deleted:
            known = ", ".join(load_groups(self._log.store, self._log.known.topic_id).names)
            raise InvalidRequestError(
                f"there is no group {self.name!r} in topic {self.topic_name!r}; its groups: "
                f"{known or 'none'}"
            )
        return describe_groups(self._log, self._pinned(), {self.name: state})

    def reset(
        self,
        to: Bound = None,
        *,
        shift_by: int | None = None,
        partitions: int | Sequence[int] | None = None,
        dry_run: bool = False,
    ) -> ResetReport:
        """Move the group's positions, in all partitions or some. Use it to read records again or to
        skip some. A group with live members is refused.

        `to` is a position, as in `Topic.read`, or a dict of positions by partition; or "current"
        (the committed position, or the end if there is none).

        Or `shift_by` moves each position by this many offsets, back if it is negative.

        A position outside the log becomes the log start or the end. A time after the last record
        becomes the end. Both give a warning. `dry_run=True` only reports the new positions.
        """
        self._writable()
        view = self._pinned()
        targets = self._targets(view, to, shift_by, partitions)
        state = self._group_log.newest()
        self._remember(state)
        moves = plan_moves(self.name, state, targets, view.snapshot)
        if dry_run:
            plan_reset(self.name, state, moves, self._log.runtime.clock())
        else:
            moves = self._beside_retention(self._move(targets, view.snapshot))
        for move in moves:
            if move.note:
                warnings.warn(
                    f"group {self.name!r}, partition {move.partition} of topic "
                    f"{self.topic_name!r}: {move.note}; its position is {move.new}",
                    stacklevel=3,
                )
        return ResetReport(self.name, self.topic_name, dry_run, tuple(moves))

    def delete(self) -> None:
        """Delete the group in this topic. A group with live members is refused."""
        self._writable()
        self._group_log.change(lambda state, now_ms: plan_delete(self.name, state, now_ms))
        self._seen = {}

    def _move(self, targets: Mapping[int, Target], snapshot: Snapshot) -> list[Move]:
        moves: list[Move] = []

        def plan(state: GroupState | None, now_ms: int) -> GroupChange:
            nonlocal moves
            moves = plan_moves(self.name, state, targets, snapshot)
            return plan_reset(self.name, state, moves, now_ms)

        self._remember(self._group_log.change(plan))
        return moves

    def _beside_retention(self, moves: list[Move]) -> list[Move]:
        """Make a retention that is under way notice these moves, or move on to the log start if it
        was faster [GRP-9]. The group is already reset, so a failure here is a warning."""
        try:
            snapshot, _ = self._log.change(lambda state: plan_reset_notice(state.snapshot, moves))
        except (StorageError, CommitUnknownError) as error:
            warnings.warn(
                f"group {self.name!r} of topic {self.topic_name!r} is reset, but a retention that "
                f"runs at this moment may not notice it: {error}",
                stacklevel=4,
            )
            return moves
        late = overtaken(moves, snapshot)
        if not late:
            return moves
        moved_on = {move.partition: move for move in self._move(late, snapshot)}
        return [
            move._replace(new=moved_on[move.partition].new, note=moved_on[move.partition].note)
            if move.partition in moved_on
            else move
            for move in moves
        ]

    def remove_member(self, name: str, *, dry_run: bool = False) -> list[str]:
        """Remove a dynamic member without waiting for its lease to end. Use it if a member is dead.
        Its partitions go to the others, which read again what it has not committed. A member
        that is alive after all cannot commit any more, and joins again.

        `name` is the member's id, as `describe` shows it, or the name that its consumer was given.
        Returns the ids of the removed members; `dry_run=True` only finds them.

        >>> topic.group("billing").remove_member("worker-7")
        ['worker-7-1f0c9a3e']
        """
        check_text("name", name)
        self._writable()
        removed: list[str] = []

        def plan(state: GroupState | None, now_ms: int) -> GroupChange | None:
            change = remove(state, self.name, name)
            removed[:] = sorted({} if state is None else state.members.keys() - change.members)
            return None if dry_run else change

        self._group_log.change(plan)
        return removed

    def _remember(self, state: GroupState | None) -> Positions:
        """Later commits are checked against the positions in this state [GRP-8]."""
        self._seen = {} if state is None else state.positions
        return self._seen

    def _checked(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """The offsets, if they may be committed. A topic that was looked at shortly before is not
        looked at again, unless somebody may have added a partition since."""
        known = self._log.recent
        if known is not None:
            check_writable(known.protocol)
            with suppress(InvalidRequestError):
                return check_offsets(offsets, known)
        return check_offsets(offsets, self._writable())

    def _writable(self) -> Snapshot:
        snapshot = self._log.latest()
        check_writable(snapshot.protocol)
        return snapshot

    def _pinned(self) -> View:
        log = self._log
        return View(self.topic_name, log.store, log.latest(), log.manifest, log.runtime.clock)

    def _targets(
        self,
        view: View,
        to: Bound,
        shift_by: int | None,
        partitions: int | Sequence[int] | None,
    ) -> dict[int, Target]:
        if (to is None) == (shift_by is None):
            raise InvalidRequestError("a reset needs either `to` or `shift_by`, not both")
        if isinstance(to, Mapping) and partitions is not None:
            raise InvalidRequestError(
                "`to` is a dict that names the partitions: leave `partitions` out"
            )
        chosen = choose_partitions(view.snapshot, partitions)
        if shift_by is not None:
            if not is_whole(shift_by):
                raise InvalidRequestError(f"shift_by={shift_by!r} is not a number of offsets")
            return dict.fromkeys(chosen, Target(shift=int(shift_by)))
        if isinstance(to, str) and to == "current":
            return dict.fromkeys(chosen, Target())
        found = locate(view, parse_bound(to, chosen))
        return {
            number: Target(at.nearest, note="there is no record at or after this time")
            if at.asked is None
            else Target(at.asked)
            for number, at in found.items()
        }


def describe_groups(
    log: TopicLog, view: View, states: Mapping[str, GroupState]
) -> GroupDescription:
    """Position, lag and owner of every partition of these groups."""
    now_ms = log.runtime.clock()
    return GroupDescription(
        tuple(
            row
            for name, state in states.items()
            for row in group_rows(
                name,
                view.name,
                state,
                measure_lag(log.store, view, positions_of(view, state), now_ms),
                state.live_members(now_ms),
            )
        )
    )


def expire_groups(
    log: TopicLog, older_than: timedelta | int, *, dry_run: bool, keep: Collection[str] = ()
) -> list[str]:
    """Delete the topic's groups that nobody has used for this long, but those to `keep`. Returns
    their names."""
    age_ms = _milliseconds(older_than)
    topic_id = log.latest().topic_id
    now_ms = log.runtime.clock()
    expired = [
        name
        for name, state in load_groups(log.store, topic_id).states.items()
        if name not in keep and plan_expiry(state, age_ms, now_ms) is not None
    ]

    def expire(name: str) -> bool:
        after = GroupLog(log.store, log.runtime, name, topic_id).change(
            lambda state, now_ms: plan_expiry(state, age_ms, now_ms)
        )
        return after is not None and after.deleted

    return [name for name in expired if dry_run or expire(name)]


def _milliseconds(duration: timedelta | int) -> int:
    ms = duration // timedelta(milliseconds=1) if isinstance(duration, timedelta) else duration
    if isinstance(ms, bool) or not isinstance(ms, int) or ms < 0:
        raise InvalidRequestError(
            f"{duration!r} is not an age: give a timedelta or a number of milliseconds, 0 or more"
        )
    return ms


def committed_offsets(state: GroupState | None) -> dict[int, int]:
    """The committed positions in a group's state."""
    return {} if state is None else _offsets(state.positions)


def _offsets(positions: Positions) -> dict[int, int]:
    return {number: entry.offset for number, entry in sorted(positions.items())}
