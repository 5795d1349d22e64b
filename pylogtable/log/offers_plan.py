"""What a writer of a group does with the offers that it finds. Pure.

A member's lease grows with each state that it writes, and nobody else changes it. So it tells
whether an offer may still be taken: only on the lease that it names. Once the offer has landed, or
its member has written a state of its own, that lease is gone for ever [GRP-16].
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pylogtable.format.group_model import (
    MAX_LEASE_MS,
    GroupChange,
    GroupMember,
    GroupOffer,
    GroupPosition,
    GroupState,
)


def is_open(offer: GroupOffer, state: GroupChange | None, now_ms: int) -> bool:
    """True if a state after this one may take the offer along: its member is live, owns the
    partitions, and has written nothing since [GRP-13], [GRP-16]."""
    held = None if state is None else state.members.get(offer.member)
    return (
        held is not None
        and held.lease_until_ms == offer.lease_before_ms
        and held.is_live(now_ms)
        and offer.lease_before_ms < offer.lease_until_ms <= now_ms + MAX_LEASE_MS
        and bool(offer.offsets)
        and offer.offsets.keys() <= set(held.owned)
    )


def has_landed(offer: GroupOffer, state: GroupChange | None) -> bool:
    """True if the offer is the last that this state has of its member. The lease alone would not
    tell it from another offer of the same millisecond."""
    held = None if state is None else state.members.get(offer.member)
    if state is None or held is None or held.lease_until_ms != offer.lease_until_ms:
        return False
    return all(state.positions.get(number) == entry for number, entry in _entries(offer).items())


def may_land(offer: GroupOffer, state: GroupChange | None) -> bool:
    """True if somebody may still take the offer along after this state, by a clock of his own."""
    held = None if state is None else state.members.get(offer.member)
    return held is not None and held.lease_until_ms == offer.lease_before_ms


def withdraw(offer: GroupOffer, state: GroupState) -> GroupChange:
    """The state without the offer's member. After it the offer cannot land [GRP-16]."""
    return GroupChange(
        operation="leave",
        positions=state.positions,
        generation=state.generation + 1,
        members={name: held for name, held in state.members.items() if name != offer.member},
    )


def take(change: GroupChange, offers: Iterable[GroupOffer], now_ms: int) -> GroupChange:
    """The next state of the group, with each offer that is open [GRP-16]. It changes positions and
    the lease of the offer's member, and who owns what stays."""
    for offer in offers:
        if is_open(offer, change, now_ms):
            owned = change.members[offer.member].owned
            renewed = GroupMember(lease_until_ms=offer.lease_until_ms, owned=owned)
            positions = {**change.positions, **_entries(offer)}
            change = replace(
                change,
                positions=dict(sorted(positions.items())),
                members={**change.members, offer.member: renewed},
            )
    return change


def _entries(offer: GroupOffer) -> dict[int, GroupPosition]:
    return {
        partition: GroupPosition(
            offset=offset, committed_at_ms=offer.committed_at_ms, metadata=offer.metadata
        )
        for partition, offset in offer.offsets.items()
    }
