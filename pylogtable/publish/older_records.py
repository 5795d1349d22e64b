"""Warns that a published table of a compacted topic shows more than the newest record of a key."""

from __future__ import annotations

import warnings

#: The topics that this process has warned of. Once is enough, however often it publishes.
_warned: set[str] = set()


def warn_of_older_records(name: str, topic_id: str) -> None:
    """Warn, once for each topic in a process. This comes before the table is written, so that an
    error made of it changes nothing."""
    if topic_id in _warned:
        return
    warnings.warn(
        f"topic {name!r} is compacted, but a published table shows all of its records: those that "
        "the next compaction will remove, and tombstones. So a key may have several rows, and sums "
        "and counts over the table may be too large. Query the newest record of each key instead: "
        "the guide of published tables begins with the SQL for it",
        stacklevel=6,
    )
    _warned.add(topic_id)
