"""The turn of a loop meets two faults of the store, at any two of its requests: it goes on, and in
the end the table shows the topic, whole."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pylogtable.errors import CommitUnknownError, LogTableError, StorageError
from pylogtable.limits import Limits
from pylogtable.run import JobRun, Loop, RunOptions
from pylogtable.run.lanes import OneThread
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import ints, kafka, keep_time
from tests.depth import new_seed, rounds
from tests.faults.support import FakeTime, copy_of
from tests.publish.plain_delta import check_table, shown_version
from tests.run.loops import one_by_one
from tests.stores import Fault, FaultyStore, SimulatedCrash

NAMES = ("first", "second")
FAULTS = [
    Fault.LOSE_REPLY,
    Fault.REFUSE,
    Fault.LATE,
    Fault.SELF_RETRY,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
]
#: A late put lands after so many further requests.
LATE_AFTER = 7
#: Two small neighbours are worth a merge.
EAGER = Limits(merge_least=2, root_interval=8, root_grace=1)
CONFIG = {
    "cleanup.policy": "compact,delete",
    "retention.ms": -1,
    "publish.formats": "delta",
    "offsets.retention.minutes": 1,
}
#: All is due in the first turn. Half a minute later it is begun again, if it has failed.
SECONDS, BEGAN = 120, 3_600


@pytest.fixture(scope="module", params=[0, 16384], ids=["in files", "in commits"])
def base(request: pytest.FixtureRequest) -> MemoryStore:
    """Two topics whose tables are behind, which have small segments, several records of each key,
    and a group that nobody uses."""
    inner = MemoryStore().with_limits(EAGER)
    store = Store(inner, FakeTime().runtime())
    for name in NAMES:
        config = {**CONFIG, "inline.max.bytes": request.param}
        topic = store.create_topic(name, 2, config=config)
        append(topic)
        topic.publish(["delta"], threads=1)
        for _ in range(3):
            append(topic)
        topic.group("unused").commit(topic.end_offsets())
    return inner


def append(topic: Topic) -> None:
    topic.append(kafka(list("abcabd"), list("123456"), partition=ints(0, 0, 1, 0, 1, 1)))


class Pair:
    """The requests of these numbers meet these faults. After a crash no request succeeds until a
    new process has come."""

    def __init__(self, *faults: tuple[int, Fault]) -> None:
        self.faults = dict(faults)
        self.seen = 0
        self.is_dead = False

    def __call__(self, verb: str, key: str) -> Fault | None:
        if self.is_dead:
            raise SimulatedCrash
        fault = self.faults.get(self.seen)
        self.seen += 1
        self.is_dead = fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
        return fault


def work(inner: MemoryStore, pair: Pair, runs: list[JobRun]) -> int:
    """Let a loop work for some minutes. If it is killed, another one begins. Returns how many
    requests the first two turns had."""
    time = FakeTime(BEGAN)
    keep_time(inner, time.clock)
    faulty = FaultyStore(inner, pair, late_after=LATE_AFTER)
    options = RunOptions(on_job=runs.append, every_seconds=20)
    loop: Loop | None = None
    steps = 0
    while time.seconds < BEGAN + SECONDS:
        if loop is None:
            pair.is_dead = False
            loop = Loop(Store(faulty, time.runtime(5.0)), options, one_by_one, OneThread())
        try:
            due_ms = loop.tick()
        except SimulatedCrash:
            loop = None
            continue
        if time.seconds < BEGAN + 25:
            steps = pair.seen
        time.seconds = max(time.seconds + 0.001, time.seconds + (due_ms - time.clock()) / 1000)
    faulty.land()
    return steps


Row = tuple[int, int, bytes, bytes]


def records(topic: Topic) -> list[Row]:
    columns = ["partition", "offset", "key", "value"]
    table = topic.read(columns=columns).read_all()
    return [*zip(*(table[name].to_pylist() for name in columns), strict=True)]


def check(inner: MemoryStore, before: dict[str, list[Row]]) -> None:
    """The newest record of each key is there, others are as they were or gone, and the table shows
    just that."""
    store = Store(inner, FakeTime(BEGAN).runtime())
    for name in NAMES:
        topic = store.topic(name)
        assert topic.verify(data=True)
        log = check_table(topic, inner.below(name))
        shown = topic.read(version=shown_version(log[-1])).read_all()
        assert shown == topic.read().read_all()
        left = records(topic)
        newest = {(row[0], row[2]): row for row in before[name]}
        assert {*newest.values()} <= {*left} <= {*before[name]}
        assert len(left) == len({*left}) < len(before[name])
        assert topic.groups() == []


def pairs(steps: int, count: int) -> Iterator[Pair]:
    chance = random.Random(new_seed())
    for _ in range(count):
        first, second = sorted(chance.sample(range(steps), 2))
        yield Pair((first, chance.choice(FAULTS)), (second, chance.choice(FAULTS)))


def test_loop_goes_on_after_two_faults_at_any_requests(base: MemoryStore) -> None:
    ideal = copy_of(base)
    runs: list[JobRun] = []
    steps = work(ideal, Pair(), runs)
    assert {run.job for run in runs if run.has_changed} >= {
        "publication",
        "compaction",
        "group_expiry",
    }
    store = Store(base, FakeTime(BEGAN).runtime())
    before = {name: records(store.topic(name)) for name in NAMES}
    check(ideal, before)
    print(f"{steps} requests in the first turns")
    for pair in pairs(steps, rounds(20, deep=2_000)):
        inner = copy_of(base)
        runs.clear()
        work(inner, pair, runs)
        failures: list[LogTableError] = [run.error for run in runs if run.error is not None]
        assert all(isinstance(one, StorageError | CommitUnknownError) for one in failures), failures
        assert len(failures) <= len(pair.faults)
        check(inner, before)
