"""How much a batch of a stream takes: options, triggers, and Spark's read limits."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_pylogtable.request.options import Options

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


if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:

        class SupportsTriggerAvailableNow:
            """A placeholder for Spark 4.0 and 4.1, which do not have this class."""


__all__ = ["SupportsTriggerAvailableNow", "default_read_limit", "limits_in_force", "limits_of"]


def limits_of(options: Options, *, with_min: bool) -> Limits:
    """The limits that the options set. `AvailableNow` reads to the end and so has no minimum."""
    return Limits(
        options.max_records_per_trigger,
        options.max_bytes_per_trigger,
        options.min_records_per_trigger if with_min else None,
    )


def default_read_limit(limits: Limits) -> ReadLimit:
    """The closest of Spark's own limits. Spark has no limit that combines several."""
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
    )

    if limits.max_records is not None:
        return ReadMaxRows(limits.max_records)
    if limits.max_bytes is not None:
        return ReadMaxBytes(limits.max_bytes)
    if limits.min_records is not None:
        return ReadMinRows(limits.min_records)
    return ReadAllAvailable()


def limits_in_force(limit: Any, limits: Limits) -> Limits:
    """The limits of the options, unless Spark asks for everything, as it does for
    `Trigger.Once`."""
    return NO_LIMITS if type(limit).__name__ == "ReadAllAvailable" else limits
