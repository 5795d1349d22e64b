"""How a topic grew, and things over time in general: what the newest commits say. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.format.config import MANIFEST_RETENTION_MS
from pylogtable.report.health import Cell, Growth, Operation

Numbers = npt.NDArray[np.int64]

#: In how many cells of time at most, and at least, things are drawn.
BINS = 60
FEWEST_BINS = 12

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_WIDTHS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_SECOND * n for n in (1, 2, 5, 10, 15, 30)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)


def measure_growth(history: pa.Table, now_ms: int) -> Growth:
    """What the newest commits say, newest first."""
    if not history.num_rows:
        return Growth()
    at = history["committed_at"].cast(pa.int64()).to_numpy()
    names = np.array(history["operation"].to_pylist(), dtype=object)
    added, records, size, removed = (
        history[name].to_numpy()
        for name in ("segments_added", "records_added", "bytes_added", "segments_removed")
    )
    operations = []
    for name in sorted(set(names)):
        of_it = names == name
        sums = [int(column[of_it].sum()) for column in (added, records, size, removed)]
        operations.append(Operation(name, int(of_it.sum()), *sums))
    vacuums = at[names == "vacuum"]
    # A vacuum has removed what was replaced longer before it than versions are kept.
    since = int(vacuums[0]) - MANIFEST_RETENTION_MS if len(vacuums) else -1
    ripe = at < now_ms - MANIFEST_RETENTION_MS
    appends = names == "append"
    return Growth(
        commits=history.num_rows,
        complete=int(history["version"][-1].as_py()) == 0 or names[-1] == "create",
        appended=cells_of_time(at[appends], added[appends], records[appends], size[appends]),
        operations=tuple(operations),
        removable=int(removed[ripe & (at >= since)].sum()),
        waiting=int(removed[~ripe].sum()),
    )


def cells_of_time(
    at: Numbers, segments: Numbers, records: Numbers, size: Numbers
) -> tuple[Cell, ...]:
    """Moments in milliseconds, in cells of equal length that end with the latest of them."""
    if not len(at):
        return ()
    low, high = int(at.min()), int(at.max())
    width = next((w for w in _WIDTHS if high // w - low // w < BINS), None)
    if width is None:
        width = (high - low) // (BINS - 1) + 1
    bins = max(high // width - low // width + 1, FEWEST_BINS)
    low = (high // width + 1 - bins) * width
    place = (at - low) // width
    edges = [low + width * number for number in range(bins + 1)]
    sums = [
        np.bincount(place, weights=column, minlength=bins) for column in (segments, records, size)
    ]
    return make_cells(edges[:-1], edges[1:], *sums)


def make_cells(*columns: Any) -> tuple[Cell, ...]:
    return tuple(map(Cell._make, zip(*(list(map(int, column)) for column in columns), strict=True)))
