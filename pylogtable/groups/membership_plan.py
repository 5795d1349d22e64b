"""Plans for the members of a consumer group: who owns which partitions, who may commit. Pure.

Every plan returns the whole next state of the group. It is put if absent, under the number after
the state it was planned on. So of two plans on the same state one wins and the other is planned
again, and the newest state alone says who owns what [GRP-11], [GRP-12].

A partition moves from one member to another in two steps. First its owner gives it up, or the
owner's lease runs out and somebody removes that member. Then the other member takes it. So two
members that obey their last known state and their lease never own the same partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.format.group_model import GroupChange, GroupMember, GroupOffer, GroupState
from pylogtable.groups.positions_plan import next_state

Members = Mapping[str, GroupMember]


def join(
    state: GroupState | None, member: str, now_ms: int, lease_ms: int, partitions: int
) -> GroupChange:
    """Join the group, and take the free partitions of the member's share."""
    members = _live(state, now_ms)
    mine = members.get(member, GroupMember(lease_until_ms=0))
    renewed = _renewed(members, member, mine, now_ms + lease_ms, partitions)
    return next_state("join", state, renewed, {}, "", now_ms)


def heartbeat(
    state: GroupState | None,
    member: str,
    now_ms: int,
    lease_ms: int,
    partitions: int,
    offsets: Mapping[int, int] | None = None,
    metadata: str = "",
    offered_on_ms: int = -1,
    giving: Collection[int] | None = None,
) -> GroupChange:
    """Renew the lease: remove members whose lease ran out, give up partitions beyond the member's
    share, and take free partitions within it. `offsets` are committed in the same step [GRP-13].
    The lease ends after `offered_on_ms`, the lease on which the member made its last offer: if that
    is still open, nobody can take it after this state [GRP-16].

    With `giving`, the member gives up these partitions, and no others: it had to be told first."""
    mine = _membership(state, member, now_ms)
    _check_owned(state, member, mine, offsets or {})
    lease_until_ms = max(now_ms + lease_ms, offered_on_ms + 1)
    members = _renewed(_live(state, now_ms), member, mine, lease_until_ms, partitions, giving)
    operation = "commit" if offsets else "heartbeat"
    return next_state(operation, state, members, offsets or {}, metadata, now_ms)


def renew(
    state: GroupState | None,
    member: str,
    now_ms: int,
    lease_ms: int,
    offsets: Mapping[int, int] | None = None,
    metadata: str = "",
    offered_on_ms: int = -1,
) -> GroupChange:
    """Renew the lease as `heartbeat` does, but who owns what stays."""
    mine = _membership(state, member, now_ms)
    _check_owned(state, member, mine, offsets or {})
    until_ms = max(now_ms + lease_ms, offered_on_ms + 1, mine.lease_until_ms)
    renewed = GroupMember(lease_until_ms=until_ms, owned=mine.owned)
    members = {**({} if state is None else state.members), member: renewed}
    operation = "commit" if offsets else "heartbeat"
    return next_state(operation, state, members, offsets or {}, metadata, now_ms)


def check_member(state: GroupState | None, member: str, now_ms: int) -> None:
    """Raise if this is not a member, or if its lease ran out."""
    _membership(state, member, now_ms)


def plan_offer(
    state: GroupState,
    member: str,
    now_ms: int,
    lease_ms: int,
    offsets: Mapping[int, int],
    metadata: str,
) -> GroupOffer:
    """The same commit as an offer to others: the partitions stay as they are [GRP-16]."""
    held = state.members[member]
    return GroupOffer(
        member=member,
        lease_before_ms=held.lease_until_ms,
        lease_until_ms=max(now_ms + lease_ms, held.lease_until_ms + 1),
        committed_at_ms=now_ms,
        offsets=dict(sorted(offsets.items())),
        metadata=metadata,
    )


def leave(
    state: GroupState | None,
    member: str,
    now_ms: int,
    offsets: Mapping[int, int] | None = None,
    metadata: str = "",
) -> GroupChange | None:
    """Leave the group; None if it is not a member. `offsets` are committed in the same step."""
    if offsets:
        _check_owned(state, member, _membership(state, member, now_ms), offsets)
    if state is None or member not in state.members:
        return None
    members = {name: held for name, held in _live(state, now_ms).items() if name != member}
    return next_state("leave", state, members, offsets or {}, metadata, now_ms)


def remove(state: GroupState | None, group: str, name: str) -> GroupChange:
    """Remove a member, whatever its lease says [GRP-15]. `name` is its id, or the name it was
    given: then all members of that name go. Their partitions are free."""
    members = {} if state is None else state.members
    gone = {member for member in members if is_named(member, name)}
    if not gone:
        raise InvalidRequestError(
            f"group {group!r} has no member {name!r}; its members: "
            f"{', '.join(sorted(members)) or 'none'}"
        )
    left = {member: held for member, held in members.items() if member not in gone}
    return next_state("remove", state, left, {}, "", 0)


def tenures(held: Mapping[int, int], state: GroupState, member: str) -> dict[int, int]:
    """For each partition that the member owns in this state: the number of the state that gave it
    to the member. `held` is the same by the state that the member wrote before. Only states of the
    member itself give up or take its partitions [GRP-12]. So if it looks at each of them, a
    partition that it lost and got back has another number, whatever happened in between."""
    return {partition: held.get(partition, state.number) for partition in owned(state, member)}


