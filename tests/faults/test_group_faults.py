"""Consumer groups on a store that loses replies and crashes, with writers in any order."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import pylogtable
from pylogtable.errors import CommitConflictError, CommitUnknownError, StorageError
from pylogtable.format.paths import group_path, parse_group_path
from pylogtable.groups.group import Group
from pylogtable.limits import Limits
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.local import LocalStore
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock
from tests.depth import new_seed, rounds, sample
from tests.faults.support import NAME, Plan, copy_of, faulty, new_topic, open_topic
from tests.faults.worker import PARTITIONS, SCHEMA, crew
from tests.stores import (
    CountingStore,
    FarStore,
    Fault,
    FaultyStore,
    SerialPool,
    SimulatedCrash,
)

GROUP = "g"
KEPT = Limits().group_states_kept
FEW_STATES = Limits(group_states_kept=2, group_clean_every=4)


def numbers(inner: ObjectStore) -> list[int]:
    paths = (parse_group_path(entry.key) for entry in inner.below(NAME).list("_groups/"))
    return [path[1] for path in paths if path is not None]


@pytest.fixture(scope="module")
def filled() -> MemoryStore:
    """A group whose next commit, number 64, is the first that removes old states."""
    inner = MemoryStore()
    group = new_topic(inner).group(GROUP)
    for offset in range(64):
        group.commit({0: offset})
    return inner


FAULTS = [fault for fault in Fault if fault is not Fault.TRUNCATE]


def opened(filled: MemoryStore, plan: Plan) -> tuple[MemoryStore, FaultyStore, Group]:
    """A copy of the store, the copy with the plan's faults, and a group that has read its state."""
    inner = copy_of(filled)
    plan.armed = False
    store = FaultyStore(inner, plan, late_after=3)
    group = open_topic(store).group(GROUP)
    group.positions()
    plan.armed = True
    return inner, store, group


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_after_any_fault_the_position_is_what_the_caller_was_told(
    filled: MemoryStore, fault: Fault
) -> None:
    plan = Plan(None, None)
    opened(filled, plan)[2].commit({0: 64})
    operations = range(len(plan.seen))
    assert len(operations) > 30
    for at in sample(operations, 3, first=FAULTS.index(fault)):
        plan = Plan(at, fault)
        inner, store, group = opened(filled, plan)
        allowed = {64}
        try:
            assert group.commit({0: 64}) == {0: 64}
        except (CommitUnknownError, SimulatedCrash):
            allowed = {63, 64}
        except StorageError:
            allowed = {63}
        assert plan.hit
        plan.armed = False
        store.land()
        after = open_topic(inner).group(GROUP)
        stands = after.positions()[0]
        assert stands in allowed, f"operation {at}: {plan.seen[-1]}"
        found = numbers(inner)
        assert found == list(range(found[0], stands + 1))
        for offset in range(100, 170):
            assert after.commit({0: offset}) == {0: offset}
        assert open_topic(inner).group(GROUP).positions() == {0: 169}
        assert len(numbers(inner)) <= 2 * KEPT + 1
        assert open_topic(inner).verify()


def test_group_commit_with_an_unknown_outcome_is_an_error(filled: MemoryStore) -> None:
    inner = copy_of(filled)
    group = faulty(
        inner, lambda verb, key: Fault.REFUSE if verb == "create" else None, patience=1.0
    ).group(GROUP)
    with pytest.raises(CommitUnknownError, match="as number 64 of group 'g' is unknown") as caught:
        group.commit({0: 64})
    assert caught.value.group == GROUP
    assert open_topic(inner).group(GROUP).positions() == {0: 63}


def test_group_commit_that_cannot_be_read_back_is_unknown(filled: MemoryStore) -> None:
    """It is stored, but whether it counts depends on the state before it."""
    inner = copy_of(filled)
    before = group_path(GROUP, 63)
    landed: list[str] = []

    def decide(verb: str, key: str) -> Fault | None:
        if verb == "create":
            landed.append(key)
        return Fault.REFUSE if landed and verb == "read" and key.endswith(before) else None

    group = faulty(inner, decide, patience=1.0).group(GROUP)
    with pytest.raises(CommitUnknownError):
        group.commit({0: 64})
    assert open_topic(inner).group(GROUP).positions() == {0: 64}


