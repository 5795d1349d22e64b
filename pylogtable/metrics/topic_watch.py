"""One topic that is looked at again and again: what it was found to be, and when to look closer.

A look asks for the newest commit. A look around also asks for its groups and its published tables.
What needs the entries of all segments is measured more rarely.
"""

from __future__ import annotations

from typing import NamedTuple

from pylogtable.errors import LogTableError, TopicNotFoundError
from pylogtable.format.config import known_formats
from pylogtable.jobs.job import MaintainOptions
from pylogtable.log.group_objects import load_groups
from pylogtable.maintain import JOBS, job_for
from pylogtable.metrics.group_lag import GroupLags, RunRecords
from pylogtable.metrics.table_lag import table_figures
from pylogtable.metrics.topic_figures import (
    GroupFigures,
    SegmentFigures,
    StateFigures,
    TableFigures,
    figures_of,
    needs_leaves,
    segment_figures,
)
from pylogtable.store import Store
from pylogtable.times import is_within
from pylogtable.topic import Topic

#: How often segments are measured if that may load leaves of the index.
MEASURE_MS = 300_000
#: It is not measured again for so many times as long as it took: 2 % of the time, at most.
REST_FACTOR = 50


class _Measured(NamedTuple):
    """What was measured last, and when it was, and for how long it is left alone."""

    version: int
    at_ms: int
    rest_ms: int


class TopicWatch:
    """A topic of a store, or a folder that may become one."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self._store = store
        self._topic: Topic | None = None
        self._known_runs: RunRecords = {}
        self._measured: _Measured | None = None
        self.is_there = False
        #: Why the topic could not be read the last time.
        self.error: LogTableError | None = None
        self.state: StateFigures | None = None
        self.segments: SegmentFigures | None = None
        self.groups: tuple[GroupFigures, ...] = ()
        self.tables: tuple[TableFigures, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if the next look is cheap."""
        return self._topic is not None

    def asks_for(self, job: str) -> bool:
        """True if the topic is there, and its settings ask for a job, as far as that is known."""
        if self.state is None or job not in JOBS:
            return self.is_there
        return job_for(job, self.state.snapshot, MaintainOptions()) is not None

    def look(self, *, around: bool) -> None:
        """Find what the topic is now. An error is kept, and not raised."""
        try:
            topic = self._opened()
            self._look_at(topic)
            if around:
                self._look_around(topic)
            self.is_there, self.error = True, None
        except TopicNotFoundError:
            self._forget()
            self.is_there, self.error = False, None
        except LogTableError as error:
            self.is_there, self.error = True, error

    def is_due(self, now_ms: int) -> bool:
        """True if the segments are to be measured: the topic has changed, or what is measured
        depends on the time. If it loads leaves, that is every few minutes at most."""
        if self._topic is None or self.state is None or self.error is not None:
            return False
        if self._measured is None:
            return True
        snapshot, last = self.state.snapshot, self._measured
        if not is_within(last.at_ms, now_ms, last.rest_ms):
            return last.version != snapshot.version or snapshot.config.min_compaction_lag_ms > 0
        return last.version != snapshot.version and not self.needs_leaves

    @property
    def needs_leaves(self) -> bool:
        """True if to measure the segments may take a while."""
        return self.state is not None and needs_leaves(self.state.snapshot)

    def measure(self, now_ms: int) -> None:
        """Measure the segments, in the state that was seen last. Raises if that fails."""
        topic, state = self._topic, self.state
        if topic is None or state is None:
            return
        monotonic = topic._log.runtime.monotonic
        began, figures = monotonic(), None
        log = topic._log.manifest.state(state.snapshot)
        try:
            entries = log.entries()
            log.check_totals(entries)
            figures = segment_figures(state.snapshot, entries, now_ms)
        finally:
            rest_ms = max(MEASURE_MS, round((monotonic() - began) * 1000 * REST_FACTOR))
            self._measured = _Measured(state.snapshot.version, now_ms, rest_ms)
            self.segments = figures

    def _opened(self) -> Topic:
        if self._topic is not None:
            try:
                self._topic._log.latest()
            except TopicNotFoundError:  # perhaps another one is in its place
                self._forget()
            else:
                return self._topic
        self._topic = self._store.topic(self.name)
        return self._topic

    def _look_at(self, topic: Topic) -> None:
        snapshot = topic._log.known
        if self.state is None or self.state.snapshot is not snapshot:
            self.state = figures_of(snapshot)

    def _look_around(self, topic: Topic) -> None:
        log, snapshot = topic._log, topic._log.known
        self.tables = tuple(
            table_figures(topic._maintained, snapshot, format)
            for format in known_formats(snapshot.info.config)
        )
        loaded = load_groups(topic._store, snapshot.topic_id)
        lags = GroupLags(log.manifest.state(snapshot), self._known_runs)
        now_ms = log.runtime.clock()
        self.groups = (
            *(
                GroupFigures(name, True, len(state.live_members(now_ms)), lags.of(state), now_ms)
                for name, state in loaded.states.items()
            ),
            *(GroupFigures(name, False) for name in loaded.damaged),
        )

    def _forget(self) -> None:
        self._topic = self.state = self.segments = self._measured = None
        self._known_runs = {}
        self.groups, self.tables = (), ()
