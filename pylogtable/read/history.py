"""The commits of a topic as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice

import pyarrow as pa

from pylogtable.format.model import Commit

HISTORY_SCHEMA = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("committed_at", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("commit_id", pa.string(), nullable=False),
        pa.field("txn_app_id", pa.string()),
        pa.field("txn_version", pa.int64()),
        pa.field("segments_added", pa.int64(), nullable=False),
        pa.field("records_added", pa.int64(), nullable=False),
        pa.field("bytes_added", pa.int64(), nullable=False),
        pa.field("segments_removed", pa.int64(), nullable=False),
        pa.field("records_removed", pa.int64(), nullable=False),
        pa.field("end_offsets", pa.map_(pa.int32(), pa.int64()), nullable=False),
        pa.field("summary", pa.map_(pa.string(), pa.int64()), nullable=False),
    ]
)


def history_table(commits: Iterable[Commit], limit: int | None) -> pa.Table:
    """A row for each commit, in the given order, at most `limit`."""
    rows = []
    for commit in islice(commits, None if limit is None else min(limit, sys.maxsize)):
        dropped = [
            *(move.dropped for move in commit.log_starts),
            *(swap.dropped for swap in commit.replaced),
        ]
        rows.append(
            {
                "version": commit.version,
                "committed_at": commit.committed_at_ms,
                "operation": commit.operation,
                "commit_id": commit.commit_id,
                "txn_app_id": commit.txn.app_id if commit.txn else None,
                "txn_version": commit.txn.version if commit.txn else None,
                "segments_added": len(commit.add),
                "records_added": sum(segment.records for segment in commit.add),
                "bytes_added": sum(segment.size_bytes for segment in commit.add),
                "segments_removed": sum(total.segments for total in dropped),
                "records_removed": sum(total.records for total in dropped),
                "end_offsets": sorted(commit.ends.items()),
                "summary": sorted(commit.summary.items()),
            }
        )
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)