def test_late_put_of_a_removed_state_is_ignored(
    filled: MemoryStore,
) -> None:
    inner = copy_of(filled)
    store = FaultyStore(inner, lambda verb, key: Fault.LATE if verb == "create" else None)
    slow = open_topic(store, patience_seconds=0.5).group(GROUP)
    slow.positions()
    with pytest.raises(CommitUnknownError):
        slow.commit({0: 999})
    others = open_topic(inner).group(GROUP)
    for offset in range(100):
        others.commit({1: offset})
    assert numbers(inner)[0] > 64
    store.land()
    assert numbers(inner)[0] == 64  # it is there
    assert open_topic(inner).group(GROUP).positions() == {0: 63, 1: 99}
    assert others.positions() == {0: 63, 1: 99}
    with suppress(CommitConflictError):
        slow.commit({1: 0})
    assert others.positions() == {0: 63, 1: 99}
    for offset in range(64):
        others.commit({1: offset})
    found = numbers(inner)
    assert found == list(range(found[0], found[-1] + 1))


# --- any order of steps --------------------------------------------------------------------------


class Turns:
    """Lets one thread at a time do one operation, chosen at random. Some threads are slow for a
    while, so that the others change the store before they go on."""

    def __init__(self, seed: int, threads: int) -> None:
        self._random = random.Random(seed)
        self._condition = threading.Condition()
        self._alive = threads
        self._waiting: set[int] = set()
        self._turn: int | None = None
        self._speeds = [1.0] * threads
        self._mine = threading.local()

    def take_part(self, me: int, work: Callable[[], None]) -> None:
        self._mine.number = me
        try:
            work()
        finally:
            with self._condition:
                self._alive -= 1
                self._pick()

    def wait(self) -> None:
        me = self._mine.number
        with self._condition:
            self._waiting.add(me)
            self._pick()
            assert self._condition.wait_for(lambda: self._turn == me, timeout=20)
            self._turn = None

    def _pick(self) -> None:
        if self._turn is None and self._waiting and len(self._waiting) == self._alive:
            if self._random.random() < 0.04:
                self._speeds = [self._random.random() ** 12 for _ in self._speeds]
            ready = sorted(self._waiting)
            (self._turn,) = self._random.choices(ready, [self._speeds[n] for n in ready])
            self._waiting.discard(self._turn)
            self._condition.notify_all()


class InTurns(CountingStore):
    """Waits for its turn before every operation."""

    def __init__(self, inner: ObjectStore, turns: Turns) -> None:
        super().__init__(inner)
        self._turns = turns

    def below(self, prefix: str) -> InTurns:
        return InTurns(self._inner.below(prefix), self._turns)

    def _count(self, verb: str, key: str) -> None:
        self._turns.wait()


def advance(group: Group, partition: int, to: int) -> None:
    """Commit a partition that no one else commits. A conflict can only mean that the commit landed
    and was removed before it could be read back."""
    try:
        group.commit({partition: to})
    except CommitConflictError:
        found = group.positions().get(partition)
        if found != to:
            assert found == (to - 1 if to else None)
            advance(group, partition, to)


def test_no_commit_is_lost_and_positions_never_go_back() -> None:
    """All states but the newest two are removed now and then, so that slow writers and readers meet
    removed numbers at every step."""
    seed = new_seed()
    for run in range(rounds(15, deep=300)):
        inner = MemoryStore().with_limits(FEW_STATES)
        commit_and_read(seed + run, lambda inner=inner: inner)


