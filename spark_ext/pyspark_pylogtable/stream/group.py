"""Commits a stream's positions to a consumer group, so that its lag is visible outside Spark.

Only the checkpoint decides where a stream continues, so a failure here is a warning.
"""

from __future__ import annotations

import warnings

from pylogtable import Group, LogTableError, Topic
from pyspark_pylogtable.stream.offsets import StreamOffsets, TopicOffsets


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
