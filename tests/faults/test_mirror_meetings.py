"""A mirror that meets others: at each of its operations, another mirror, a writer or a job does all
of its work at once, at the source or at the copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pytest

from pylogtable.errors import CommitConflictError
from pylogtable.limits import Limits
from pylogtable.mirror import copying
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import SMALL, Clock, ints, kafka, runtime
from tests.depth import rounds, sample
from tests.mirrors import check_equal
from tests.stores import FaultyStore, SerialPool


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "Threads", SerialPool)


def small_store(clock: Clock, limits: Limits = SMALL) -> MemoryStore:
    return MemoryStore(clock=clock).with_limits(limits)


def put(topic: Topic, keys: str, values: str, partition: int) -> None:
    table = kafka(list(keys), [None if v == " " else v for v in values])
    columns = {name: table[name] for name in table.column_names}
    topic.append(pa.table({**columns, "partition": ints(*[partition] * len(keys))}))


@dataclass
class Sides:
    """The two stores. What is done through `guarded` stores can be interrupted."""

    near: MemoryStore
    far: MemoryStore
    clock: Clock
    operations: int = 0
    interrupt_at: int | None = None
    work: Callable[[], object] = field(default=lambda: None)

    def source(self, *, guarded: bool = False) -> Topic:
        return self._store(self.near, guarded).topic("t")

    def target(self, *, guarded: bool = False) -> Store:
        return self._store(self.far, guarded)

    @property
    def copy(self) -> Topic:
        return self.target().topic("t")

    def mirror(self, *, guarded: bool = False) -> None:
        self.source(guarded=guarded).mirror(self.target(guarded=guarded))

    def again(self) -> Sides:
        """The same, to be spoilt."""
        clock = Clock(self.clock.now_ms)
        limits = self.near.limits
        near, far = small_store(clock, limits), small_store(clock, limits)
        near._space.objects.update(self.near._space.objects)
        far._space.objects.update(self.far._space.objects)
        return Sides(near, far, clock)

    def interrupted(self, work: Callable[[Sides], object], at: int) -> bool:
        """Mirror, with `work` done before operation number `at`. False if there was none."""

        def once() -> None:
            self.interrupt_at = None
            work(self)

        self.interrupt_at, self.work, self.operations = at, once, 0
        self.mirror(guarded=True)
        return self.interrupt_at is None

    def _store(self, objects: ObjectStore, guarded: bool) -> Store:
        store = FaultyStore(objects, self._decide) if guarded else objects
        return Store(store, runtime(self.clock))

    def _decide(self, verb: str, key: str) -> None:
        self.operations += 1
        if self.operations - 1 == self.interrupt_at:
            self.work()


def begun(limits: Limits = SMALL) -> Sides:
    """A changelog with files, records in commits, leaves and a straddling log start, and a copy
    that is behind: much was compacted, merged, erased and altered since."""
    clock = Clock()
    sides = Sides(small_store(clock, limits), small_store(clock, limits), clock)
    config = {"cleanup.policy": "compact,delete", "retention.ms": -1, "inline.max.bytes": 0}
    source = Store(sides.near, runtime(clock)).create_topic("t", 2, config=config)
    for value in "1234":
        put(source, "abc", value * 3, 0)
        put(source, "xy", value * 2, 1)
    sides.mirror()
    source.compact(force=True)
    source.alter(config={"inline.max.bytes": 4096}, add_columns={"n": pa.int32()})
    put(source, "abd", "55 ", 0)
    put(source, "z", "5", 1)
    source.alter(config={"inline.max.bytes": 0}, partitions=3)
    put(source, "ef", "66", 2)
    source.append(kafka(["k"], ["7"], partition=ints(1)), txn=("app", 3))
    source.delete_records({1: 3})
    return sides


def more_at_source(sides: Sides) -> None:
    source = sides.source()
    put(source, "ag", "88", 0)
    source.compact(force=True)
    source.erase(keys=["x", "e"])
    source.delete_records({2: 1})
    source.append(kafka(["k"], ["9"], partition=ints(1)), txn=("app", 4))
    names = set(source.schema.names)
    if "n" in names:
        source.alter(rename_columns={"n": "m"})
    source.merge()


def vacuum_source(sides: Sides) -> None:
    sides.clock.tick(10)
    more_at_source(sides)
    sides.clock.tick(10)
    sides.source().vacuum(dry_run=False, retention_ms=0, force=True)


def other_mirror(sides: Sides) -> None:
    sides.mirror()


def newer_mirror(sides: Sides) -> None:
    more_at_source(sides)
    sides.mirror()


def half_a_newer_mirror(sides: Sides, operations: int) -> None:
    """It stops in the middle, as if it were slow."""
    more_at_source(sides)
    with stopping(sides, operations):
        sides.mirror(guarded=True)


class Stopped(BaseException):
    pass


@contextmanager
def stopping(sides: Sides, operations: int) -> Iterator[None]:
    def stop() -> None:
        raise Stopped

    sides.operations, sides.interrupt_at, sides.work = 0, operations, stop
    try:
        yield
    except Stopped:
        pass
    finally:
        sides.interrupt_at = None


def merge_copy(sides: Sides) -> None:
    sides.copy.merge(threads=1)


def vacuum_copy(sides: Sides) -> None:
    sides.copy.merge(threads=1)
    sides.clock.tick(10)
    sides.copy.vacuum(dry_run=False, retention_ms=0, force=True)


def both_merge_and_vacuum(sides: Sides) -> None:
    vacuum_source(sides)
    vacuum_copy(sides)


WORKS = [
    other_mirror,
    newer_mirror,
    *(partial(half_a_newer_mirror, operations=at) for at in (6, 9, 12, 15, 18, 21)),
    more_at_source,
    vacuum_source,
    merge_copy,
    vacuum_copy,
    both_merge_and_vacuum,
]


def name_of(work: Callable[..., object]) -> str:
    if isinstance(work, partial):
        return f"{work.func.__name__}_{work.keywords['operations']}"
    return work.__name__


@pytest.mark.parametrize("work", WORKS, ids=name_of)
@pytest.mark.parametrize("max_units", [2, 5_000])
def test_a_mirror_is_not_disturbed(work: Callable[[Sides], object], max_units: int) -> None:
    few = {"mirror_first_units": max_units, "mirror_units": max_units}
    limits = replace(SMALL, **few, mirror_removal_units=max_units)
    start, met = begun(limits), 0
    for at in sample(range(200), 47, first=5 * WORKS.index(work)):
        sides = start.again()
        if not sides.interrupted(work, at):
            break
        met += 1
        sides.mirror()
        check_equal(sides.source(), sides.copy)
    assert met


@pytest.mark.parametrize("work", [other_mirror, newer_mirror, vacuum_source], ids=name_of)
def test_first_mirrors_at_a_time(work: Callable[[Sides], object]) -> None:
    """Both find no copy, and one of them creates it."""
    start, met = begun(), 0
    start.far = small_store(start.clock)
    for at in sample(range(200), 7):
        sides = start.again()
        if not sides.interrupted(work, at):
            break
        met += 1
        sides.mirror()
        check_equal(sides.source(), sides.copy)
    assert met > 3


def append_to_copy(sides: Sides) -> None:
    sides.copy.append(kafka(["own"], ["1"], partition=ints(0)))


def promote(sides: Sides) -> None:
    sides.copy.promote()


@pytest.mark.parametrize("work", [append_to_copy, promote])
def test_a_mirror_gives_way_to_whoever_takes_the_copy_over(
    work: Callable[[Sides], object],
) -> None:
    start, refused, at = begun(), 0, 0
    while True:
        sides = start.again()
        with suppress(CommitConflictError):
            if not sides.interrupted(work, at):
                break  # all was done before
        with pytest.raises(CommitConflictError, match="has records of its own since its version"):
            sides.mirror()
        refused += 1
        at += rounds(5, deep=1)
    assert refused > 3
