"""Members of a group that commit several times between polls, in any order of their requests: no
position goes back, and whoever commits records has got them as the owner of their partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise

import pyarrow as pa
import pytest

from pylogtable.errors import CommitConflictError, CommitUnknownError
from pylogtable.format.group_model import GroupState
from pylogtable.format.json_codec import decode_group
from pylogtable.groups.consumer import Consumer
from pylogtable.groups.dynamic_member import DynamicMember
from pylogtable.groups.membership_plan import owned
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import ints, kafka, make_store
from tests.depth import rounds
from tests.model.checker import Checker, Faults, Outcome, Program, Told, Writer
from tests.model.exploring import found, holds
from tests.model.replay import Objects, ObjectsStore
from tests.model.writers import LocalTime

GROUP, LEASE_MS = "g", 30_000
STATES = f"_groups/{GROUP}/"
PARTITIONS, EACH = 2, 6


class QuietTopic(WrappedStore):
    """Nobody appends. So only the group's objects are asked for."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._topic = ObjectsStore(start())

    def read(self, key: str) -> bytes | None:
        return self._inner.read(key) if key.startswith(STATES) else self._topic.read(key)

    def open_input(self, key: str, size_bytes: int) -> pa.NativeFile:
        return self._topic.open_input(key, size_bytes)


class Process:
    """A process with one consumer. It tells which records it got, and in which state of the group.
    It remembers where it is in each partition, also if it has lost it."""

    def __init__(self, name: str, store: ObjectStore, told: list[Told]) -> None:
        self._time = LocalTime()
        topic = Topic("t", QuietTopic(store), self._time.runtime(name, 100.0))
        self._consumer: Consumer = topic.consumer(GROUP, name, lease_ms=LEASE_MS)
        self._told = told
        self._remembered: dict[int, int] = {}

    def poll(self, count: int) -> None:
        """After a while, so that it looks at the group."""
        self._time.now_ms += LEASE_MS // 10
        table = self._consumer.poll(max_records=count)
        places = tuple(
            zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
        )
        member = self._consumer._member
        assert isinstance(member, DynamicMember)
        assert member._state is not None
        self._told.append(("got", (member.member_id, member._state.number, places)))
        for partition in self._consumer.assignment():
            self._remembered[partition] = self._consumer.position(partition)

    def commit(self, *partitions: int) -> None:
        """Commit where it is in these partitions, or what the consumer thinks."""
        chosen = {n: self._remembered[n] for n in partitions if n in self._remembered}
        try:
            self._consumer.commit(chosen if partitions else None)
        except (CommitConflictError, CommitUnknownError):
            self._told.append(("refused", tuple(chosen.items())))

    def beat(self) -> None:
        """A third of the lease later, which is not over. It changes nothing but the lease."""
        self._time.now_ms += LEASE_MS // 3
        member = self._consumer._member
        assert isinstance(member, DynamicMember)
        held = dict(member.tenures)
        member.beat()
        if member.tenures != held:
            self._told.append(("moved", f"from {held} to {member.tenures}"))

    def close(self) -> None:
        with suppress(CommitConflictError):  # by the other's clock its lease may be over
            self._consumer.close(commit=True)


def lending(store: ObjectStore, told: list[Told]) -> None:
    """Owns everything at first, and does not look again before it has committed a few times."""
    one = Process("a", store, told)
    one.poll(4)
    for _ in range(2):
        one.commit(0)
    one.commit(1)
    one.poll(2)
    one.commit()


def visiting(store: ObjectStore, told: list[Told]) -> None:
    """Joins, takes what it gets, commits it as it leaves."""
    other = Process("b", store, told)
    other.poll(2)
    other.poll(3)
    other.close()


def working(store: ObjectStore, told: list[Told]) -> None:
    """Works for longer than its lease, in which its heart beats. Then it commits what it has."""
    one = Process("a", store, told)
    one.poll(4)
    one.beat()
    one.commit(0)
    one.beat()
    one.commit()


@cache
def start() -> Objects:
    """A topic with a few records in each partition."""
    objects = MemoryStore()
    topic = make_store(objects, LocalTime().runtime("start", 100.0).clock).create_topic(
        "t", PARTITIONS
    )
    numbers = [number % PARTITIONS for number in range(PARTITIONS * EACH)]
    topic.append(kafka(["k"] * len(numbers), partition=ints(*numbers)))
    below = objects.below("t")
    return {info.key: data for info in below.list() if (data := below.read(info.key)) is not None}


def wrong(objects: Objects, told: tuple[Told, ...]) -> str | None:
    return next(_faults(states_in(objects), told), None)


def states_in(objects: Objects) -> list[GroupState]:
    names = sorted(name for name in objects if name.startswith(STATES))
    return [decode_group(objects[name], GROUP, number) for number, name in enumerate(names)]


def _faults(states: list[GroupState], told: tuple[Told, ...]) -> Iterator[str]:
    got = [what for kind, what in told if kind == "got"]
    yield from (f"a beat moved partitions {what}" for kind, what in told if kind == "moved")
    for before, after in pairwise(states):
        for partition, entry in after.positions.items():
            position = before.positions.get(partition)
            first = 0 if position is None else position.offset
            if entry.offset < first:
                yield f"partition {partition} went back from {first} to {entry.offset}"
            for offset in range(first, entry.offset):
                place = partition, offset
                member, since = _tenure(states, before.number, partition)
                if not any(
                    m == member and at >= since and place in places for m, at, places in got
                ):
                    yield f"{member} committed {place}, and never got it since state {since}"


def _tenure(states: list[GroupState], number: int, partition: int) -> tuple[str | None, int]:
    """Who owns the partition in this state, and since which state."""
    owner = _owner(states[number], partition)
    while number and _owner(states[number - 1], partition) == owner:
        number -= 1
    return owner, number


def _owner(state: GroupState, partition: int) -> str | None:
    return next((name for name in state.members if partition in owned(state, name)), None)


def explore(*programs: Program, faults: Faults, first_only: bool = False) -> Outcome:
    outcome = Checker(
        {},
        tuple(Writer(program.__name__, program) for program in programs),
        faults,
        wrong,
        first_violation_only=first_only,
    ).explore()
    print(f"{outcome.schedules} schedules, {outcome.ends} ends, {len(outcome.violations)} wrong")
    return outcome


def test_no_position_goes_back_and_no_record_is_skipped() -> None:
    """A deep run has a fault as well."""
    faults = Faults(rounds(0, deep=1), frozenset({"lost", "late", "self_retry"}))
    outcome = explore(lending, visiting, faults=faults)
    holds(outcome, rounds(1_000_000_000, deep=1_000_000_000_000))


def test_beats_between_any_two_requests_of_others_do_no_harm() -> None:
    faults = Faults(rounds(0, deep=1), frozenset({"lost", "late", "self_retry"}))
    outcome = explore(working, visiting, faults=faults)
    holds(outcome, rounds(1_000_000, deep=1_000_000_000))


def test_beats_that_take_and_give_partitions_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DynamicMember, "_renewed", DynamicMember._shared)
    found(explore(working, visiting, faults=Faults(0), first_only=True), "a beat moved")


def test_members_that_only_compare_what_they_own_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bug that there was: a partition that came back counted as never lost."""

    def since_it_joined(held: dict[int, int], state: GroupState, name: str) -> dict[int, int]:
        return dict.fromkeys(owned(state, name), min(held.values(), default=state.number))

    monkeypatch.setattr("pylogtable.groups.dynamic_member.tenures", since_it_joined)
    found(explore(lending, visiting, faults=Faults(0), first_only=True), "went back")
