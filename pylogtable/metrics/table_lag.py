"""How far a published table is behind its topic."""

from __future__ import annotations

from pylogtable.errors import LogTableError, StorageError
from pylogtable.format.snapshot import Snapshot
from pylogtable.jobs.job import MaintainedTopic
from pylogtable.metrics.topic_figures import TableFigures
from pylogtable.publish.tables import table_of

#: So many commits after the shown version are read to find the first append among them. Others,
#: such as those of merges and vacuums, change no row.
COMMITS_READ = 8


def table_figures(topic: MaintainedTopic, newest: Snapshot, format: str) -> TableFigures:
    """The figures of a table. One that is not there, or that cannot be read, is not up. Raises if
    the store fails: then that is not known."""
    try:
        published = table_of(format, topic.store, topic.runtime).newest()
    except StorageError:
        raise
    except LogTableError:
        published = None
    if published is None or published.state.topic_id != newest.topic_id:
        return TableFigures(format, is_up=False)
    shown = published.state
    lag = sum(state.end for state in newest.partitions) - shown.offsets
    if lag <= 0:
        return TableFigures(format, is_up=True)
    since_ms = _first_append_ms(topic, shown.version, newest) or shown.committed_at_ms
    waited_ms = max(0, topic.runtime.clock() - since_ms)
    return TableFigures(format, is_up=True, lag_records=lag, lag_seconds=waited_ms / 1000)


def _first_append_ms(topic: MaintainedTopic, shown: int, newest: Snapshot) -> int | None:
    """When the first append after the version that is shown was committed. None if its commit is
    gone."""
    at_ms = None
    for version in range(shown + 1, min(newest.version, shown + COMMITS_READ) + 1):
        commit = topic.log.manifest.commits.read(version)
        if commit is None:
            break
        if commit.topic_id != newest.topic_id:
            continue
        at_ms = commit.committed_at_ms
        if commit.ends:
            break
    return at_ms
