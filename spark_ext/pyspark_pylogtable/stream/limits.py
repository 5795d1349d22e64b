"""What the engine has to say about the size of a batch: Spark 4.2 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_pylogtable.options import Options
from pyspark_pylogtable.stream.rate import NO_LIMITS, Limits

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:

        class SupportsTriggerAvailableNow:
            """Spark 4.0 and 4.1 have no such thing."""


__all__ = ["SupportsTriggerAvailableNow", "default_read_limit", "limits_of"]


def limits_of(options: Options, *, with_min: bool) -> Limits:
    """What the options say; all that is available is to be read to its end, so without a least."""
    return Limits(
        options.max_records_per_trigger,
        options.max_bytes_per_trigger,
        options.min_records_per_trigger if with_min else None,
    )


def default_read_limit(limits: Limits) -> ReadLimit:
    """The limit of the engine's that comes nearest: it has none that combines several."""
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


def as_asked(limit: Any, limits: Limits) -> Limits:
    """The limits in force: those of the options, unless the engine wants everything, as for
    `Trigger.Once`."""
    return NO_LIMITS if type(limit).__name__ == "ReadAllAvailable" else limits