def owned(change: GroupChange | None, member: str) -> tuple[int, ...]:
    """The member's partitions in this state. None if it is not in the group."""
    held = None if change is None else change.members.get(member)
    return () if held is None else held.owned


def check_tenures(
    state: GroupState | None,
    member: str,
    offsets: Iterable[int],
    held: Mapping[int, int],
    read: Mapping[int, int],
) -> None:
    """Raise if a position is not of the time in which the member owns its partition [GRP-13].
    `held` has the member's tenures by its last state, and `read` those by which it has read."""
    for partition in offsets:
        if partition not in held:
            raise _not_owned(state, member, partition)
        if read.get(partition) != held[partition]:
            raise CommitConflictError(
                f"member {member!r} took partition {partition} after its last poll(), and others "
                "may have moved its position before that. Nothing was committed; poll() begins at "
                "the committed position"
            )


def member_id(name: str, unique: str) -> str:
    """The id of a member of this name. `unique` makes it differ from all others [GRP-11]."""
    return f"{name}-{unique[-8:]}"


def is_named(member: str, name: str) -> bool:
    """True if this is the member with the id `name`, or one of that name."""
    return member in (name, member_id(name, member))


def assign(owned: Mapping[str, Iterable[int]], partitions: int) -> dict[str, tuple[int, ...]]:
    """The share of each member. Shares differ by at most one partition, and a member keeps as many
    of its partitions as it can. All members compute the same shares from the same state, and the
    shares stay the same while members give up and take partitions accordingly [GRP-12]."""
    names = sorted(owned)
    if not names:
        return {}
    held = {name: sorted(owned[name]) for name in names}
    # A member may not know of new partitions that others already own; they still count.
    known = set(range(partitions)).union(*held.values())
    least, more = divmod(len(known), len(names))
    # Members that already own more than `least` get the extra partitions first, then by name.
    by_need = sorted(names, key=lambda name: (len(held[name]) <= least, name))
    share = {name: least + (rank < more) for rank, name in enumerate(by_need)}
    kept = {name: held[name][: share[name]] for name in names}
    loose = iter(sorted(known.difference(*kept.values())))
    taken = {name: islice(loose, share[name] - len(kept[name])) for name in names}
    return {name: tuple(sorted([*kept[name], *taken[name]])) for name in names}


def _renewed(
    live: Members,
    member: str,
    mine: GroupMember,
    lease_until_ms: int,
    partitions: int,
    giving: Collection[int] | None = None,
) -> Members:
    """The members, when `member` has a new lease and its share. With `giving`, it gives up these
    partitions only, also if they are in its share by now."""
    others = {name: held for name, held in live.items() if name != member}
    owned = {member: mine.owned, **{name: held.owned for name, held in others.items()}}
    taken = {number for held in others.values() for number in held.owned}
    share = [number for number in assign(owned, partitions)[member] if number not in taken]
    if giving is not None:
        share = sorted({*share, *mine.owned}.difference(giving))
    # If the clock was set back, the lease must not become shorter than others have seen it.
    until_ms = max(lease_until_ms, mine.lease_until_ms)
    return {**others, member: GroupMember(lease_until_ms=until_ms, owned=tuple(share))}


def _membership(state: GroupState | None, member: str, now_ms: int) -> GroupMember:
    """The member's entry. Raises if it is not a member, or if its lease ran out [GRP-13]."""
    held = None if state is None else state.members.get(member)
    if held is None:
        raise CommitConflictError(
            f"member {member!r} is no longer in the group: its lease ran out, or it was "
            "removed. Nothing was committed; poll() joins again, from the committed positions"
        )
    if not held.is_live(now_ms):
        if held.lease_until_ms > now_ms:
            raise CommitConflictError(
                f"the lease of member {member!r} ends {held.lease_until_ms - now_ms} ms from now. "
                "That is too far ahead to be believed: a clock was changed. Nothing was committed; "
                "poll() joins again, from the committed positions"
            )
        raise CommitConflictError(
            f"the lease of member {member!r} ran out {now_ms - held.lease_until_ms} ms ago. "
            "The heartbeat could not renew it in time: the process stood still, or the store did "
            "not answer. Nothing was committed; poll() joins again, from the committed positions. "
            "A longer lease_ms bears longer troubles"
        )
    return held


def _check_owned(
    state: GroupState | None, member: str, mine: GroupMember, offsets: Mapping[int, int]
) -> None:
    for partition in offsets:
        if partition not in mine.owned:
            raise _not_owned(state, member, partition)


def _not_owned(state: GroupState | None, member: str, partition: int) -> CommitConflictError:
    members = {} if state is None else state.members
    owner = next((n for n, held in members.items() if partition in held.owned), None)
    return CommitConflictError(
        f"partition {partition} is not owned by member {member!r}, but by "
        f"{'nobody' if owner in (None, member) else repr(owner)}; nothing was committed. Its next "
        "owner begins at the committed position"
    )


def _live(state: GroupState | None, now_ms: int) -> dict[str, GroupMember]:
    if state is None:
        return {}
    return {name: state.members[name] for name in state.live_members(now_ms)}