def commit_and_read(
    seed: int,
    connect: Callable[[], MemoryStore],
    writers: int = 3,
    readers: int = 2,
    commits: int = 10,
) -> None:
    """Each of them has a connection of its own to the same objects."""
    inner = connect()
    new_topic(inner).alter(partitions=writers)
    turns = Turns(seed, writers + readers)
    errors: list[BaseException] = []
    told: dict[int, int] = {}

    def write(me: int) -> None:
        group = open_topic(InTurns(connect(), turns)).group(GROUP)
        for to in range(commits):
            advance(group, me, to)
            told[me] = to

    def read(me: int) -> None:
        group = open_topic(InTurns(connect(), turns)).group(GROUP)
        seen: dict[int, int] = {}
        for _ in range(15):
            least = {n: max(to, told.get(n, 0)) for n, to in {**told, **seen}.items()}
            seen = group.positions()
            assert all(seen.get(n, -1) >= offset for n, offset in least.items()), (least, seen)

    def guarded(me: int) -> None:
        try:
            turns.take_part(me, lambda: (write if me < writers else read)(me))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(writers + readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors, f"seed {seed}: {errors}"
    newest = open_topic(inner).group(GROUP).positions()
    assert newest == dict.fromkeys(range(writers), commits - 1), f"seed {seed}"


@pytest.mark.parametrize("step_ms", [200, 2_000, 20_000])
def test_no_commit_is_lost_on_a_far_store_where_time_passes(
    monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    """A fresh state needs no proof there, because states are kept for two minutes. Writers wait for
    their turn for seconds or minutes, and their own clocks stand still."""
    monkeypatch.setattr("pylogtable.storage.threads.Threads", SerialPool)
    seed = new_seed()
    for run in range(rounds(10, deep=300)):
        chance = random.Random(seed + run)
        clock = Clock()

        def time(chance: random.Random = chance, clock: Clock = clock) -> int:
            return clock.tick(chance.randrange(step_ms))

        space = MemoryStore(f"groups-{seed + run}-{step_ms}", clock=clock)

        def connect(name: str = space._name, time: Callable[[], int] = time) -> FarStore:
            return FarStore(time, name).with_limits(FEW_STATES)

        commit_and_read(seed + run, connect)


class AfterListing(CountingStore):
    """Calls `then` once, between the first listing of the group and the read that follows it."""

    then: Callable[[], None] | None = None
    listed = False

    def below(self, prefix: str) -> AfterListing:
        inner = AfterListing(self._inner.below(prefix), self._prefix + prefix, self._tally)
        inner.then = self.then
        return inner

    def _count(self, verb: str, key: str) -> None:
        super()._count(verb, key)
        if verb == "read" and self.listed and self.then is not None:
            then, self.then = self.then, None
            then()
        self.listed = self.listed or verb == "list"


@pytest.mark.parametrize("load", ["one group", "all groups"])
def test_state_put_between_listing_and_reading_is_ignored(load: str) -> None:
    inner = MemoryStore()
    writer = new_topic(inner).group(GROUP)
    for offset in range(40):
        writer.commit({0: offset})
    newest = max(numbers(inner))
    below = inner.below(NAME)
    stray = below.read(group_path(GROUP, newest))
    assert stray is not None

    def overtake() -> None:
        """Newer commits clean up the state that was listed; a stale writer puts its number."""
        for offset in range(40, 140):
            writer.commit({0: offset})
        assert below.read(group_path(GROUP, newest)) is None
        below.create(group_path(GROUP, newest), stray)

    store = AfterListing(inner)
    store.then = overtake
    topic = open_topic(store)
    if load == "one group":
        assert topic.group(GROUP).positions() == {0: 139}
    else:
        row, *_ = topic.describe_groups()
        assert row.current_offset == 139
    assert max(numbers(inner)) == newest + 100


# --- processes -----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_processes_commit_own_and_shared_partitions(tmp_path: Path) -> None:
    url, each = str(tmp_path), 20
    topic = pylogtable.open(url).create_topic("t", PARTITIONS + 1, SCHEMA)
    with crew() as workers:
        workers.order(*(("commit_positions", [url, me, each]) for me in range(PARTITIONS)))
        answers, statuses = workers.until_end()
    assert statuses == [0] * PARTITIONS
    shared = sorted(answer["shared"] for answer in answers)
    assert shared == list(range(1, PARTITIONS * each + 1)), "each value was committed by one"
    expected = {**dict.fromkeys(range(PARTITIONS), each), PARTITIONS: PARTITIONS * each}
    assert topic.group("g").positions() == expected
    kept = numbers(LocalStore(url))
    assert kept == list(range(kept[0], 2 * PARTITIONS * each))
    assert len(kept) <= 2 * KEPT + 1
