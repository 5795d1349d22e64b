"""Spark's admission control: its own read limits for a batch, in Spark 4.2 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.stream.limits import NO_LIMITS, Limits

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
