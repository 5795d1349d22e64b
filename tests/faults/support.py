"""What the fault tests share: a fake time, small rows, copies of stores, and the invariants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.format.json_codec import decode_commit
from pylogtable.format.model import Commit
from pylogtable.format.paths import parse_commit_path
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.stores import Fault, FaultyStore, SimulatedCrash

SCHEMA = {"n": pa.int64()}
PARTITIONS = 2
NAME = "t"

Decide = Callable[[str, str], Fault | None]

_ids = itertools.count(1)


def new_id() -> str:
    return f"{next(_ids):08d}"


@dataclass
class FakeTime:
    """A clock that moves only while something waits."""

    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)

    def clock(self) -> int:
        return 1_700_000_000_000 + int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.seconds += seconds

    def runtime(self, patience_seconds: float = 10.0) -> Runtime:
        return Runtime(
            clock=self.clock,
            new_id=new_id,
            monotonic=self.monotonic,
            pause=self.pause,
            chance=lambda: 0.5,
            later=lambda work: work(),
            patience_seconds=patience_seconds,
        )


def store_over(inner: ObjectStore, patience_seconds: float = 10.0) -> Store:
    return Store(inner, FakeTime().runtime(patience_seconds))


def rows(numbers: Iterable[int]) -> pa.Table:
    """One row for each number; odd ones go to partition 1."""
    numbers = list(numbers)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
        }
    )


def new_topic(inner: ObjectStore, inline_bytes: int = 0) -> Topic:
    """Records up to `inline_bytes` go into their commit; with 0, all are in files."""
    config = {"inline.max.bytes": inline_bytes}
    return store_over(inner).create_topic(NAME, PARTITIONS, SCHEMA, config=config)


def open_topic(inner: ObjectStore, patience_seconds: float = 10.0) -> Topic:
    return store_over(inner, patience_seconds).topic(NAME)


def copy_of(inner: ObjectStore) -> MemoryStore:
    copy = MemoryStore().with_limits(inner.limits)
    for entry in inner.list():
        data = inner.read(entry.key)
        assert data is not None
        copy.write(entry.key, data)
    return copy


def numbers_of(topic: Topic) -> list[int]:
    return sorted(topic.read(columns=["n"]).read_all()["n"].to_pylist())


def commits_of(inner: ObjectStore) -> list[Commit]:
    """Every commit in the store, decoded, straight from the objects."""
    found = []
    below = inner.below(NAME)
    for entry in below.list("_manifest/"):
        version = parse_commit_path(entry.key)
        if version is not None:
            data = below.read(entry.key)
            assert data is not None
            found.append(decode_commit(data, version))
    return found


def data_files(inner: ObjectStore) -> set[str]:
    return {
        entry.key
        for entry in inner.below(NAME).list()
        if entry.key.endswith(".parquet") and entry.key.startswith("partition=")
    }


def named_files(inner: ObjectStore) -> set[str]:
    """The files that commits name; records in commits have none."""
    entries = (segment for commit in commits_of(inner) for segment in commit.add)
    return {segment.path for segment in entries if not segment.is_inline}


def check(inner: ObjectStore, expected: Iterable[int], ignored: Sequence[str] = ()) -> Topic:
    """Open without faults and compare everything with what must be there. `ignored` are roots that
    `verify` has to report."""
    topic = open_topic(inner)
    assert numbers_of(topic) == sorted(expected)
    check_sound(inner, topic, ignored)
    return topic


def check_sound(inner: ObjectStore, topic: Topic, ignored: Sequence[str] = ()) -> None:
    """The invariants that hold whatever was appended."""
    report = topic.verify(data=True)
    assert [problem.path for problem in report.problems] == list(ignored), str(report)
    table = topic.read(columns=["partition", "offset", "n"]).read_all()
    starts, ends = topic.start_offsets(), topic.end_offsets()
    for number in ends:
        mine = table.filter(pc.equal(table["partition"], number))
        assert mine["offset"].to_pylist() == list(range(starts[number], ends[number]))
        assert all(n % PARTITIONS == number for n in mine["n"].to_pylist())
    commits = commits_of(inner)
    assert [commit.version for commit in commits] == list(range(len(commits)))
    assert len({commit.commit_id for commit in commits}) == len(commits)
    txns = [(c.txn.app_id, c.txn.version) for c in commits if c.txn is not None]
    assert len(set(txns)) == len(txns)
    paths = [segment.path for commit in commits for segment in commit.add]
    assert len(set(paths)) == len(paths)
    known: dict[int, int] = {}
    for commit in commits:
        for number, end in commit.ends.items():
            assert end > known.get(number, 0)
            known[number] = end
    check_visible_together(topic, commits)


def check_visible_together(topic: Topic, commits: list[Commit]) -> None:
    """Every version shows an append in all of its partitions or in none."""
    for commit in commits[-2:]:
        if commit.operation != "append" or not commit.add:
            continue
        seen = topic.segments(version=commit.version)["path"].to_pylist()
        assert {segment.path for segment in commit.add} <= set(seen)


class Plan:
    """The operation number `at`, of those that `wanted` selects, meets the fault. After a crash no
    operation succeeds."""

    def __init__(
        self,
        at: int | None,
        fault: Fault | Exception | None,
        wanted: Callable[[str, str], bool] = lambda verb, key: True,
    ) -> None:
        self.at = at
        self.fault = fault
        self.wanted = wanted
        self.seen: list[tuple[str, str]] = []
        self.hit = False
        self.armed = True
        self.dead = False

    def __call__(self, verb: str, key: str) -> Fault | None:
        if not self.armed:
            return None
        if self.dead:
            raise SimulatedCrash
        if not self.wanted(verb, key):
            return None
        self.seen.append((verb, key))
        if len(self.seen) - 1 != self.at:
            return None
        self.hit = True
        if isinstance(self.fault, Exception):
            raise self.fault
        self.dead = self.fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        return self.fault


def faulty(inner: ObjectStore, decide: Decide, patience: float = 10.0, **how: int) -> Topic:
    """A topic on a store that asks `decide` before each operation, from the opening on."""
    return open_topic(FaultyStore(inner, decide, **how), patience)
