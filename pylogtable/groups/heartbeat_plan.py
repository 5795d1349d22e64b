"""When a heartbeat renews a member's lease, and when it leaves the group. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Act(Enum):
    """What a heartbeat does now."""

    WAIT = "wait"
    RENEW = "renew"
    LEAVE = "leave"


class Beat(NamedTuple):
    """What a heartbeat does now, and how long it waits if that is nothing."""

    act: Act
    wait_seconds: float


def is_due(now_ms: int, lease_until_ms: int, lease_ms: int) -> bool:
    """True if a third of the lease is over, so that it is time to renew it."""
    return lease_until_ms - now_ms <= lease_ms * 2 // 3


def plan_beat(
    now_ms: int, lease_until_ms: int | None, lease_ms: int, idle_ms: int, most_idle_ms: int
) -> Beat:
    """The next beat of a member. `lease_until_ms` is None if it is not in the group. `idle_ms` is
    how long its program has neither polled nor committed.

    A lease that is over is left to the next poll, which has to tell the program. The waits are
    short beside the lease, so that a clock that was set forward is noticed in time.
    """
    longest = lease_ms / 3000
    if lease_until_ms is None or now_ms >= lease_until_ms:
        return Beat(Act.WAIT, longest)
    if idle_ms >= most_idle_ms:
        return Beat(Act.LEAVE, longest)
    if is_due(now_ms, lease_until_ms, lease_ms):
        return Beat(Act.RENEW, longest)
    until_due_ms = lease_until_ms - now_ms - lease_ms * 2 // 3
    return Beat(Act.WAIT, min(longest, until_due_ms / 1000, (most_idle_ms - idle_ms) / 1000))
