"""Decides which process looks after which topic. Pure.

A member of the loop writes a small object every few seconds. It is alive if its object is not much
older than one's own: all times are those of the store. Each topic belongs to one living
member, by a hash of both names, so all that see the same members agree without asking each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import NamedTuple


class Beat(NamedTuple):
    """The object of a member, and when the store got it."""

    member: str
    at_ms: int


def living(beats: Iterable[Beat], now_ms: int, lease_ms: int) -> list[str]:
    """The members that have shown themselves within the lease, sorted. `now_ms` is when the store
    got the beat of the one who asks. A beat from after that was made by a clock that was wrong."""
    return sorted({beat.member for beat in beats if abs(now_ms - beat.at_ms) < lease_ms})


def owner(topic: str, members: Collection[str]) -> str | None:
    """The member that looks after a topic; None if there is no member."""
    return max(members, key=lambda member: _weight(member, topic), default=None)


def _weight(member: str, topic: str) -> bytes:
    return sha256(f"{member}/{topic}".encode()).digest()
