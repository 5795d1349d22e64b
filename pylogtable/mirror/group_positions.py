"""Copies the positions of consumer groups to a copy of their topic.

A group of the copy belongs to the mirror until somebody else changes it: then a consumer goes on
there, and the positions at the source no longer count [MIR-8].
"""

from __future__ import annotations

import msgspec

from pylogtable.errors import LogTableError
from pylogtable.format.group_model import GroupChange, GroupPosition, GroupState
from pylogtable.log.group_log import GroupLog
from pylogtable.log.group_objects import load_groups
from pylogtable.log.topic_log import TopicLog

#: The operation of states that a mirror has put.
OPERATION = "mirror"


def copy_groups(
    source: TopicLog, copy: TopicLog
) -> tuple[dict[str, dict[int, int]], dict[str, str]]:
    """Set the positions of all groups of the source in the copy. A position beyond the end of the
    copy becomes its end: nothing is missed when the rest comes. Returns the positions that are
    set, and why a group was left out."""
    found = load_groups(source.store, source.known.topic_id)
    positions: dict[str, dict[int, int]] = {}
    left_out = {name: str(error) for name, error in found.damaged.items()}
    ends = copy.known.end_offsets
    for name, state in found.states.items():
        wanted = {
            number: msgspec.structs.replace(position, offset=min(position.offset, ends[number]))
            for number, position in sorted(state.positions.items())
            if number in ends
        }
        try:
            log = GroupLog(copy.store, copy.runtime, name, copy.known.topic_id)
            why = _set(log, wanted)
        except LogTableError as error:
            why = str(error)
        if why is None:
            positions[name] = {number: at.offset for number, at in wanted.items()}
        else:
            left_out[name] = why
    return positions, left_out


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
