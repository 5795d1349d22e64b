"""A stream's positions told to a consumer group, so that its lag can be seen from outside of Spark.

The checkpoint alone decides where a stream goes on, so nothing that happens here makes it fail.
"""

from __future__ import annotations

import warnings

from pylogtable import Group, LogTableError, Topic
from pyspark_pylogtable.stream.offsets import Place, Places


class GroupPositions:
    """The group called `name` in each topic of a stream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._groups: dict[str, Group] = {}
        self._told: Places = {}

    def open(self, topic: Topic) -> None:
        """Also for a topic that took the place of another; a bad name is found here."""
        self._groups[topic.name] = topic.group(self._name)
        self._told.pop(topic.name, None)

    def tell(self, places: Places, topics: dict[str, Topic]) -> None:
        for name, place in places.items():
            topic = topics.get(name)
            if topic is not None and topic.topic_id == place.topic_id:
                self._tell(topic, place)

    def _tell(self, topic: Topic, place: Place) -> None:
        told = self._told.get(topic.name)
        known = told.offsets if told else {}
        moved = {p: at for p, at in place.offsets.items() if known.get(p) != at}
        if not moved:
            return
        try:
            self._groups[topic.name].commit(moved)
        except LogTableError as error:
            # Looked at anew the next time, it is ours again if somebody else had moved it.
            self.open(topic)
            warnings.warn(
                f"the positions of this stream were not told to group {self._name!r} of topic "
                f"{topic.name!r}: {error} The stream goes on, its checkpoint is what counts.",
                stacklevel=2,
            )
            return
        self._told[topic.name] = place
