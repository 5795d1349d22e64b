"""Members of a group, with any order of events, stale states and lost races: a partition never has
two owners, and only its owner commits it, by positions that it has read as its owner."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from pylogtable.errors import CommitConflictError
from pylogtable.format.group_model import GroupChange, GroupState
from pylogtable.format.json_codec import decode_group, encode
from pylogtable.groups.membership_plan import (
    assign,
    check_tenures,
    heartbeat,
    join,
    leave,
    owned,
    tenures,
)
from tests.depth import rounds

NAMES = ["a", "b", "c", "d"]
LEASE_MS = 30


@dataclass
class Member:
    """What one process knows: the state it read last, and the state it wrote last."""

    read: GroupState | None = None
    written: GroupState | None = None
    partitions: int = 1
    #: By its own states: since when it owns its partitions, and the same at its last poll.
    held: dict[int, int] = field(default_factory=dict)
    polled: dict[int, int] = field(default_factory=dict)
    #: How many states there were at its last poll of a partition.
    polled_at: dict[int, int] = field(default_factory=dict)

    def owned(self, name: str, now_ms: int) -> set[int]:
        """The partitions it believes to own, by its last write and its lease."""
        held = self.written.members.get(name) if self.written else None
        return set() if held is None or held.lease_until_ms <= now_ms else set(held.owned)


class Membership(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.states: list[GroupState] = []
        self.members = {name: Member() for name in NAMES}
        self.partitions = 1
        self.committed: dict[int, int] = {}

    @initialize(partitions=st.integers(1, 7))
    def begin(self, partitions: int) -> None:
        self.partitions = partitions

    @property
    def newest(self) -> GroupState | None:
        return self.states[-1] if self.states else None

    def put(self, name: str, change: GroupChange | None) -> bool:
        """As the store does it: only the next number after the state that was read can be put."""
        member = self.members[name]
        number = 0 if member.read is None else member.read.number + 1
        if change is None or number != len(self.states):
            return False
        state = GroupState(
            **msgspec.structs.asdict(change),
            number=number,
            commit_id=f"{number}",
            topic_id="t",
            committed_at_ms=self.now_ms,
        )
        state = decode_group(encode(state), "g", number)  # no partition has two owners in it
        self.states.append(state)
        member.read = member.written = state
        member.held = tenures({} if change.operation == "join" else member.held, state, name)
        return True

    @rule(name=st.sampled_from(NAMES))
    def look(self, name: str) -> None:
        self.members[name].read = self.newest
        self.members[name].partitions = self.partitions

    @rule(name=st.sampled_from(NAMES), fresh=st.booleans())
    def joins(self, name: str, fresh: bool) -> None:
        if fresh:
            self.look(name)
        member = self.members[name]
        self.put(name, join(member.read, name, self.now_ms, LEASE_MS, member.partitions))

    @rule(name=st.sampled_from(NAMES), fresh=st.booleans())
    def heartbeats(self, name: str, fresh: bool) -> None:
        if fresh:
            self.look(name)
        member = self.members[name]
        try:
            change = heartbeat(member.read, name, self.now_ms, LEASE_MS, member.partitions)
        except CommitConflictError:
            return
        self.put(name, change)

    @rule(name=st.sampled_from(NAMES), fresh=st.booleans(), all_known=st.booleans())
    def commits(self, name: str, fresh: bool, all_known: bool) -> None:
        if fresh:
            self.look(name)
        member = self.members[name]
        before = self.newest
        believed = member.owned(name, self.now_ms)
        wanted = set(range(self.partitions)) if all_known else believed
        offsets = {number: len(self.states) + 1 for number in wanted}
        try:
            change = heartbeat(member.read, name, self.now_ms, LEASE_MS, member.partitions, offsets)
        except CommitConflictError:
            return
        if self.put(name, change):
            assert before is not None
            held = before.members[name]
            assert held.lease_until_ms > self.now_ms
            assert wanted <= set(held.owned)
            assert wanted <= believed
            self.committed.update(offsets)

    @rule(name=st.sampled_from(NAMES))
    def polls(self, name: str) -> None:
        member = self.members[name]
        if member.owned(name, self.now_ms):
            member.polled |= member.held
            member.polled_at |= dict.fromkeys(member.held, len(self.states))

    @rule(name=st.sampled_from(NAMES), fresh=st.booleans(), data=st.data())
    def commits_what_it_polled(self, name: str, fresh: bool, data: st.DataObject) -> None:
        """Some of it, by a process that may commit again before it polls again. What it commits,
        nobody else has owned since the poll."""
        if fresh:
            self.look(name)
        member = self.members[name]
        wanted = data.draw(st.sets(st.sampled_from(sorted(member.polled) or [0])))
        offsets = {number: len(self.states) + 1 for number in wanted}
        try:
            check_tenures(member.written, name, offsets, member.held, member.polled)
            change = heartbeat(member.read, name, self.now_ms, LEASE_MS, member.partitions, offsets)
        except CommitConflictError:
            return
        if self.put(name, change):
            for number in wanted:
                since = self.states[member.polled_at[number] - 1 : -1]
                assert all(number in owned(state, name) for state in since)
            self.committed.update(offsets)

    @rule(name=st.sampled_from(NAMES), fresh=st.booleans(), commits=st.booleans())
    def leaves(self, name: str, fresh: bool, commits: bool) -> None:
        if fresh:
            self.look(name)
        member = self.members[name]
        believed = member.owned(name, self.now_ms)
        offsets = {number: len(self.states) + 1 for number in believed} if commits else {}
        try:
            change = leave(member.read, name, self.now_ms, offsets)
        except CommitConflictError:
            return
        if self.put(name, change):
            self.committed.update(offsets)
            assert name not in self.states[-1].members

    @rule(ms=st.integers(1, 2 * LEASE_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def a_partition_is_added(self) -> None:
        if self.partitions < 12:
            self.partitions += 1

    @rule(chosen=st.permutations(NAMES), count=st.integers(1, 4))
    def quiet(self, chosen: list[str], count: int) -> None:
        """If no member joins, leaves or dies, two heartbeats of each settle the assignment."""
        self.now_ms += 2 * LEASE_MS
        for name in chosen[:count]:
            self.look(name)
            assert self.put(name, join(self.newest, name, self.now_ms, LEASE_MS, self.partitions))
        for name in [*chosen[:count], *reversed(chosen[:count])]:
            self.now_ms += 1
            self.look(name)
            change = heartbeat(self.newest, name, self.now_ms, LEASE_MS, self.partitions)
            assert self.put(name, change)
        shares = {name: self.members[name].owned(name, self.now_ms) for name in chosen[:count]}
        assert sorted(n for mine in shares.values() for n in mine) == list(range(self.partitions))
        counts = [len(mine) for mine in shares.values()]
        assert max(counts) - min(counts) <= 1

    @invariant()
    def a_partition_has_one_owner_at_most(self) -> None:
        believed = [
            number
            for name, member in self.members.items()
            for number in member.owned(name, self.now_ms)
        ]
        assert len(believed) == len(set(believed))

    @invariant()
    def members_know_since_when_they_own_their_partitions(self) -> None:
        for name, member in self.members.items():
            if member.written is not None:
                assert member.held.keys() == set(owned(member.written, name))
                for number, since in member.held.items():
                    mine = self.states[since : member.written.number + 1]
                    assert all(number in owned(state, name) for state in mine)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if self.newest is not None:
            positions = {number: p.offset for number, p in self.newest.positions.items()}
            assert positions == self.committed

    @invariant()
    def generations_count_changes_of_the_members(self) -> None:
        for before, after in pairwise(self.states[-2:]):
            changed = set(before.members) != set(after.members)
            assert after.generation == before.generation + changed


def test_members_that_only_compare_what_they_own_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug that there was: a partition that came back counted as never lost."""

    def since_it_joined(held: dict[int, int], state: GroupState, name: str) -> dict[int, int]:
        return dict.fromkeys(owned(state, name), min(held.values(), default=state.number))

    monkeypatch.setattr("tests.properties.test_membership.tenures", since_it_joined)
    once = settings(
        max_examples=200,
        stateful_step_count=40,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Membership, settings=once)


