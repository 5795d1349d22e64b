"""The warning that the table of a compacted topic shows more than the newest records."""

from __future__ import annotations

import warnings

from pylogtable.format.config import LATEST
from pylogtable.format.snapshot import Snapshot

#: The topics that this process has warned of. Once is enough, however often it publishes.
_warned: set[str] = set()


def shows_older_records(snapshot: Snapshot) -> bool:
    """True if a table shows records that the next compaction removes."""
    return snapshot.config.is_compacted and snapshot.config.publish_view != LATEST


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
        stacklevel=7,
    )
    _warned.add(topic_id)
