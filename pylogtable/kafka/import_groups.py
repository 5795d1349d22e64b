"""Copies the committed offsets of Kafka's consumer groups to groups of the imported topic.

A group belongs to the import until a consumer here commits: then Kafka's offsets no longer count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pylogtable.errors import InvalidRequestError
from pylogtable.kafka.import_plan import group_positions
from pylogtable.topic import Topic

#: The metadata of a group's position that came from Kafka, and that no consumer here has moved.
IMPORTED = "imported from Kafka"

#: What an import that was to copy all groups says if there was none.
ALL_GROUPS = "consumer groups"
NO_GROUPS = (
    "Kafka lists none that has committed offsets in this topic. It lists those only that you may "
    "DESCRIBE"
)


@dataclass
class ImportedGroups:
    """The positions that are set here, and why a group was left out."""

    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def set(
        self,
        topic: Topic,
        found: Mapping[str, Mapping[int, int]],
        asked: Sequence[str] | None,
        ends: Mapping[int, int],
    ) -> None:
        """Set the positions that were found in Kafka, of these groups or of all (None), unless a
        consumer here has moved them."""
        names = sorted(found) if asked is None else asked
        self.left_out.pop(ALL_GROUPS, None)
        if not names:
            self.left_out[ALL_GROUPS] = NO_GROUPS
        starts = topic.start_offsets()
        for name in names:
            positions = group_positions(found.get(name, {}), starts, ends)
            why = _set_positions(topic, name, positions)
            if why is None:
                self.positions[name] = positions
                self.left_out.pop(name, None)
            else:
                self.left_out[name] = why


def _set_positions(topic: Topic, name: str, positions: Mapping[int, int]) -> str | None:
    """Set the positions of a group here; or why not."""
    if not positions:
        return "Kafka has no committed offsets of this group for the topic"
    try:
        group = topic.group(name)
        if name in topic.groups():
            rows = [row for row in group.describe() if row.current_offset is not None]
            if any(row.metadata != IMPORTED for row in rows):
                return "a consumer has committed a position of this group here"
            if {row.partition: row.current_offset for row in rows} == positions:
                return None
        group.commit(positions, IMPORTED)
    except InvalidRequestError as error:
        return str(error)
    return None
