"""Checks of consumer groups: what members were given, and which positions they committed. Pure.

Clients never reset a group, and their clocks agree. So the position of a partition only grows, and
a member that is given records begins at it. While a member has a partition, nobody else moves its
position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pylogtable.prove.findings import Findings
from pylogtable.prove.history import COMMIT, FAILED, OK, POLL, Operation
from pylogtable.prove.records import HighWater, ints


class _Given(NamedTuple):
    """Records of one partition that a poll returned: offsets `[start, end)`."""

    operation: Operation
    start: int
    end: int


class _Moved(NamedTuple):
    """A commit of one partition, from where the member began to read to the position."""

    operation: Operation
    start: int
    position: int


class _Partition:
    """What a group did with one partition."""

    def __init__(self) -> None:
        self.polls: list[_Given] = []
        self.commits: list[_Moved] = []


def check_groups(
    operations: Sequence[Operation],
    positions: Mapping[str, Mapping[int, int]],
    findings: Findings,
) -> None:
    """Check each partition of each group by itself. `positions` are those at the end."""
    for (group, number), partition in sorted(_by_partition(operations).items()):
        where = f"group {group}, partition {number}"
        _check_polls(where, partition, findings)
        _check_positions(where, partition, positions.get(group, {}).get(number), findings)
        _check_owners(where, partition, findings)
        _check_unread(where, partition, findings)


def _by_partition(operations: Sequence[Operation]) -> dict[tuple[str, int], _Partition]:
    found: dict[tuple[str, int], _Partition] = defaultdict(_Partition)
    for one in operations:
        if one.kind == POLL and one.outcome == OK:
            spans: dict[int, tuple[int, int]] = {}
            for partition, offset, _, _, count in one.told["rows"]:
                start = spans.get(partition, (offset, 0))[0]
                spans[partition] = (start, offset + count)
            for partition, span in spans.items():
                found[one.asked["group"], partition].polls.append(_Given(one, *span))
        elif one.kind == COMMIT and one.outcome != FAILED:
            # Without an answer, the commit may have moved any of the positions that it asked for.
            told = one.told["positions"] if one.outcome == OK else one.asked["to"]
            for number, position in told.items():
                start = one.asked["from"].get(number, position)
                moved = _Moved(one, start, position)
                found[one.asked["group"], int(number)].commits.append(moved)
    return found


def _is_ok(moved: _Moved) -> bool:
    return moved.operation.outcome == OK


def _high_water(commits: Iterable[_Moved], *, from_begin: bool) -> HighWater:
    """The highest position over time: known once a commit has ended, possible once it began."""
    rows = list(commits)
    at = [one.operation.begun if from_begin else one.operation.ended for one in rows]
    return HighWater(
        np.zeros(len(rows), np.int64),
        np.array(at, np.float64),
        ints(one.position for one in rows),
        np.arange(len(rows), dtype=np.int64),
    )


def _check_polls(where: str, partition: _Partition, findings: Findings) -> None:
    """A poll goes on where this member ended, or at the position of the group."""
    sure = [one for one in partition.commits if _is_ok(one)]
    polls = partition.polls
    begun = np.array([poll.operation.begun for poll in polls], np.float64)
    ended = np.array([poll.operation.ended for poll in polls], np.float64)
    known, knower = _high_water(sure, from_begin=False).before(0, begun)
    possible, _ = _high_water(partition.commits, from_begin=True).before(0, ended)
    reached: dict[str, int] = {}
    for at, poll in enumerate(polls):
        process = poll.operation.process
        if poll.start < known[at]:
            findings.add(
                "poll-went-back",
                f"{where}: a member was given {poll.start}, after {known[at]} was committed",
                [sure[int(knower[at])].operation, poll.operation],
            )
        furthest = max(reached.get(process, 0), int(possible[at]))
        if poll.start > furthest:
            findings.add(
                "poll-skipped",
                f"{where}: a member was given {poll.start}, and not what is from {furthest} on",
                [poll.operation],
            )
        reached[process] = max(reached.get(process, 0), poll.end)


def _check_positions(
    where: str, partition: _Partition, at_end: int | None, findings: Findings
) -> None:
    """Positions grow, and the last one is there at the end."""
    sure = [one for one in partition.commits if _is_ok(one)]
    begun = np.array([one.operation.begun for one in sure], np.float64)
    known, knower = _high_water(sure, from_begin=False).before(0, begun)
    for at, moved in enumerate(sure):
        if moved.position < known[at]:
            findings.add(
                "position-went-back",
                f"{where}: {moved.position} was committed after {known[at]}",
                [sure[int(knower[at])].operation, moved.operation],
            )
    highest = max(sure, key=lambda one: one.position, default=None)
    if highest is not None and (at_end is None or at_end < highest.position):
        findings.add(
            "position-went-back",
            f"{where}: the position is {at_end} at the end, and {highest.position} was committed",
            [highest.operation],
        )


def _check_owners(where: str, partition: _Partition, findings: Findings) -> None:
    """Each record is in one commit: a member that lost its partition cannot commit any more."""
    sure = sorted(filter(_is_ok, partition.commits), key=lambda one: (one.start, one.position))
    furthest: _Moved | None = None
    for moved in sure:
        if moved.start >= moved.position:
            continue
        if furthest is not None and moved.start < furthest.position:
            findings.add(
                "two-owners",
                f"{where}: {moved.start} to {min(moved.position, furthest.position)} was committed "
                "by two members",
                [furthest.operation, moved.operation],
            )
        if furthest is None or moved.position > furthest.position:
            furthest = moved


def _check_unread(where: str, partition: _Partition, findings: Findings) -> None:
    """Every record below a position was given to a member."""
    reached = 0
    for poll in sorted(partition.polls, key=lambda one: one.start):
        if poll.start > reached:
            break
        reached = max(reached, poll.end)
    for moved in partition.commits:
        if _is_ok(moved) and moved.position > reached:
            findings.add(
                "unread-position",
                f"{where}: {moved.position} was committed, and {reached} was given to nobody",
                [moved.operation],
            )
