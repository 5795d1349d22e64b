"""How many of the new records a batch takes: the rules of the Kafka connector's limits. Pure.

Limits count records where Kafka counts offsets. In a compacted topic most offsets may be holes, and
a limit is there to bound the work of a batch.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper and lower limits of one batch; None means no limit."""

    max_records: int | None = None
    max_bytes: int | None = None
    min_records: int | None = None

    @property
    def is_unlimited(self) -> bool:
        return self == NO_LIMITS

    @property
    def has_maximum(self) -> bool:
        return self.max_records is not None or self.max_bytes is not None


NO_LIMITS = Limits()


def share(limit: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """Divide `limit` in proportion to `sizes`; no share is larger than its size.

    Shares are rounded down, but to no less than 1, so that small partitions make progress too. So
    their sum can exceed `limit` by up to one per partition.
    """
    total = sum(sizes.values())
    if total <= limit:
        return dict(sizes)
    return {key: min(size, max(1, limit * size // total)) for key, size in sizes.items()}


def byte_shares(limit: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """Divide all of `limit` in proportion to `sizes`, also if they seem to fit: they are estimates.
    A partition that has records gets 1 at least."""
    total = sum(sizes.values())
    return {key: max(1, limit * size // total) for key, size in sizes.items() if size}


class BatchDelay:
    """Delays a batch until there are enough records, or until the maximum delay since the last
    batch is over. The first batch is never delayed."""

    def __init__(self, max_delay_ms: int) -> None:
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def is_due(self, records: int, min_records: int, now_ms: int) -> bool:
        """True if a batch with this many records may start now."""
        is_late = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if not is_late and records < min_records:
            return False
        self._last_ms = now_ms
        return True
