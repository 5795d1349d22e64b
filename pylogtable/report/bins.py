"""Histograms: segments or commits in bins of offsets, time or size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pylogtable.report.health import Bin

Int64s = npt.NDArray[np.int64]

#: The number of bins of a histogram over time.
MAX_BINS = 60
MIN_BINS = 12

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_WIDTHS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)


def bins_by_time(
    at_ms: Int64s, segments: Int64s, records: Int64s, size_bytes: Int64s
) -> tuple[Bin, ...]:
    """Bins of equal width. The width is a round length of time. The last bin has the latest of
    `at_ms`."""
    if not len(at_ms):
        return ()
    low, high = int(at_ms.min()), int(at_ms.max())
    width = next((w for w in _WIDTHS if high // w - low // w < MAX_BINS), None)
    if width is None:
        width = (high - low) // (MAX_BINS - 1) + 1
    count = max(high // width - low // width + 1, MIN_BINS)
    low = (high // width + 1 - count) * width
    place = (at_ms - low) // width
    edges = [low + width * number for number in range(count + 1)]
    sums = [
        np.bincount(place, weights=column, minlength=count)
        for column in (segments, records, size_bytes)
    ]
    return _bins(edges[:-1], edges[1:], *sums)


def bins_by_offset(
    partition: Mapping[str, Int64s], low: int, high: int, max_bins: int
) -> tuple[Bin, ...]:
    """A bin for each segment of a partition. If there are more than `max_bins`, neighbours share
    one. `low` and `high` are the ends of the axis."""
    base = partition["base_offset"]
    if not len(base):
        return ()
    first: Int64s = np.arange(len(base))
    if len(base) > max_bins:
        place = (base - low).astype(np.float64) * (max_bins / max(1, high - low))
        first = np.flatnonzero(np.diff(place.astype(np.int64), prepend=-1))
    last = np.append(first[1:], len(base)) - 1
    return _bins(
        base[first],
        partition["end_offset"][last],
        last - first + 1,
        np.add.reduceat(partition["records"], first),
        np.add.reduceat(partition["size_bytes"], first),
    )


def bins_by_size(segments: Mapping[str, Int64s], segment_bytes: int) -> tuple[Bin, ...]:
    """A bin for each power of two, from the smallest segment to the largest or to
    `segment_bytes`."""
    size = segments["size_bytes"]
    if not len(size):
        return ()
    power = np.log2(np.maximum(size, 1)).astype(np.int64)
    low = min(int(power.min()), segment_bytes.bit_length() - 1)
    high = max(int(power.max()), segment_bytes.bit_length() - 1)
    ones = np.ones(len(size), dtype=np.int64)
    sums = [
        np.bincount(power - low, weights=column, minlength=high - low + 1)
        for column in (ones, segments["records"], size)
    ]
    edges = [2**exponent for exponent in range(low, high + 2)]
    return _bins(edges[:-1], edges[1:], *sums)


def _bins(*columns: Any) -> tuple[Bin, ...]:
    return tuple(map(Bin._make, zip(*(list(map(int, column)) for column in columns), strict=True)))
