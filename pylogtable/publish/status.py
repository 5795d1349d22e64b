"""How far published tables are behind their topic."""

from __future__ import annotations

import logging

from pylogtable.errors import LogTableError, StorageError
from pylogtable.format.config import known_formats
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.publish.advance import find_advance
from pylogtable.publish.tables import table_of
from pylogtable.read.description import PublishedStatus

_logger = logging.getLogger(__name__)


def published_status(topic: MaintainedTopic, newest: Snapshot) -> tuple[PublishedStatus, ...]:
    """How far the tables that the topic's settings ask for are behind. What is not published yet,
    or is damaged, is left out. Raises if the store fails: then that is not known."""
    formats = known_formats(newest.info.config)
    found = (status_of(topic, newest, name) for name in formats)
    return tuple(status for status in found if status is not None)


def status_of(topic: MaintainedTopic, newest: Snapshot, format: str) -> PublishedStatus | None:
    """How far one table is behind; None if there is none of this topic, or it cannot be read."""
    try:
        published = table_of(format, topic.store, topic.runtime).newest()
    except StorageError:
        raise
    except LogTableError as error:
        _logger.warning("the %s table of %s cannot be read: %s", format, topic.name, error)
        return None
    if published is None or published.state.topic_id != newest.topic_id:
        return None
    state = published.state
    offsets = sum(partition.end for partition in newest.partitions)
    lag_records = max(0, offsets - state.offsets)
    lag_ms = max(0, newest.committed_at_ms - state.committed_at_ms)
    if lag_ms and not lag_records:
        advance = find_advance(topic.log.manifest, published, newest)
        lag_ms = 0 if advance is not None and advance.shows_nothing_new else lag_ms
    return PublishedStatus(
        format=format,
        version=state.version,
        table_version=published.number,
        lag_records=lag_records,
        lag_ms=lag_ms,
        view=state.view,
    )