TestMembership = Membership.TestCase
TestMembership.settings = settings(max_examples=rounds(40, deep=2000), stateful_step_count=40)


@st.composite
def ownerships(draw: st.DrawFn) -> tuple[dict[str, list[int]], int]:
    partitions = draw(st.integers(0, 30))
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    owner = draw(st.lists(st.sampled_from([None, *names]), min_size=35, max_size=35))
    owned = {name: [n for n in range(35) if owner[n] == name] for name in names}
    return owned, partitions


@given(ownerships())
def test_shares_are_even_complete_sticky_and_stable(
    given: tuple[dict[str, list[int]], int],
) -> None:
    owned, partitions = given
    shares = assign(owned, partitions)
    known = set(range(partitions)).union(*owned.values())
    assert sorted(n for share in shares.values() for n in share) == sorted(known)
    counts = [len(share) for share in shares.values()]
    assert max(counts) - min(counts) <= 1
    for name, share in shares.items():
        assert list(share) == sorted(share)
        assert len(set(share) & set(owned[name])) == min(len(owned[name]), len(share))
    least, more = divmod(len(known), len(owned))
    kept = sum(len(set(share) & set(owned[name])) for name, share in shares.items())
    rich = sum(len(mine) > least for mine in owned.values())
    assert kept == sum(min(len(mine), least) for mine in owned.values()) + min(more, rich)
    assert assign(shares, partitions) == shares
    assert assign(dict(reversed(owned.items())), partitions) == shares
