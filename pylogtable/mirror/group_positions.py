"""Copies the positions of consumer groups to a copy of their topic.

A group of the copy belongs to the mirror until somebody else changes it: then a consumer goes on
there, and the positions at the source no longer count [MIR-8].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from pylogtable.errors import LogTableError
from pylogtable.format.group_model import GroupChange, GroupPosition, GroupState
from pylogtable.log.group_log import GroupLog
from pylogtable.log.group_objects import load_groups
from pylogtable.log.topic_log import TopicLog
from pylogtable.storage.base import ObjectStore

#: The operation of states that a mirror has put.
OPERATION = "mirror"


@dataclass
class CopiedGroups:
    """The positions that are set in the copy, and why a group was left out."""

    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def copy_groups(
    source: tuple[ObjectStore, TopicLog], target: tuple[ObjectStore, TopicLog]
) -> CopiedGroups:
    """Set the positions of all groups of the source in the copy. A position beyond the end of the
    copy becomes its end: nothing is missed when the rest comes."""
    found = load_groups(source[0], source[1].known.topic_id)
    done = CopiedGroups(left_out={name: str(error) for name, error in found.damaged.items()})
    ends = target[1].known.end_offsets
    for name, state in found.states.items():
        wanted = {
            number: msgspec.structs.replace(position, offset=min(position.offset, ends[number]))
            for number, position in sorted(state.positions.items())
            if number in ends
        }
        try:
            log = GroupLog(target[0], target[1].runtime, name, target[1].known.topic_id)
            why = _set(log, wanted)
        except LogTableError as error:
            why = str(error)
        if why is None:
            done.positions[name] = {number: at.offset for number, at in wanted.items()}
        else:
            done.left_out[name] = why
    return done


def _set(log: GroupLog, wanted: dict[int, GroupPosition]) -> str | None:
    """Set the positions; or why not."""
    why = None

    def plan(state: GroupState | None, now_ms: int) -> GroupChange | None:
        nonlocal why
        why = None
        if state is not None:
            if state.operation != OPERATION:
                why = "somebody has used this group in the copy; it keeps its positions"
            if why is not None or state.positions == wanted:
                return None
        generation = 0 if state is None else state.generation
        return GroupChange(operation=OPERATION, positions=wanted, generation=generation)

    log.change(plan)
    return why
