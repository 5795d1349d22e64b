"""A mirror that crashes at any step, or loses replies, or is refused, at the source or at the copy.

What is visible meanwhile is sound: a version of the copy that names a version of its source shows
exactly that one. Another run gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from pylogtable.errors import LogTableError
from pylogtable.mirror import copying
from pylogtable.storage.base import ObjectStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.depth import sample
from tests.faults.support import FakeTime, Plan
from tests.faults.test_mirror_meetings import Sides, begun, more_at_source, small_store
from tests.mirrors import check_equal, check_sound, everything
from tests.stores import Fault, FaultyStore, SerialPool, SimulatedCrash

FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.REFUSE, Fault.LATE]


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "Threads", SerialPool)


@pytest.fixture(scope="module")
def start() -> Sides:
    return begun()


def mirror(sides: Sides, plan: Plan, **options: bool) -> list[FaultyStore]:
    """One mirror whose operations, at both stores, meet the plan."""
    plan.armed = False
    time = FakeTime(0.001 * (sides.clock.now_ms - FakeTime().clock()) + 60)
    near, far = (FaultyStore(s, plan, late_after=4) for s in (sides.near, sides.far))
    source = Store(near, time.runtime()).topic("t")
    target = Store(far, time.runtime())
    plan.armed = True
    source.mirror(target, **options)
    return [near, far]


def operations(start: Sides, **options: bool) -> list[tuple[str, str]]:
    plan = Plan(None, None)
    mirror(start.again(), plan, **options)
    return plan.seen


def check_marks(source: Topic, copy: Topic) -> None:
    """A version of the copy in which the mark was moved shows that version of the source."""
    noted = None
    for version in range(copy.version + 1):
        snapshot = copy.at(version).snapshot
        assert snapshot.mirror is not None
        if snapshot.mirror.version != noted:
            noted = snapshot.mirror.version
            assert everything(copy, version) == everything(source, noted)


def cases(start: Sides, fault: Fault, every: int, **options: bool) -> Iterator[int]:
    seen = operations(start, **options)
    assert {verb for verb, _ in seen} >= {"read", "create", "copy_from"}
    yield from sample(range(len(seen)), every, first=3 * FAULTS.index(fault))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("groups", [False, True])
def test_mirror_that_fails_at_any_step(start: Sides, fault: Fault, groups: bool) -> None:
    start = start.again()
    start.source().group("g").commit({0: 2, 1: 3})
    met = 0
    for at in cases(start, fault, 19, groups=groups):
        sides = start.again()
        plan = Plan(at, fault)
        stores: list[FaultyStore] = []
        with suppress(SimulatedCrash, LogTableError):
            stores = mirror(sides, plan, groups=groups)
        assert plan.hit, at
        met += 1
        for store in stores:
            store.land()
        check_sound(sides.copy)
        check_marks(sides.source(), sides.copy)
        mirror(sides, Plan(None, None), groups=groups)
        check_equal(sides.source(), sides.copy)
        check_marks(sides.source(), sides.copy)
    assert met > 1


@pytest.mark.parametrize("fault", FAULTS)
def test_first_mirror_that_fails_at_any_step(start: Sides, fault: Fault) -> None:
    """The copy does not exist yet."""
    start = start.again()
    start.far = small_store(start.clock)
    met = 0
    for at in cases(start, fault, 19):
        sides = start.again()
        plan = Plan(at, fault)
        stores: list[FaultyStore] = []
        with suppress(SimulatedCrash, LogTableError):
            stores = mirror(sides, plan)
        assert plan.hit, at
        met += 1
        for store in stores:
            store.land()
        if sides.target().topics():
            check_sound(sides.copy)
            check_marks(sides.source(), sides.copy)
        mirror(sides, Plan(None, None))
        check_equal(sides.source(), sides.copy)
    assert met > 1


@pytest.mark.parametrize("fault", [Fault.CRASH_AFTER, Fault.LOSE_REPLY])
def test_mirror_that_fails_while_the_source_goes_on(start: Sides, fault: Fault) -> None:
    """Each run fails at some step; the source does more in between, and a vacuum as well."""
    sides = start.again()
    for number in range(4):
        with suppress(SimulatedCrash, LogTableError):
            mirror(sides, Plan(5 + 6 * number, fault))
        more_at_source(sides)
        sides.clock.tick(10)
        for topic in (sides.source(), sides.copy):
            topic.merge(threads=1)
            topic.vacuum(dry_run=False, retention_ms=0, force=True)
        check_sound(sides.copy)
    sides.mirror()
    check_equal(sides.source(), sides.copy)


def test_a_commit_with_an_unknown_outcome_keeps_its_files(start: Sides) -> None:
    """The commit lands when the mirror has given up."""
    sides = start.again()
    first = sides.copy.version + 1
    late = {f"t/_manifest/{first + n:020d}.json" for n in range(3)}

    def decide(verb: str, key: str) -> Fault | None:
        if verb == "create" and key in late:
            return Fault.LATE
        return Fault.REFUSE if verb == "read" and key in late else None

    far = FaultyStore(sides.far, decide)
    store = Store(far, FakeTime(60).runtime(patience_seconds=1))
    with pytest.raises(LogTableError):
        sides.source().mirror(store)
    far.land()
    check_sound(sides.copy)
    sides.mirror()
    check_equal(sides.source(), sides.copy)


def test_objects_are_left_for_vacuum_at_most(start: Sides) -> None:
    """A mirror that fails leaves no file that a vacuum would not remove."""
    sides = start.again()
    seen = operations(start)
    creates = [at for at, (verb, key) in enumerate(seen) if verb == "create"]
    with suppress(LogTableError):
        mirror(sides, Plan(creates[-1], Fault.REFUSE))
    sides.mirror()
    sides.clock.tick(8 * 86_400_000)
    sides.copy.vacuum(dry_run=False)
    needed = {segment["path"] for segment in sides.copy.segments().to_pylist()}
    assert _files(sides.far) == needed


def _files(objects: ObjectStore) -> set[str]:
    below = objects.below("t")
    return {info.key for info in below.list() if info.key.startswith("partition=")}
