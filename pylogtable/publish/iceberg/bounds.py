"""The statistics of a file in an Iceberg manifest. Pure.

A bound is a value that the file has, never a wider one, because engines answer queries from it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from pylogtable.format.field_ids import LOG_IDS
from pylogtable.format.model import Segment
from pylogtable.format.schema import OFFSET, TIMESTAMP
from pylogtable.segments.column_bounds import ColumnBounds
from pylogtable.times import to_us

#: Longer texts are no bounds: engines cut them.
MAX_BYTES = 64


@dataclass(frozen=True)
class Metrics:
    """Counts and bounds by field id."""

    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


def metrics_of(
    file: Segment, bounds: Mapping[str, ColumnBounds], types: Mapping[str, tuple[int, Any]]
) -> Metrics:
    """The metrics of a file. `types` has the id and the type of each column by stored name."""
    offset, timestamp = LOG_IDS[OFFSET], LOG_IDS[TIMESTAMP]
    made = Metrics()
    made.values.update({offset: file.records, timestamp: file.records})
    made.nulls.update({offset: 0, timestamp: 0})
    made.lower[timestamp] = _integer(file.min_timestamp_us, 8)
    made.upper[timestamp] = _integer(file.max_timestamp_us, 8)
    if file.is_dense:
        made.lower[offset] = _integer(file.base_offset, 8)
        made.upper[offset] = _integer(file.end_offset - 1, 8)
    for name, of in bounds.items():
        field_id, kind = types[name]
        made.values[field_id] = file.records
        made.nulls[field_id] = of.nulls
        lower, upper = bound(of.least, kind), bound(of.greatest, kind)
        if lower is not None and upper is not None:
            made.lower[field_id], made.upper[field_id] = lower, upper
    return made


def bound(value: Any, kind: Any) -> bytes | None:
    """A value of an Iceberg type as manifests store it; None if it is no bound."""
    if value is None:
        return None
    if kind in ("int", "long"):
        return _integer(value, 4 if kind == "int" else 8)
    if kind == "boolean":
        return struct.pack("?", value)
    if kind in ("string", "binary"):
        data = value.encode() if isinstance(value, str) else bytes(value)
        return data if len(data) <= MAX_BYTES else None
    if isinstance(value, datetime):
        return _integer(to_us(value if value.tzinfo else value.replace(tzinfo=timezone.utc)), 8)
    if isinstance(value, date):
        return _integer(value.toordinal() - date(1970, 1, 1).toordinal(), 4)
    if isinstance(value, Decimal):
        return _decimal(value, int(kind.rpartition(",")[2].strip(" )")))
    return None


def _decimal(value: Decimal, scale: int) -> bytes:
    """The unscaled value, the highest byte first, in as few bytes as possible."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    size = int("".join(map(str, digits))) * int(10 ** (exponent + scale))
    unscaled = -size if sign else size
    bits = (~unscaled if sign else unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _integer(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little", signed=True)
