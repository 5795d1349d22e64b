"""The objects of consumer groups, as the specification's `groups.md` has them. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pylogtable.format.model import Natural, StoredObject

MAX_METADATA = 4096
#: No lease of a member is longer [GRP-14].
MAX_LEASE_MS = 86_400_000


class GroupPosition(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The next offset of a partition that a consumer group will read [GRP-4]."""

    offset: Natural
    committed_at_ms: Natural
    metadata: Annotated[str, msgspec.Meta(max_length=MAX_METADATA)] = ""


class GroupMember(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a group: the partitions it owns, and when its lease ends [GRP-11]."""

    lease_until_ms: Natural
    owned: tuple[Natural, ...] = ()

    def is_live(self, now_ms: int) -> bool:
        """True while the lease lasts. A lease that ends too late is not believed: the clock of its
        member was wrong [GRP-14]."""
        return now_ms < self.lease_until_ms <= now_ms + MAX_LEASE_MS


class GroupChange(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a plan for a group: its whole next state. It becomes a `GroupState` when it
    gets a number. `generation` counts how often the set of members changed."""

    operation: str
    positions: dict[Natural, GroupPosition] = msgspec.field(default_factory=dict)
    generation: Natural = 0
    members: dict[str, GroupMember] = msgspec.field(default_factory=dict)
    deleted: bool = False


class GroupState(GroupChange, frozen=True, kw_only=True, omit_defaults=True):
    """One numbered object of a consumer group, with the whole state of the group [GRP-2]."""

    number: Natural
    commit_id: str
    topic_id: str
    committed_at_ms: Natural

    def live_members(self, now_ms: int) -> list[str]:
        """The members whose lease has not run out, sorted [GRP-11]."""
        return sorted(name for name, held in self.members.items() if held.is_live(now_ms))


class GroupOffer(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """The positions that a member wants to commit, and its lease before and after [GRP-16]."""

    member: str
    lease_before_ms: Natural
    lease_until_ms: Natural
    committed_at_ms: Natural
    offsets: dict[Natural, Natural]
    metadata: Annotated[str, msgspec.Meta(max_length=MAX_METADATA)] = ""
