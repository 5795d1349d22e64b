"""What a mirror brings besides records: positions of groups, and the txns of the source.

A group of the copy belongs to the mirror until somebody else changes it: then a consumer goes on
there, and the positions at the source no longer count [MIR-8].
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pylogtable.append.report import placed_by
from pylogtable.errors import LogTableError
from pylogtable.format.group_model import GroupChange, GroupPosition, GroupState
from pylogtable.format.model import Commit, MirroredTxn, TxnMark
from pylogtable.format.snapshot import Snapshot
from pylogtable.log.commits import Commits
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


def new_txns(source: Snapshot, commits: Commits, copy: Snapshot) -> Iterator[MirroredTxn]:
    """The last txn of every application that the copy does not have, with its offsets."""
    for app_id, mark in sorted(source.txns.items()):
        known = copy.txns.get(app_id)
        if known is None or known.txn_version < mark.txn_version:
            yield _carried(app_id, mark, commits.read(mark.commit_version))


def _carried(app_id: str, mark: TxnMark, commit: Commit | None) -> MirroredTxn:
    carried = () if commit is None else commit.txns
    found = next((txn for txn in carried if txn.app_id == app_id), None)
    if commit is None or found is None:
        # Its offsets are lost, but a repeat must not append its records once more.
        return MirroredTxn(app_id=app_id, version=mark.txn_version)
    if isinstance(found, MirroredTxn):
        return found
    offsets, records = placed_by(commit, found)
    return MirroredTxn(
        app_id=app_id,
        version=found.version,
        origin=found.origin,
        note=found.note,
        offsets=offsets,
        records=records,
    )
