"""How a topic grew, from its newest commits. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pylogtable.format.config import MANIFEST_RETENTION_MS
from pylogtable.report.bins import bins_by_time
from pylogtable.report.health import Growth, OperationTotals


def measure_growth(history: pa.Table, now_ms: int) -> Growth:
    """The growth of a topic. `history` is the result of `Topic.history`: commits, newest first."""
    if not history.num_rows:
        return Growth()
    at_ms = history["committed_at"].cast(pa.int64()).to_numpy()
    names = np.array(history["operation"].to_pylist(), dtype=object)
    added, records, size_bytes, removed = (
        history[name].to_numpy()
        for name in ("segments_added", "records_added", "bytes_added", "segments_removed")
    )
    operations = []
    for name in sorted(set(names)):
        mine = names == name
        sums = [int(column[mine].sum()) for column in (added, records, size_bytes, removed)]
        operations.append(OperationTotals(name, int(mine.sum()), *sums))
    vacuums = at_ms[names == "vacuum"]
    is_old = at_ms < now_ms - MANIFEST_RETENTION_MS
    is_removable = is_old
    if len(vacuums):
        # The last vacuum removed files that had been replaced longer ago than the manifest's
        # retention.
        is_removable = is_old & (at_ms >= int(vacuums[0]) - MANIFEST_RETENTION_MS)
    appends = names == "append"
    return Growth(
        commits=history.num_rows,
        is_complete=int(history["version"][-1].as_py()) == 0 or names[-1] == "create",
        appended=bins_by_time(
            at_ms[appends], added[appends], records[appends], size_bytes[appends]
        ),
        operations=tuple(operations),
        removable_files=int(removed[is_removable].sum()),
        waiting_files=int(removed[~is_old].sum()),
    )
