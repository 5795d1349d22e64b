"""Dynamic members of one group poll, commit, die or are late, in any order, and commit any number
of times between two polls. Whoever gets a partition begins at its committed position. No record is
committed twice, no position goes back, and in the end every record is committed. Their hearts beat
at any moment, and change nothing but leases. Some are told of their partitions: before these are
given up, and of each just once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pylogtable import CommitConflictError, Consumer
from pylogtable.format.group_model import GroupState
from pylogtable.groups.dynamic_member import DynamicMember
from pylogtable.groups.membership_plan import owned
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, ints, kafka, make_store
from tests.depth import rounds

LEASE_MS = 1_000
PARTITIONS = 3
ONCE = settings(
    max_examples=200,
    stateful_step_count=40,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@dataclass
class Worker:
    consumer: Consumer
    #: The next offset of each partition that it has polled and not lost since.
    next: dict[int, int] = field(default_factory=dict)
    #: The same, as a process remembers it that does not know what it has lost.
    remembered: dict[int, int] = field(default_factory=dict)
    #: The partitions that it was told it has; None if it does not listen.
    told: set[int] | None = None

    def owned(self) -> set[int]:
        """The partitions whose records it would return now, without reading the group's state."""
        member = self.consumer._member
        assert isinstance(member, DynamicMember)
        return set(member.tenures) if member.is_lease_valid() else set()


