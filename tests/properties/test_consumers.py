"""Dynamic members of one group poll, commit, die or are late, in any order. No record is committed
twice, and in the end every record is committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pylogtable import CommitConflictError, Consumer
from pylogtable.groups.member import DynamicMember
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, ints, kafka, make_store
from tests.depth import rounds

LEASE_MS = 1_000
PARTITIONS = 3

Place = tuple[int, int]


@dataclass
class Worker:
    consumer: Consumer
    polled: list[Place] = field(default_factory=list)  # and not committed

    def owned(self) -> set[int]:
        """The partitions whose records it would return now, without reading the group's state."""
        member = self.consumer._member
        assert isinstance(member, DynamicMember)
        if member.member_id is None or member._state is None or not member.is_lease_valid():
            return set()
        return set(member._state.members[member.member_id].owned)


class Consumers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.topic = make_store(MemoryStore(), self.clock).create_topic("t", PARTITIONS)
        self.workers: list[Worker] = []
        self.committed: set[Place] = set()
        self.group = self.topic.group("g")

    @initialize()
    def begin(self) -> None:
        self.produce(10, 0)

    @rule(count=st.integers(1, 8), partition=st.integers(0, PARTITIONS - 1))
    def produce(self, count: int, partition: int) -> None:
        self.topic.append(kafka(["k"] * count, partition=ints(*[partition] * count)))

    @precondition(lambda self: len(self.workers) < 3)
    @rule(name=st.sampled_from("ab"))
    def start(self, name: str) -> None:
        self.workers.append(Worker(self.topic.consumer("g", name, lease_ms=LEASE_MS)))

    @rule(ms=st.sampled_from([50, 100, 350, 700, LEASE_MS]))
    def time_passes(self, ms: int) -> None:
        self.clock.tick(ms)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), count=st.integers(1, 9))
    def poll(self, data: st.DataObject, count: int) -> None:
        worker = self.pick(data)
        session = worker.consumer._member.session
        table = worker.consumer.poll(count)
        owned = worker.consumer._assigned
        if worker.consumer._member.session != session:
            worker.polled = []
        worker.polled = [place for place in worker.polled if place[0] in owned]
        places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        worker.polled += places
        assert not self.committed & set(worker.polled)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        worker = self.pick(data)
        was_held = worker.consumer._member.is_lease_valid()
        try:
            worker.consumer.commit()
        except CommitConflictError:
            assert not was_held
            worker.polled = []
            return
        self.note(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), commits=st.booleans())
    def close(self, data: st.DataObject, commits: bool) -> None:
        worker = self.pick(data)
        self.workers.remove(worker)
        try:
            worker.consumer.close(commit=commits)
        except CommitConflictError:
            return
        if commits:
            self.note(worker)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.workers.remove(self.pick(data))

    def pick(self, data: st.DataObject) -> Worker:
        return self.workers[data.draw(st.integers(0, len(self.workers) - 1))]

    def note(self, worker: Worker) -> None:
        assert not self.committed & set(worker.polled)
        self.committed |= set(worker.polled)
        worker.polled = []

    @invariant()
    def what_is_handed_out_has_one_owner(self) -> None:
        owned = [number for worker in self.workers for number in worker.owned()]
        assert len(owned) == len(set(owned))

    @invariant()
    def positions_are_what_was_committed(self) -> None:
        positions = self.group.positions()
        done = {(p, n) for p, offset in positions.items() for n in range(offset)}
        assert done == self.committed

    def teardown(self) -> None:
        """A last member reads the rest."""
        self.clock.tick(LEASE_MS)
        last = Worker(self.topic.consumer("g", "last", lease_ms=LEASE_MS))
        for table in last.consumer:
            last.polled += zip(
                table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True
            )
        last.consumer.commit()
        self.note(last)
        ends = self.topic.end_offsets()
        assert self.committed == {(p, n) for p, end in ends.items() for n in range(end)}


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(max_examples=rounds(15, deep=500), stateful_step_count=30)
