"""Members of a consumer group: who owns which partitions, and who may commit. Pure.

Every plan gives the whole next state, which becomes true only by put-if-absent after the state it
was planned on. So of two plans on the same state one counts, the other is made anew, and what
a state says about owners needs no other proof [GRP-11], [GRP-12].

A partition goes from one member to another in two steps: its owner gives it up, or its lease runs
out and somebody drops it; then the other takes it. So at no time do two members that go by their
own last state and lease own the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from pylogtable.errors import CommitConflictError
from pylogtable.format.model import GroupChange, GroupMember, GroupPosition, GroupState

Members = Mapping[str, GroupMember]


def join(
    state: GroupState | None, member: str, now_ms: int, lease_ms: int, partitions: int
) -> GroupChange:
    """Become a member, and take what is free of one's share."""
    members = _live(state, now_ms)
    mine = members.get(member, GroupMember(lease_until_ms=0))
    return _renewed("join", state, members, member, mine.owned, now_ms + lease_ms, partitions)


def heartbeat(
    state: GroupState | None,
    member: str,
    now_ms: int,
    lease_ms: int,
    partitions: int,
    offsets: Mapping[int, int] | None = None,
    metadata: str = "",
) -> GroupChange:
    """Go on as a member: drop those whose lease ran out, give up what is beyond one's share, take
    what is free of it. With `offsets` commit them first, in the same step [GRP-13]."""
    mine = _membership(state, member, now_ms)
    _check_owned(state, member, mine, offsets or {})
    change = _renewed(
        "commit" if offsets else "heartbeat",
        state,
        _live(state, now_ms),
        member,
        mine.owned,
        now_ms + lease_ms,
        partitions,
    )
    return _committed(change, offsets or {}, metadata, now_ms)


def leave(
    state: GroupState | None,
    member: str,
    now_ms: int,
    offsets: Mapping[int, int] | None = None,
    metadata: str = "",
) -> GroupChange | None:
    """Be no member any more; None if one is not. With `offsets` commit them in the same step."""
    if offsets:
        _check_owned(state, member, _membership(state, member, now_ms), offsets)
    if state is None or member not in state.members:
        return None
    members = {name: held for name, held in _live(state, now_ms).items() if name != member}
    return _committed(_next("leave", state, members), offsets or {}, metadata, now_ms)


def assign(owned: Mapping[str, Iterable[int]], partitions: int) -> dict[str, tuple[int, ...]]:
    """The share of each member: counts differ by one at most, and a member keeps as much as it can
    of what it owns. It follows from the state alone, and does not change while members give up and
    take what it says, so that all of them come to the same [GRP-12]."""
    names = sorted(owned)
    if not names:
        return {}
    held = {name: sorted(owned[name]) for name in names}
    # Who knows of fewer partitions than others must not take them for gone.
    known = set(range(partitions)).union(*held.values())
    least, more = divmod(len(known), len(names))
    # One more goes to those who have it already, then by name.
    by_need = sorted(names, key=lambda name: (len(held[name]) <= least, name))
    share = {name: least + (rank < more) for rank, name in enumerate(by_need)}
    kept = {name: held[name][: share[name]] for name in names}
    loose = iter(sorted(known.difference(*kept.values())))
    taken = {name: islice(loose, share[name] - len(kept[name])) for name in names}
    return {name: tuple(sorted([*kept[name], *taken[name]])) for name in names}


def _renewed(
    operation: str,
    state: GroupState | None,
    live: Members,
    member: str,
    owned: tuple[int, ...],
    lease_until_ms: int,
    partitions: int,
) -> GroupChange:
    others = {name: held for name, held in live.items() if name != member}
    shares = assign({member: owned, **{n: held.owned for n, held in others.items()}}, partitions)
    taken = {number for held in others.values() for number in held.owned}
    mine = tuple(number for number in shares[member] if number not in taken)
    # A clock that was set back must not shorten what others may rely on.
    before = live[member].lease_until_ms if member in live else 0
    renewed = GroupMember(lease_until_ms=max(lease_until_ms, before), owned=mine)
    return _next(operation, state, {**others, member: renewed})


def _next(operation: str, state: GroupState | None, members: Members) -> GroupChange:
    before = {} if state is None else state.members
    generation = 0 if state is None else state.generation
    return GroupChange(
        operation=operation,
        positions={} if state is None else state.positions,
        generation=generation + (set(members) != set(before)),
        members=dict(sorted(members.items())),
    )


def _committed(
    change: GroupChange, offsets: Mapping[int, int], metadata: str, now_ms: int
) -> GroupChange:
    entries = {
        partition: GroupPosition(offset=offset, committed_at_ms=now_ms, metadata=metadata)
        for partition, offset in offsets.items()
    }
    return GroupChange(
        operation=change.operation,
        positions=dict(sorted({**change.positions, **entries}.items())),
        generation=change.generation,
        members=change.members,
    )


def _membership(state: GroupState | None, member: str, now_ms: int) -> GroupMember:
    held = None if state is None else state.members.get(member)
    if held is None:
        raise CommitConflictError(
            f"member {member!r} is not in the group any more: its lease ran out and others have "
            "taken over. Nothing was committed; poll() joins again, from the committed positions"
        )
    if held.lease_until_ms <= now_ms:
        raise CommitConflictError(
            f"the lease of member {member!r} ran out {now_ms - held.lease_until_ms} ms ago. "
            "Nothing was committed; poll() joins again, from the committed positions. Poll or "
            "commit more often, or take a longer lease_ms"
        )
    return held


def _check_owned(
    state: GroupState | None, member: str, mine: GroupMember, offsets: Mapping[int, int]
) -> None:
    for partition in offsets:
        if partition not in mine.owned:
            members = {} if state is None else state.members
            owner = next((n for n, held in members.items() if partition in held.owned), None)
            raise CommitConflictError(
                f"partition {partition} is not owned by member {member!r}, but by "
                f"{'nobody' if owner is None else repr(owner)}; nothing was committed"
            )


def _live(state: GroupState | None, now_ms: int) -> dict[str, GroupMember]:
    if state is None:
        return {}
    return {name: state.members[name] for name in state.live_members(now_ms)}
