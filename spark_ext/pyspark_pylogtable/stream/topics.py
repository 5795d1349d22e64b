"""The topics that a stream reads, kept open for as long as it runs.

A topic that is open reads only the commits that are new at each look, so a trigger costs as much as
what was appended since the last. Which topics match a pattern is asked more rarely: that lists.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql.types import StructType

import pylogtable
from pylogtable import Store, Topic, TopicNotFoundError, View, split_topic_url
from pyspark_pylogtable.columns import check_asked
from pyspark_pylogtable.options import Options
from pyspark_pylogtable.stream.group import GroupPositions
from pyspark_pylogtable.stream.offsets import Log, Places
from pyspark_pylogtable.subscription import Assign, Subscribe, SubscribePattern

TOPICS_AT_ONCE = 8
#: Of the time of a stream no more than one part in this goes into looking for new topics.
DISCOVERY_SHARE = 20


class StreamTopics:
    """What the options name, with the columns that the stream has."""

    def __init__(self, options: Options, columns: StructType) -> None:
        path = options.require_path()
        self._columns = columns
        self._subscription = options.subscription
        named: list[str] = []
        if options.subscription is None:
            path, name = split_topic_url(path)
            named = [name]
        elif isinstance(options.subscription, Subscribe):
            named = list(options.subscription.topics)
        elif isinstance(options.subscription, Assign):
            named = list(options.subscription.partitions)
        self._store: Store = pylogtable.open(path, storage_options=options.storage_options)
        self._named = named
        self._open: dict[str, Topic] = {}
        self._group = GroupPositions(options.group) if options.group is not None else None
        self._discover_at = 0.0
        self.views: dict[str, View] = {}
        self.logs: dict[str, Log] = {}

    def look(self) -> Mapping[str, Log]:
        """What there is now to read of each topic that there is."""
        self._discover()
        with ThreadPoolExecutor(max(1, min(TOPICS_AT_ONCE, len(self._named)))) as pool:
            found = dict(zip(self._named, pool.map(self._view, self._named), strict=True))
        self.views = {name: view for name, view in found.items() if view is not None}
        self.logs = {name: self._log(name, view) for name, view in self.views.items()}
        return self.logs

    def missing(self) -> list[str]:
        """Topics that are named and were not there at the last look."""
        return [name for name in self._named if name not in self.views]

    def tell(self, places: Places) -> None:
        """Say in the consumer group, if there is one, that all before these places was read."""
        if self._group is not None:
            self._group.tell(places, self._open)

    def _discover(self) -> None:
        if not isinstance(self._subscription, SubscribePattern):
            return
        began = time.monotonic()
        if began < self._discover_at:
            return
        pattern = self._subscription
        # Topics that have gone are still named: that they are missing is to be noticed.
        matching = [name for name in self._store.topics() if pattern.matches(name)]
        self._named = sorted({*self._named, *matching})
        ended = time.monotonic()
        self._discover_at = ended + (ended - began) * DISCOVERY_SHARE

    def _view(self, name: str) -> View | None:
        try:
            if name in self._open:
                return self._open[name].at()
        except TopicNotFoundError:
            # Deleted; what was created in its place is another topic.
            del self._open[name]
        try:
            topic = self._store.topic(name)
            view = topic.at()
        except TopicNotFoundError:
            return None
        check_asked(self._columns, {name: view})
        if self._group is not None:
            self._group.open(topic)
        self._open[name] = topic
        return view

    def _log(self, name: str, view: View) -> Log:
        starts, ends = view.start_offsets, view.end_offsets
        if isinstance(self._subscription, Assign):
            wanted = [p for p in self._subscription.partitions[name] if p in ends]
            starts, ends = {p: starts[p] for p in wanted}, {p: ends[p] for p in wanted}
        return Log(view.topic_id, starts, ends)
