"""How partitions move from member to member, step by step."""

from __future__ import annotations

import msgspec
import pytest

from pylogtable.errors import CommitConflictError
from pylogtable.format.group_model import GroupChange, GroupPosition, GroupState
from pylogtable.groups.membership_plan import assign, heartbeat, join, leave

LEASE = 30


def after(state: GroupState | None, change: GroupChange | None) -> GroupState:
    assert change is not None
    number = 0 if state is None else state.number + 1
    return GroupState(
        **msgspec.structs.asdict(change),
        number=number,
        commit_id=str(number),
        topic_id="t",
        committed_at_ms=0,
    )


def owned(state: GroupState) -> dict[str, list[int]]:
    return {name: list(held.owned) for name, held in state.members.items()}


def test_a_second_member_gets_its_half_in_two_steps() -> None:
    state = after(None, join(None, "a", 0, LEASE, 4))
    assert owned(state) == {"a": [0, 1, 2, 3]}
    state = after(state, join(state, "b", 1, LEASE, 4))
    assert owned(state) == {"a": [0, 1, 2, 3], "b": []}
    state = after(state, heartbeat(state, "b", 2, LEASE, 4))
    assert owned(state)["b"] == []
    state = after(state, heartbeat(state, "a", 3, LEASE, 4, {2: 7, 3: 8}, "bye"))
    assert owned(state) == {"a": [0, 1], "b": []}
    entry = GroupPosition(offset=7, committed_at_ms=3, metadata="bye")
    assert state.positions == {
        2: entry,
        3: GroupPosition(offset=8, committed_at_ms=3, metadata="bye"),
    }
    assert state.operation == "commit"
    state = after(state, heartbeat(state, "b", 4, LEASE, 4))
    assert owned(state) == {"a": [0, 1], "b": [2, 3]}
    assert state.members["b"].lease_until_ms == 4 + LEASE
    assert state.generation == 2
    state = after(state, leave(state, "a", 5))
    assert owned(state) == {"b": [2, 3]}
    state = after(state, heartbeat(state, "b", 6, LEASE, 5))
    assert owned(state) == {"b": [0, 1, 2, 3, 4]}
    assert state.generation == 3


@pytest.mark.parametrize("by", ["join", "heartbeat"])
def test_a_member_is_removed_when_its_lease_ends_and_not_before(by: str) -> None:
    state = after(None, join(None, "a", 0, LEASE, 2))
    state = after(state, join(state, "b", 5, LEASE, 2))

    def step(now_ms: int) -> GroupState:
        if by == "join":
            return after(state, join(state, "c", now_ms, LEASE, 2))
        return after(state, heartbeat(state, "b", now_ms, LEASE, 2))

    assert "a" in step(LEASE - 1).members
    assert "a" not in step(LEASE).members


def test_a_member_whose_lease_ended_cannot_commit() -> None:
    state = after(None, join(None, "a", 0, LEASE, 2))
    with pytest.raises(CommitConflictError, match="ran out 0 ms ago"):
        heartbeat(state, "a", LEASE, LEASE, 2, {0: 1})
    with pytest.raises(CommitConflictError, match="ran out"):
        leave(state, "a", LEASE, {0: 1})
    other = after(state, join(state, "b", LEASE, LEASE, 2))
    with pytest.raises(CommitConflictError, match="no longer in the group"):
        heartbeat(other, "a", LEASE, LEASE, 2)
    assert leave(other, "a", LEASE) is None


def test_only_the_owner_commits() -> None:
    state = after(None, join(None, "a", 0, LEASE, 2))
    state = after(state, join(state, "b", 1, LEASE, 2))
    with pytest.raises(
        CommitConflictError, match="partition 1 is not owned by member 'b', but by 'a'"
    ):
        heartbeat(state, "b", 2, LEASE, 2, {1: 5})


def test_a_member_that_does_not_know_new_partitions_leaves_them_to_their_owner() -> None:
    state = after(None, join(None, "a", 0, LEASE, 6))
    state = after(state, join(state, "b", 0, LEASE, 2))
    state = after(state, heartbeat(state, "a", 1, LEASE, 2))
    assert owned(state) == {"a": [0, 1, 2], "b": []}


def test_setting_the_clock_back_does_not_shorten_a_lease() -> None:
    state = after(None, join(None, "a", 100, LEASE, 1))
    state = after(state, heartbeat(state, "a", 50, LEASE, 1))
    assert state.members["a"].lease_until_ms == 100 + LEASE


@pytest.mark.parametrize(
    ("before", "partitions", "shares"),
    [
        ({"a": []}, 3, {"a": (0, 1, 2)}),
        ({"b": [], "a": []}, 3, {"a": (0, 1), "b": (2,)}),
        ({"a": [0], "b": [1, 2]}, 3, {"a": (0,), "b": (1, 2)}),
        ({"a": [0, 1, 2, 3], "b": []}, 4, {"a": (0, 1), "b": (2, 3)}),
        ({"a": [4, 5], "b": [0]}, 6, {"a": (1, 4, 5), "b": (0, 2, 3)}),
        ({"a": [], "b": [], "c": []}, 2, {"a": (0,), "b": (1,), "c": ()}),
        ({}, 4, {}),
    ],
)
def test_shares_are_even_and_members_keep_their_partitions(
    before: dict[str, list[int]], partitions: int, shares: dict[str, tuple[int, ...]]
) -> None:
    assert assign(before, partitions) == shares
