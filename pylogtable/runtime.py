"""Everything that is not a function of its input: the clock, fresh ids, waiting and chance."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _fresh_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Runtime:
    """Handed down from `pylogtable.open`; tests hand in their own."""

    clock: Callable[[], int] = _wall_clock_ms
    new_id: Callable[[], str] = _fresh_id
    monotonic: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    #: How long the outcome of a commit may stay unknown before the caller is told so.
    patience_seconds: float = 120.0

    def back_off(self, attempt: int, *, longest_seconds: float) -> None:
        """Wait a random while that doubles with each attempt, beginning with a millisecond."""
        self.pause(self.chance() * min(longest_seconds, 0.001 * 2 ** min(attempt, 16)))
