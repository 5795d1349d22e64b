"""The commits of a topic as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from pylogtable.format.model import Commit, Totals
from pylogtable.presentation import computed_table

#: One of the appends of a combined commit [OFFER-4].
APPEND = pa.struct(
    [
        ("offer", pa.string()),
        ("txn_app_id", pa.string()),
        ("txn_version", pa.int64()),
        ("records", pa.int64()),
        (
            "offsets",
            pa.list_(
                pa.struct([("partition", pa.int32()), ("start", pa.int64()), ("end", pa.int64())])
            ),
        ),
    ]
)
#: The columns, and their values.
_COLUMNS: dict[pa.Field, Callable[[Commit], Any]] = {
    pa.field("version", pa.int64(), False): lambda c: c.version,
    pa.field("committed_at", pa.timestamp("ms", tz="UTC"), False): lambda c: c.committed_at_ms,
    pa.field("operation", pa.string(), False): lambda c: c.operation,
    pa.field("commit_id", pa.string(), False): lambda c: c.commit_id,
    pa.field("txn_app_id", pa.string()): lambda c: c.txn.app_id if c.txn else None,
    pa.field("txn_version", pa.int64()): lambda c: c.txn.version if c.txn else None,
    pa.field("segments_added", pa.int64(), False): lambda c: len(c.add),
    pa.field("records_added", pa.int64(), False): lambda c: sum(s.records for s in c.add),
    pa.field("bytes_added", pa.int64(), False): lambda c: sum(s.size_bytes for s in c.add),
    pa.field("segments_removed", pa.int64(), False): lambda c: sum(d.segments for d in _dropped(c)),
    pa.field("records_removed", pa.int64(), False): lambda c: sum(d.records for d in _dropped(c)),
    pa.field("end_offsets", pa.map_(pa.int32(), pa.int64()), False): lambda c: sorted(
        c.ends.items()
    ),
    pa.field("summary", pa.map_(pa.string(), pa.int64()), False): lambda c: sorted(
        c.summary.items()
    ),
    pa.field("appends", pa.list_(APPEND), False): lambda c: [
        {
            "offer": one.offer,
            "txn_app_id": one.txn.app_id if one.txn else None,
            "txn_version": one.txn.version if one.txn else None,
            "records": one.records,
            "offsets": [
                {"partition": number, "start": start, "end": end}
                for number, (start, end) in sorted(one.offsets.items())
            ],
        }
        for one in c.appends
    ],
    pa.field("notes", pa.map_(pa.string(), pa.string()), False): lambda c: [
        (txn.app_id, msgspec.json.encode(txn.note).decode())
        for txn in c.txns
        if txn.note is not None
    ],
}
HISTORY_SCHEMA = pa.schema(list(_COLUMNS))


def _dropped(commit: Commit) -> list[Totals]:
    moved = [move.dropped for move in commit.log_starts]
    return [*moved, *(swap.dropped for swap in commit.replaced)]


def history_table(commits: Iterable[Commit], limit: int | None) -> pa.Table:
    """A row for each commit, in the given order, at most `limit`."""
    most = None if limit is None else min(limit, sys.maxsize)
    return computed_table(_COLUMNS, islice(commits, most))
