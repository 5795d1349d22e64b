"""How much of what is new a batch takes: the arithmetic of the Kafka connector's rate limits. Pure.

It counts records where Kafka counts offsets: of a compacted topic most offsets may be holes, and a
limit is there for the work that a batch makes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one batch may hold, and what it has to; None is no limit."""

    max_records: int | None = None
    max_bytes: int | None = None
    min_records: int | None = None

    @property
    def is_none(self) -> bool:
        return self == NO_LIMITS

    @property
    def has_most(self) -> bool:
        return self.max_records is not None or self.max_bytes is not None


NO_LIMITS = Limits()


def share(limit: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """`limit` divided in proportion to `sizes`, none of which is exceeded.

    A share is rounded down, but never to nothing, so that a small partition beside large ones gets
    on: together they may be more than `limit` by that.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    return {key: min(size, max(1, limit * size // total)) for key, size in sizes.items()}


def take(limits: Limits, records: Mapping[Key, int], sizes: Mapping[Key, int]) -> dict[Key, int]:
    """How many records of each a batch takes, of so many there are and so many bytes they have."""
    taken = dict(records)
    if limits.max_records is not None:
        taken = share(limits.max_records, records)
    if limits.max_bytes is not None:
        bytes_of = share(limits.max_bytes, sizes)
        for key, size in sizes.items():
            if size:
                # As many as would fill its share if all were of the same size.
                taken[key] = min(taken[key], -(-records[key] * bytes_of[key] // size))
    return taken


class Holdback:
    """Holds batches back until there are enough records or the last one is long enough ago. The
    first is never held back."""

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_ms = max_delay_ms
        self._let_go_ms: int | None = None

    def lets_go(self, records: int, min_records: int, now_ms: int) -> bool:
        is_late = self._let_go_ms is None or now_ms - self._let_go_ms >= self._max_delay_ms
        if not is_late and records < min_records:
            return False
        self._let_go_ms = now_ms
        return True
