"""A consumer's membership in its group: which partitions it reads, and how it commits.

A `StaticMember` computes its partitions from its number and the number of members. It commits like
any user of the group, and needs no lease. For a `DynamicMember` see `dynamic_member.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

from pylogtable.errors import CommitConflictError, InvalidRequestError
from pylogtable.groups.group import Group, committed_offsets

# The longest wait of a consumer that finds nothing to read, before it looks again.
LONGEST_PAUSE_SECONDS = 1.0

#: Called with partitions before they are given up.
Revoke = Callable[[tuple[int, ...]], None]


class Member(Protocol):
    """What a consumer needs to know about its place in the group."""

    @property
    def member_id(self) -> str | None:
        """The member's id in the group's state. None for a static member, and for a dynamic one
        that is not in the group now."""

    @property
    def tenures(self) -> Mapping[int, int]:
        """The member's partitions as far as it knows, without a look at the group. Each has the
        number of its tenure: another one if the member lost the partition or its position in
        between, even if it has it again. The consumer then begins at the committed position."""

    @property
    def has_full_share(self) -> bool:
        """False while other members still hold partitions of this member's share."""

    @property
    def longest_pause_seconds(self) -> float:
        """How long the consumer may wait between two looks at the log."""

    @property
    def look_seconds(self) -> float:
        """How often others may expect it to look whether they wait for partitions."""

    @property
    def needs_store(self) -> bool:
        """True if the next `assigned` sends requests."""

    def assigned(self, partition_count: int, revoke: Revoke | None = None) -> Mapping[int, int]:
        """The member's partitions, with their tenures. The topic has `partition_count` of them. A
        dynamic member joins or renews its lease here if it has to. `revoke` is called with
        partitions before they are given up."""

    def prepare(self, partition_count: int) -> None:
        """Do the requests of the next `assigned` that it does not need `revoke` for."""

    def committed(self) -> Mapping[int, int]:
        """The committed positions that the member knows, by partition."""

    def newest_committed(self) -> Mapping[int, int]:
        """The committed positions in the store, by partition."""

    def is_lease_valid(self) -> bool:
        """True while no other member can own the assigned partitions."""

    def commit(self, offsets: Mapping[int, int], metadata: str, read: Mapping[int, int]) -> None:
        """Commit positions. `read` has the tenures in which the consumer read them. Raise if a
        partition does not belong to this member, or was lost in between."""

    def leave(self, offsets: Mapping[int, int]) -> None:
        """Commit these positions, if there are any, and leave the group."""


class StaticMember:
    """Number `index` of `count` members that share the partitions: partition `p` belongs to member
    `p % count`. A single consumer is number 0 of 1."""

    member_id = None
    has_full_share = True
    needs_store = False
    longest_pause_seconds = LONGEST_PAUSE_SECONDS
    look_seconds = math.inf

    def __init__(self, group: Group, index: int, count: int) -> None:
        self._group = group
        self._index = index
        self._count = count
        self._positions: dict[int, int] | None = None
        # Its partitions stay. But each commit that is refused begins a new tenure of all of them.
        self._refused = 0
        self._partition_count = 0

    @property
    def tenures(self) -> Mapping[int, int]:
        mine = range(self._index, self._partition_count, self._count)
        return dict.fromkeys(mine, self._refused)

    def assigned(self, partition_count: int, revoke: Revoke | None = None) -> Mapping[int, int]:
        """It never gives up a partition, so `revoke` is not called."""
        self._partition_count = partition_count
        return self.tenures

    def prepare(self, partition_count: int) -> None:
        pass

    def committed(self) -> Mapping[int, int]:
        """Read once. If someone else moves a position later, the next commit is refused."""
        if self._positions is None:
            self._positions = self._group.positions()
        return self._positions

    def newest_committed(self) -> Mapping[int, int]:
        return committed_offsets(self._group._group_log.newest())

    def is_lease_valid(self) -> bool:
        return True

    def commit(self, offsets: Mapping[int, int], metadata: str, read: Mapping[int, int]) -> None:
        """`read` is not needed: the group refuses what others have moved since [GRP-8]."""
        for partition in offsets:
            if partition % self._count != self._index:
                raise InvalidRequestError(
                    f"partition {partition} is not assigned to this consumer: it is member "
                    f"{self._index} of {self._count} and has the partitions p with "
                    f"p % {self._count} == {self._index}"
                )
        try:
            self._positions = self._group.commit(offsets, metadata)
        except CommitConflictError:
            self._positions = None
            self._refused += 1
            raise

    def leave(self, offsets: Mapping[int, int]) -> None:
        if offsets:
            self.commit(offsets, "", self.tenures)
