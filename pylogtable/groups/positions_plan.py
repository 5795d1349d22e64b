"""Plans for the positions of a consumer group: commit, reset, deletion, expiry. Pure.

They are for groups without live members. As long as there are live members, only they may change
positions [GRP-8].

A reset and a retention that protects the group must not miss each other, though they write
different objects. So a reset that moves a position back also puts a commit into the topic, after
its own state [GRP-9]. A retention looks at groups after the state it plans on, in every attempt.
So either it planned on that commit and sees the reset, or it loses the race for a version and plans
again, or its own commit is the earlier one. Then the reset sees the new log start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pylogtable.arguments import check_mapping, is_whole
from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.format.group_model import (
    MAX_LEASE_MS,
    MAX_METADATA,
    GroupChange,
    GroupMember,
    GroupPosition,
    GroupState,
)
from pylogtable.format.model import Change
from pylogtable.format.snapshot import Snapshot
from pylogtable.presentation import Partition

#: Committed positions, by partition.
Positions = Mapping[int, GroupPosition]


class Move(NamedTuple):
    """Where a reset moves a partition. `old` is None if there was no position."""

    partition: Partition
    old: int | None
    new: int
    note: str = ""


class Target(NamedTuple):
    """Where a reset should move a partition, not yet compared with the log: to `offset`, or by
    `shift` from the committed position. If both are None, the committed position stays. `note` says
    how the offset was found, if that is not obvious."""

    offset: int | None = None
    shift: int | None = None
    note: str = ""


def check_offsets(offsets: Mapping[int, int], snapshot: Snapshot) -> dict[int, int]:
    """The offsets as plain numbers. Raises if an offset or a partition is not valid [GRP-4]."""
    check_mapping("offsets", offsets, "{0: 100}, the next offset to read by partition")
    checked: dict[int, int] = {}
    for partition, offset in offsets.items():
        snapshot.check_partition(partition)
        if not is_whole(offset):
            raise InvalidRequestError(
                f"{offset!r} is not a position of partition {partition}: give the next offset to "
                "read, a whole number"
            )
        if not 0 <= offset < 2**63:
            raise InvalidRequestError(
                f"the position of partition {partition} must be 0 to 2**63 - 1, not {offset}"
            )
        checked[int(partition)] = int(offset)
    return checked


def check_metadata(metadata: str) -> None:
    """Raise if the metadata of a commit is too long, or not a string."""
    if not isinstance(metadata, str):
        raise InvalidRequestError(f"metadata must be a string, not {metadata!r}")
    if len(metadata) > MAX_METADATA:
        raise InvalidRequestError(
            f"metadata has {len(metadata):,} characters; at most {MAX_METADATA:,} are kept"
        )


def plan_commit(
    group: str,
    state: GroupState | None,
    seen: Positions,
    offsets: Mapping[int, int],
    metadata: str,
    now_ms: int,
) -> GroupChange:
    """Commit positions. Raises if one of them is not as in `seen`: somebody else moved it
    [GRP-8]."""
    _refuse_while_active(group, state, now_ms, "commit positions")
    for partition in offsets:
        before, found = seen.get(partition), _entry(state, partition)
        if before != found:
            raise CommitConflictError(
                f"partition {partition} of group {group!r} was moved by another client: its "
                f"position was {_text(before)} and is {_text(found)} now. positions() shows where "
                "the group is; commit again from there. If several consumers read for this group, "
                'give each a name, such as member="worker-a": they share the partitions then. A '
                "consumer without one reads them all."
            )
    return next_state("commit", state, {}, offsets, metadata, now_ms)


def next_state(
    operation: str,
    state: GroupState | None,
    members: Mapping[str, GroupMember],
    offsets: Mapping[int, int],
    metadata: str,
    now_ms: int,
) -> GroupChange:
    """The state after this one, with these members, and with positions committed. Every commit
    ends here, of a member and of anyone else. If it drops members, one that returns must join
    again. The generation grows if there are other members [GRP-11]."""
    entries = {
        partition: GroupPosition(offset=offset, committed_at_ms=now_ms, metadata=metadata)
        for partition, offset in offsets.items()
    }
    before = GroupChange(operation=operation) if state is None else state
    return GroupChange(
        operation=operation,
        positions=dict(sorted({**before.positions, **entries}.items())),
        generation=before.generation + (members.keys() != before.members.keys()),
        members=dict(sorted(members.items())),
    )


def seen_after_commit(seen: Positions, state: GroupState, offsets: Iterable[int]) -> Positions:
    """The committer's view after its commit of these partitions [GRP-8]. What others have done to
    other partitions is not in it: the committer has not read it."""
    own = {partition: state.positions[partition] for partition in offsets}
    return {**seen, **own}


def plan_moves(
    group: str, state: GroupState | None, targets: Mapping[int, Target], snapshot: Snapshot
) -> list[Move]:
    """The moves of a reset. Targets outside of the log become its start or end [GRP-9]."""
    moves = []
    for partition, target in sorted(targets.items()):
        log = snapshot.partitions[partition]
        entry = _entry(state, partition)
        wanted, note = target.offset, target.note
        if target.shift is not None:
            if entry is None:
                raise InvalidRequestError(
                    f"partition {partition} has no position in group {group!r} to shift by "
                    f"{target.shift}: reset it to an offset, a time, 'earliest' or 'latest'"
                )
            wanted = entry.offset + target.shift
        elif wanted is None:
            wanted = log.end if entry is None else entry.offset
        new = min(max(wanted, log.log_start), log.end)
        if new != wanted:
            note = f"{wanted} is outside of [{log.log_start}, {log.end}]"
        moves.append(Move(partition, None if entry is None else entry.offset, new, note))
    return moves


def plan_reset(
    group: str, state: GroupState | None, moves: Iterable[Move], now_ms: int
) -> GroupChange:
    """Move positions as `plan_moves` says [GRP-9]."""
    _refuse_while_active(group, state, now_ms, "reset positions")
    offsets = {move.partition: move.new for move in moves}
    return next_state("reset", state, {}, offsets, "", now_ms)


def plan_reset_notice(snapshot: Snapshot, moves: Iterable[Move]) -> Change | None:
    """The commit that makes every retention under way notice a reset [GRP-9]. None if no position
    goes back, or nothing expires in this topic."""
    goes_back = any(move.old is not None and move.new < move.old for move in moves)
    return Change(operation="reset") if goes_back and snapshot.config.deletes else None


def overtaken(moves: Iterable[Move], snapshot: Snapshot) -> dict[int, Target]:
    """Where a reset has to move again, because the log start has passed it meanwhile [GRP-9]."""
    return {
        move.partition: Target(
            snapshot.partitions[move.partition].log_start,
            note=f"offset {move.new} was removed while the group was reset",
        )
        for move in moves
        if move.new < snapshot.partitions[move.partition].log_start
    }


def plan_delete(group: str, state: GroupState | None, now_ms: int) -> GroupChange:
    """Delete the group: its next state is empty [GRP-10]."""
    if state is None or state.deleted:
        raise InvalidRequestError(f"there is no group {group!r}")
    _refuse_while_active(group, state, now_ms, "delete the group")
    return _without_anything("delete", state)


def plan_expiry(state: GroupState | None, older_than_ms: int, now_ms: int) -> GroupChange | None:
    """Delete the group if it had no member and no commit for this long; None otherwise [GRP-10]."""
    if state is None or state.deleted:
        return None
    leases = [held.lease_until_ms for held in state.members.values()]
    believed = [until_ms for until_ms in leases if until_ms <= now_ms + MAX_LEASE_MS]  # [GRP-14]
    if now_ms - max(state.committed_at_ms, *believed, 0) < older_than_ms:
        return None
    return _without_anything("expire", state)


def unread_from(states: Iterable[GroupState], snapshot: Snapshot) -> dict[int, int]:
    """The first offset of each partition that at least one of these groups has not read [RET-1]. A
    group without a position has read nothing."""
    found: dict[int, int] = {}
    for state in states:
        for partition, log in enumerate(snapshot.partitions):
            entry = _entry(state, partition)
            position = log.log_start if entry is None else entry.offset
            found[partition] = min(position, found.get(partition, position))
    return found


def _refuse_while_active(group: str, state: GroupState | None, now_ms: int, doing: str) -> None:
    live = [] if state is None else state.live_members(now_ms)
    if live:
        raise InvalidRequestError(
            f"group {group!r} has {len(live)} active member(s) ({', '.join(live[:3])}"
            f"{', …' if len(live) > 3 else ''}): only they can {doing}. Close them, wait until "
            "their leases run out, or remove dead ones with `pylogtable groups remove-member`, in "
            "Python remove_member()."
        )


def _without_anything(operation: str, state: GroupState) -> GroupChange:
    generation = state.generation + bool(state.members)
    return GroupChange(operation=operation, generation=generation, deleted=True)


def _entry(state: GroupState | None, partition: int) -> GroupPosition | None:
    return None if state is None else state.positions.get(partition)


def _text(entry: GroupPosition | None) -> str:
    return "none" if entry is None else str(entry.offset)