class Consumers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.topic = make_store(MemoryStore(), self.clock).create_topic("t", PARTITIONS)
        self.workers: list[Worker] = []
        self.committed: dict[int, int] = {}
        self.group = self.topic.group("g")

    @initialize()
    def begin(self) -> None:
        for partition in range(PARTITIONS):
            self.produce(20, partition)

    @rule(count=st.integers(1, 8), partition=st.integers(0, PARTITIONS - 1))
    def produce(self, count: int, partition: int) -> None:
        self.topic.append(kafka(["k"] * count, partition=ints(*[partition] * count)))

    @precondition(lambda self: len(self.workers) < 3)
    @rule(name=st.sampled_from("ab"), listens=st.booleans())
    def start(self, name: str, listens: bool) -> None:
        told: set[int] = set()

        def assign(consumer: Consumer, partitions: tuple[int, ...]) -> None:
            assert not told.intersection(partitions)
            told.update(partitions)

        def revoke(consumer: Consumer, partitions: tuple[int, ...]) -> None:
            owners = self.owners()
            assert all(owners[number] == consumer.member for number in partitions)
            lose(consumer, partitions)

        def lose(consumer: Consumer, partitions: tuple[int, ...]) -> None:
            assert told.issuperset(partitions)
            told.difference_update(partitions)

        heard = {"on_assign": assign, "on_revoke": revoke, "on_lost": lose} if listens else {}
        consumer = self.topic.consumer("g", name, lease_ms=LEASE_MS, **heard)  # type: ignore[arg-type]
        self.workers.append(Worker(consumer, told=told if listens else None))

    @rule(ms=st.sampled_from([50, 100, 350, 700, LEASE_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.tick(ms)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), count=st.integers(1, 9))
    def poll(self, data: st.DataObject, count: int) -> None:
        self.read(self.pick(data), count)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        self.pick(data).consumer.assignment()

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        """Only polls and commits change who owns what. A beat that comes too late leaves the rest
        to them."""
        worker = self.pick(data)
        member = worker.consumer._member
        assert isinstance(member, DynamicMember)
        before = self.owners(), member.member_id, dict(member.tenures)
        was_held = member.is_lease_valid()
        member.beat()
        assert before == (self.owners(), member.member_id, dict(member.tenures))
        if was_held:
            assert member.is_lease_valid()
            self.clock.tick(LEASE_MS * 2 // 3 - 1)
            assert member.is_lease_valid()

    def owners(self) -> dict[int, str | None]:
        rows = self.group.describe().rows if self.topic.groups() else ()
        return {row.partition: row.member for row in rows}

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_polled(self.pick(data))

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def commit_what_it_remembers(self, data: st.DataObject) -> None:
        self.commit_remembered(self.pick(data), data)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), rounds=st.integers(1, 3), commits=st.booleans())
    def a_guest_comes_and_goes(self, data: st.DataObject, rounds: int, commits: bool) -> None:
        """Beside a member that polls only once, and commits again and again."""
        worker = self.pick(data)
        self.read(worker, data.draw(st.integers(1, 9)))
        guest = Worker(self.topic.consumer("g", "guest", lease_ms=LEASE_MS))
        self.workers.append(guest)
        for _ in range(rounds):
            self.read(guest, data.draw(st.integers(1, 9)))
            self.commit_remembered(worker, data)
            self.clock.tick(LEASE_MS // 10)
        self.leave(guest, commits=commits)
        self.commit_remembered(worker, data)

    def commit_polled(self, worker: Worker) -> None:
        was_held = worker.consumer._member.is_lease_valid()
        try:
            told = worker.consumer.commit()
        except CommitConflictError:
            assert not was_held
            return
        assert told == self.uncommitted(worker)
        self.note(told)

    def commit_remembered(self, worker: Worker, data: st.DataObject) -> None:
        """Commit one partition by a position of its own, though it may have lost the partition."""
        if not worker.remembered:
            return
        partition, at = data.draw(st.sampled_from(sorted(worker.remembered.items())))
        may_commit = worker.consumer._member.is_lease_valid() and partition in worker.next
        try:
            worker.consumer.commit({partition: at})
        except CommitConflictError:
            assert not may_commit
            return
        assert may_commit
        self.note({partition: at})
        self.what_another_owns_is_lost()

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), commits=st.booleans())
    def close(self, data: st.DataObject, commits: bool) -> None:
        self.leave(self.pick(data), commits=commits)

    def leave(self, worker: Worker, *, commits: bool) -> None:
        self.what_another_owns_is_lost()
        self.workers.remove(worker)
        wanted = self.uncommitted(worker) if commits and worker.consumer.member else {}
        try:
            worker.consumer.close(commit=commits)
        except CommitConflictError:
            return
        self.note(wanted)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.workers.remove(self.pick(data))

    def pick(self, data: st.DataObject) -> Worker:
        return self.workers[data.draw(st.integers(0, len(self.workers) - 1))]

    def read(self, worker: Worker, count: int) -> int:
        """Poll. Each partition goes on where this member was, or else at its position."""
        table = worker.consumer.poll(max_records=count)
        self.what_another_owns_is_lost()
        if worker.told is not None:
            assert worker.told == set(worker.consumer._tenures)
        for partition in worker.owned():
            worker.next.setdefault(partition, self.committed.get(partition, 0))
        places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        for partition, offset in places:
            assert offset == worker.next[partition]
            worker.next[partition] = offset + 1
        worker.remembered |= worker.next
        return table.num_rows

    def uncommitted(self, worker: Worker) -> dict[int, int]:
        return {n: at for n, at in worker.next.items() if at != self.committed.get(n)}

    def note(self, offsets: dict[int, int]) -> None:
        for partition, at in offsets.items():
            assert at >= self.committed.get(partition, 0)
        self.committed |= offsets

    @invariant()
    def what_another_owns_is_lost(self) -> None:
        """By the group's newest state, whatever the members believe."""
        owners = self.owners()
        for worker in self.workers:
            member = worker.consumer.member
            worker.next = {
                n: at for n, at in worker.next.items() if member and owners.get(n) == member
            }

    @invariant()
    def what_is_handed_out_has_one_owner(self) -> None:
        owned = [number for worker in self.workers for number in worker.owned()]
        assert len(owned) == len(set(owned))

    @invariant()
    def positions_are_what_was_committed(self) -> None:
        assert self.group.positions() == self.committed

    def teardown(self) -> None:
        """A last member reads the rest."""
        self.clock.tick(LEASE_MS)
        self.workers = [last := Worker(self.topic.consumer("g", "last", lease_ms=LEASE_MS))]
        while self.read(last, 100):
            pass
        self.note(last.consumer.commit())
        assert self.committed == self.topic.end_offsets()


def test_members_that_only_compare_what_they_own_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug that there was: a partition that came back counted as never lost."""

    def since_it_joined(held: dict[int, int], state: GroupState, name: str) -> dict[int, int]:
        return dict.fromkeys(owned(state, name), min(held.values(), default=state.number))

    monkeypatch.setattr("pylogtable.groups.dynamic_member.tenures", since_it_joined)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Consumers, settings=ONCE)


def test_beats_that_take_and_give_partitions_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DynamicMember, "_renewed", DynamicMember._shared)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Consumers, settings=ONCE)


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=rounds(30, deep=500), stateful_step_count=40)
