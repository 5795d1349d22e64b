"""A copy compared with its source after any history of both: whatever was done since the last
mirror, a mirror makes them equal."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import SMALL, Clock, make_store, runtime
from tests.depth import new_seed, rounds
from tests.faults.support import Plan
from tests.mirrors import (
    Work,
    check_equal,
    check_has_all,
    check_sound,
    everything,
)
from tests.stores import FarStore, Fault, FaultyStore, SimulatedCrash

HISTORIES = rounds(2, deep=300)
STEPS = rounds(12, deep=30)


class History:
    """A source, a copy, and random work on both."""

    def __init__(self, seed: int, retention: str) -> None:
        self.chance = chance = random.Random(seed)
        self.clock = Clock()
        self.retention = retention
        self.removes = retention == "own" and chance.random() < 0.5
        units, size = chance.choice([2, 5_000]), chance.choice([2_000, 1 << 30])
        self.limits = replace(
            SMALL,
            row_group_rows=3,
            mirror_first_units=units,
            mirror_units=units,
            mirror_removal_units=units,
            mirror_first_bytes=size,
            mirror_bytes=size,
        )
        self.near, self.far = self._objects(), self._objects()
        policy = chance.choice(["delete", "compact", "compact,delete"])
        config = {
            "cleanup.policy": policy,
            "retention.ms": -1,
            "inline.max.bytes": chance.choice([0, 400, 16384]),
        }
        store = make_store(self.near, self.clock)
        begin = {0: chance.choice([0, 0, 7])}
        topic = store.create_topic(
            "t", chance.choice([1, 2, 3]), config=config, start_offsets=begin
        )
        self.work = Work(topic, self.clock, chance)
        #: What the copy had at versions of the last time, to be read again.
        self.seen: dict[int, object] = {}

    def _objects(self) -> MemoryStore:
        """Near, or far away: then requests are sent side by side, and states are trusted longer."""
        store = FarStore(self.clock) if self.chance.random() < 0.5 else MemoryStore()
        store._space.clock = self.clock
        return store.with_limits(self.limits)

    @property
    def source(self) -> Topic:
        return self.work.topic

    @property
    def copy(self) -> Topic:
        return self.target(self.far).topic("t")

    def target(self, objects: MemoryStore | FaultyStore) -> Store:
        return Store(objects, runtime(self.clock))

    def mirror(self, objects: MemoryStore | FaultyStore | None = None) -> None:
        target = self.target(objects or self.far)
        options = {"retention": self.retention, "allow_gaps": self.retention == "own"}
        try:
            report = self.source.mirror(target, **options)  # type: ignore[arg-type]
        except InvalidRequestError as error:
            # A compacted copy, and a source that was not compacted when it dropped a column.
            if "META-8" not in str(error):
                raise
            self.copy.alter(config={"cleanup.policy": "delete"})
            report = self.source.mirror(target, **options)  # type: ignore[arg-type]
        assert report.source_version == self.source.version
        assert set(report.lag.values()) == {0}

    def kill_mirror(self) -> None:
        """At some operation of the store of the copy."""
        at = self.chance.randrange(30)
        fault = self.chance.choice([Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY])
        with suppress(SimulatedCrash, LogTableError):
            self.mirror(FaultyStore(self.far, Plan(at, fault)))

    def meet_mirror(self) -> None:
        """Two mirrors at a time, of which one sees more of the source."""
        left = self.chance.randrange(30)

        def meet(verb: str, key: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.work.step()
                self.mirror()

        with suppress(LogTableError) if self.retention == "own" else nullcontext():
            self.source.mirror(self.target(FaultyStore(self.far, meet)), retention=self.retention)

    def use_copy(self) -> None:
        """What may be done with a copy that is to stay one."""
        with suppress(LogTableError):
            copy = self.copy
            works: list[Callable[[], object]] = [
                lambda: copy.merge(threads=1),
                self.vacuum_copy,
            ]
            if self.retention == "source" or self.removes:
                works.append(lambda: copy.maintain(vacuum=False, threads=1))
            if self.removes:
                works += [
                    lambda: copy.compact(force=True, threads=1),
                    lambda: copy.delete_records({0: copy.end_offsets()[0] // 2}),
                    lambda: copy.alter(config={"segment.bytes": "14"}),
                    lambda: copy.erase(keys=[b"a"]),
                ]
            self.chance.choice(works)()

    def vacuum_copy(self) -> None:
        self.clock.tick(10)
        self.copy.vacuum(dry_run=False, retention_ms=0, force=True)
        self.seen.clear()

    def check(self) -> None:
        copy = self.copy
        if self.retention == "source":
            check_equal(self.source, copy)
        elif not self.removes:
            check_has_all(self.source, copy)
        else:
            assert copy.end_offsets() == self.source.end_offsets()
            check_sound(copy)
        for version, table in self.seen.items():
            assert everything(copy, version) == table
        self.seen[copy.version] = everything(copy)


def run(seed: int, retention: str) -> None:
    history = History(seed, retention)
    chance = history.chance
    for _ in range(STEPS):
        for _ in range(chance.choice([1, 1, 3, 6])):
            history.work.step()
        what = chance.choice(["mirror", "mirror", "kill", "meet", "use", "use"])
        history.work.done.append(f"[{what}]")
        if what == "mirror":
            history.mirror()
            history.check()
        elif what == "kill":
            history.kill_mirror()
        elif what == "meet":
            history.meet_mirror()
        else:
            history.use_copy()
    history.mirror()
    history.check()


@pytest.mark.parametrize("retention", ["source", "own"])
def test_a_mirror_makes_a_copy_equal_after_any_history(retention: str) -> None:
    seed = new_seed()
    for number in range(HISTORIES):
        print(f"history {number}: seed {seed + number}, {retention}")
        run(seed + number, retention)
