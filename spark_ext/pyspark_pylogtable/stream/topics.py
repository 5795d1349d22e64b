"""The topics that a stream reads, kept open while it runs.

An open topic reads only new commits on each refresh, so the cost of a trigger depends on what was
appended since the last one. Topics that match a pattern are looked for less often, because that
lists the store.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql.types import StructType

import pylogtable
from pylogtable import (
    Group,
    LogTableError,
    SchemaMismatchError,
    Store,
    Topic,
    TopicNotFoundError,
    View,
    split_topic_url,
)
from pyspark_pylogtable.columns import check_requested, ids_of
from pyspark_pylogtable.request.options import Options
from pyspark_pylogtable.request.subscription import Assign, Subscribe, SubscribePattern
from pyspark_pylogtable.stream.offsets import Available, StreamOffsets, TopicOffsets


class GroupPositions:
    """The group called `name` in each topic of a stream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._groups: dict[str, Group] = {}
        self._committed: StreamOffsets = {}

    def open(self, topic: Topic) -> None:
        """Open the group in a new or recreated topic. Raises if the group name is not valid."""
        self._groups[topic.name] = topic.group(self._name)
        self._committed.pop(topic.name, None)

    def commit(self, offsets: StreamOffsets, topics: dict[str, Topic]) -> None:
        """Commit the offsets of the topics that still exist."""
        for name, of_topic in offsets.items():
            topic = topics.get(name)
            if topic is not None and topic.topic_id == of_topic.topic_id:
                self._commit(topic, of_topic)

    def _commit(self, topic: Topic, of_topic: TopicOffsets) -> None:
        group, committed = self._groups[topic.name], self._committed.get(topic.name)
        try:
            known = committed.offsets if committed else group.positions()
            moved = {p: at for p, at in of_topic.offsets.items() if known.get(p) != at}
            if moved:
                group.commit(moved)
        except LogTableError as error:
            # Somebody else may have moved the group. Open it again, so that the next commit wins.
            self.open(topic)
            warnings.warn(
                f"the positions of this stream were not committed to group {self._name!r} of topic "
                f"{topic.name!r}: {error} The stream continues; only its checkpoint matters to it.",
                stacklevel=2,
            )
            return
        self._committed[topic.name] = of_topic


TOPICS_AT_ONCE = 8
#: After a search for new topics, a stream waits this many times as long as the search took.
DISCOVERY_PAUSE = 20


class StreamTopics:
    """The topics that the options name; each must have the columns of the stream.

    A name must mean the same column as long as the stream runs. `ids` has the ids of the columns by
    topic id, for topics that were looked at before; `ids_of` makes them."""

    def __init__(
        self, options: Options, columns: StructType, ids: Mapping[str, Mapping[str, int | None]]
    ) -> None:
        path = options.require_path()
        self._columns = columns
        self._ids = dict(ids)
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
        self.available: dict[str, Available] = {}

    def refresh(self) -> Mapping[str, Available]:
        """What can be read now of each topic that exists."""
        self._discover()
        with ThreadPoolExecutor(max(1, min(TOPICS_AT_ONCE, len(self._named)))) as pool:
            found = dict(zip(self._named, pool.map(self._view, self._named), strict=True))
        self.views = {name: view for name, view in found.items() if view is not None}
        self.available = {name: self._available(name, view) for name, view in self.views.items()}
        return self.available

    def missing(self) -> list[str]:
        """Named topics that did not exist at the last refresh."""
        return [name for name in self._named if name not in self.views]

    def commit_to_group(self, offsets: StreamOffsets) -> None:
        """Commit these offsets to the consumer group, if there is one."""
        if self._group is not None:
            self._group.commit(offsets, self._open)

    def _discover(self) -> None:
        if not isinstance(self._subscription, SubscribePattern):
            return
        began = time.monotonic()
        if began < self._discover_at:
            return
        pattern = self._subscription
        # Deleted topics keep their place in the list, so that their absence is noticed.
        matching = [name for name in self._store.topics() if pattern.matches(name)]
        self._named = sorted({*self._named, *matching})
        ended = time.monotonic()
        self._discover_at = ended + (ended - began) * DISCOVERY_PAUSE

    def _view(self, name: str) -> View | None:
        try:
            if name in self._open:
                known = self._open[name].at()
                self._check_ids(name, known)
                return known
        except TopicNotFoundError:
            # The topic was deleted. A topic that has its name now is a different one.
            del self._open[name]
        try:
            topic = self._store.topic(name)
            view = topic.at()
        except TopicNotFoundError:
            return None
        self._check_ids(name, view)
        check_requested(self._columns, {name: view})
        if self._group is not None:
            self._group.open(topic)
        self._open[name] = topic
        return view

    def _check_ids(self, name: str, view: View) -> None:
        """Raise if a name means another column than when the stream began."""
        ids = ids_of(self._columns, view)
        began = self._ids.setdefault(view.topic_id, ids)
        changed = [column for column, number in ids.items() if number != began[column]]
        if changed:
            raise SchemaMismatchError(
                f"[STREAM_COLUMNS_CHANGED] column(s) {', '.join(changed)} of topic {name!r} were "
                "renamed or dropped while this query ran, and a query keeps the columns it began "
                "with. Restart it with the same checkpoint: it goes on where it stopped, with the "
                f"columns that the topic has now: {', '.join(view.schema.names)}"
            )

    def _available(self, name: str, view: View) -> Available:
        starts, ends = view.start_offsets, view.end_offsets
        if isinstance(self._subscription, Assign):
            wanted = [p for p in self._subscription.partitions[name] if p in ends]
            starts, ends = {p: starts[p] for p in wanted}, {p: ends[p] for p in wanted}
        return Available(view.topic_id, starts, ends)
