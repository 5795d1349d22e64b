"""The topics of a store as an HTML table, for notebooks. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pylogtable.errors import LogTableError
from pylogtable.format.snapshot import Snapshot
from pylogtable.presentation import (
    bytes_text,
    count_text,
    number_text,
    table_html,
    time_text,
    titled_html,
)

TOPICS_SHOWN = 200

_HEAD = ("topic", "partitions", "records", "size", "segments", "newest commit (UTC)", "policy")


def overview_html(url: str, topics: Mapping[str, Snapshot | LogTableError]) -> str:
    """A row for each topic, with its numbers or with the error if it cannot be read."""
    rows = [_row(name, topics[name]) for name in list(topics)[:TOPICS_SHOWN]]
    if len(topics) > len(rows):
        rows.append((f"… {len(topics) - len(rows):,} more",))
    is_damaged = any(isinstance(found, LogTableError) for found in topics.values())
    head = (*_HEAD, "error") if is_damaged else _HEAD
    full = [(*row, *[""] * (len(head) - len(row))) for row in rows]
    title = f"store {url}, {count_text(len(topics), 'topic')}"
    return titled_html(title, table_html(full, head) if rows else "")


def _row(name: str, found: Snapshot | LogTableError) -> tuple[str, ...]:
    if isinstance(found, LogTableError):
        return (name, *[""] * (len(_HEAD) - 1), f"{type(found).__name__}: {found}")
    return (
        name,
        number_text(len(found.partitions)),
        number_text(found.live.records),
        bytes_text(found.live.size_bytes),
        number_text(found.live.segments),
        time_text(found.committed_at_ms),
        ",".join(sorted(found.config.cleanup_policy)),
    )
