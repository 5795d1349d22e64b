"""A day of a store in which loops work, writers append and processes are killed, by the clock.

Everything is drawn from one seed and happens in one thread. Loops are killed at any request, the
store fails at times, and somebody else may append between any two requests of a loop.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pylogtable.run import JobRun, Loop, RunOptions
from pylogtable.run.due_plan import live_segments
from pylogtable.run.kept_topic import KeptTopic
from pylogtable.run.lanes import OneThread
from pylogtable.run.members import BEAT_MS, LEASE_MS
from pylogtable.runtime import Runtime
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import T0, Clock, kafka
from tests.run.loops import one_by_one
from tests.run.table_readers import FOLLOWERS, DataFiles, Follower, shown_columns
from tests.stores import Fault, FaultyStore, LargeMemoryStore, SimulatedCrash

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
#: A topic whose owner was killed, or has to share: until others see that, and then twice a beat.
TAKEOVER_MS = LEASE_MS + 2 * BEAT_MS
#: How often a request fails, and how often somebody appends just before one.
FAILS, MEETS = 1 / 2_000, 1 / 400


@dataclass(frozen=True)
class Kind:
    """A topic and how records come to it. `keys` is the number of different keys."""

    name: str
    appends: int
    records: tuple[int, ...] = (1, 3, 20)
    partitions: int = 1
    keys: int = 1_000
    begins_ms: int = 0
    ends_ms: int | None = None
    has_groups: bool = False
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def formats(self) -> list[str]:
        return [name for name in self.config.get("publish.formats", "").split(",") if name]

    @property
    def max_lag_ms(self) -> int:
        return int(self.config.get("publish.max.lag.ms", 2 * SECOND_MS))

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "delete")


class CountedLoop(Loop):
    """Counts how often it has taken a topic over."""

    taken: Counter[str]
    taken_in: Counter[int]

    def _opened(self, name: str) -> KeptTopic:
        is_new = name not in self._kept
        kept = super()._opened(name)
        self.taken[name] += is_new
        self.taken_in[(self._runtime.clock() - T0) // HOUR_MS] += is_new
        return kept


@dataclass
class Runner:
    """A process that is killed after some requests, and started again."""

    name: str
    options: dict[str, Any]
    next_ms: int
    loop: CountedLoop | None = None
    requests_left: int = 0
    lives: int = 0


@dataclass
class Shown:
    """A published table as its reader knows it: the appends that it does not show yet, by time and
    version."""

    kind: Kind
    topic: Topic
    follower: Follower
    files: DataFiles
    waiting: list[tuple[int, int]] = field(default_factory=list)
    versions: int = 0

    def expected(self, version: int) -> pa.Table:
        """What the table has to show for a version of the topic."""
        if self.kind.config.get("publish.view") != "latest":
            return self.topic.read(version=version).read_all()
        newest = self.topic.at(version).latest()
        return newest.filter(newest["value"].is_valid())


class Day:
    def __init__(self, kinds: list[Kind], seed: int, lasts_ms: int, kill_after: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.objects = LargeMemoryStore(self.clock)
        self.mirrored = LargeMemoryStore(self.clock)
        self.store = Store(self.objects, self._runtime())
        self.kinds = kinds
        self.topics: dict[str, Topic] = {}
        self.shown: dict[tuple[str, str], Shown] = {}
        self.appended: dict[str, list[tuple[str, int | None]]] = {}
        self.runners: list[Runner] = []
        self.runs: list[tuple[str, JobRun]] = []
        self.requests: Counter[int] = Counter()
        self.taken: Counter[str] = Counter()
        self.taken_in: Counter[int] = Counter()
        self.most_segments: Counter[str] = Counter()
        self.kills = self.failures = 0
        self.worst_lag = {False: 0, True: 0}
        self._lasts_ms, self._kill_after = lasts_ms, kill_after
        self._is_calm = self._is_meeting = False
        self._disturbed: list[int] = [T0]
        self._lived_since_ms: int | None = None
        self._written = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        for kind in kinds:
            self._foresee(kind)

    @property
    def until_ms(self) -> int:
        return T0 + self._lasts_ms

    def add_runner(self, name: str, **options: Any) -> None:
        self.runners.append(Runner(name, options, T0))

    def run(self, until_ms: int) -> None:
        while self.clock.now_ms < until_ms:
            times = [runner.next_ms for runner in self.runners]
            times += [at for at, _, _ in self._events[:1]]
            self.clock.now_ms = max(self.clock.now_ms, min([*times, until_ms]))
            while self._events and self._events[0][0] <= self.clock.now_ms:
                heapq.heappop(self._events)[2]()
            for runner in self.runners:
                if runner.next_ms <= self.clock.now_ms:
                    self._tick(runner)
            self.look()

    def calm_down(self) -> None:
        """From now on nobody is killed, nothing fails, and nobody appends. All are started."""
        self._is_calm = True
        self._events.clear()
        for runner in self.runners:
            runner.next_ms = self.clock.now_ms

    def look(self) -> None:
        """Compare what is new in the published tables, and how late they are."""
        for shown in self.shown.values():
            for version, files in shown.follower.news():
                expected = shown.expected(version)
                order = [("partition", "ascending"), ("offset", "ascending")]
                found, wanted = shown.files.rows(files), shown_columns(expected).sort_by(order)
                assert found.equals(wanted), f"{shown.kind.name} at version {version} is wrong"
                shown.versions += 1
                shown.waiting = [(at, v) for at, v in shown.waiting if v > version]
            self._check_lag(shown)

    def _check_lag(self, shown: Shown) -> None:
        if not shown.waiting or self._lived_since_ms is None:
            return
        since_ms = max(shown.waiting[0][0], self._lived_since_ms)
        lag_ms = self.clock.now_ms - since_ms
        disturbed = sum(at >= since_ms - TAKEOVER_MS for at in self._disturbed)
        self.worst_lag[disturbed > 0] = max(self.worst_lag[disturbed > 0], lag_ms)
        allowed_ms = shown.kind.max_lag_ms + TAKEOVER_MS * disturbed
        assert lag_ms <= allowed_ms, f"{shown.kind.name} is {lag_ms} ms late, not {allowed_ms}"

    # Topics and records.

    def _foresee(self, kind: Kind) -> None:
        begins_ms = T0 + kind.begins_ms
        ends_ms = self.until_ms if kind.ends_ms is None else T0 + kind.ends_ms
        self._at(begins_ms, lambda: self._create(kind))
        if kind.ends_ms is not None:
            self._at(ends_ms, lambda: self._delete(kind))
        for _ in range(kind.appends):
            # Appends come in bursts: several in a short time, and then none for a while.
            at_ms = self.chance.randrange(begins_ms + 1, ends_ms - MINUTE_MS)
            for _ in range(self.chance.choice([1, 1, 4])):
                at_ms += self.chance.randrange(10 * SECOND_MS)
                self._at(at_ms, lambda: self.append(kind))

    def _at(self, at_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, len(self._events) + self._written, action))
        self._written += 1

    def _create(self, kind: Kind) -> None:
        topic = self.store.create_topic(kind.name, kind.partitions, config=kind.config)
        self.topics[kind.name] = topic
        self.appended[kind.name] = []
        folder = self.objects.below(kind.name)
        for name in kind.formats:
            follower = FOLLOWERS[name](folder)
            reader = self.store.topic(kind.name)
            self.shown[kind.name, name] = Shown(kind, reader, follower, DataFiles(folder))
        self._disturbed.append(self.clock.now_ms)

    def _delete(self, kind: Kind) -> None:
        self.look()
        del self.topics[kind.name]
        for name in kind.formats:
            del self.shown[kind.name, name]
        self.store.delete_topic(kind.name)

    def append(self, kind: Kind) -> None:
        topic = self.topics.get(kind.name)
        if topic is None:
            return
        count = self.chance.choice(kind.records)
        keys = [f"k{self.chance.randrange(kind.keys)}" for _ in range(count)]
        numbers: list[int | None] = [*range(self._written, self._written + count)]
        self._written += count
        if kind.is_compacted:
            numbers = [None if self.chance.random() < 0.1 else number for number in numbers]
        values = [None if number is None else str(number) for number in numbers]
        version = topic.append(kafka(keys, values)).version
        segments = live_segments(topic._log.known)
        self.most_segments[kind.name] = max(self.most_segments[kind.name], segments)
        self.appended[kind.name] += zip(keys, numbers, strict=True)
        for name in kind.formats:
            self.shown[kind.name, name].waiting.append((self.clock.now_ms, version))
        if kind.has_groups:
            topic.group(f"g{self._written % 5}").commit(topic.end_offsets())

    # Processes.

    def _runtime(self) -> Runtime:
        waited = 0.0

        def pause(seconds: float) -> None:
            nonlocal waited
            waited += seconds

        return Runtime(
            clock=self.clock,
            new_id=lambda: f"{self.chance.getrandbits(128):032x}",
            monotonic=lambda: self.clock.now_ms / 1000 + waited,
            pause=pause,
            chance=self.chance.random,
            later=lambda work: work(),
            patience_seconds=10.0,
        )

    def _start(self, runner: Runner) -> None:
        runner.lives += 1
        runner.requests_left = round(self.chance.expovariate(1 / self._kill_after)) + 20
        name = f"{runner.name}{runner.lives}"
        store = Store(FaultyStore(self.objects, self._decide_for(runner)), self._runtime())
        options = RunOptions(on_job=lambda run: self.runs.append((name, run)), **runner.options)
        runner.loop = CountedLoop(store, options, one_by_one, OneThread())
        runner.loop.taken, runner.loop.taken_in = self.taken, self.taken_in

    def _decide_for(self, runner: Runner) -> Callable[[str, str], Fault | None]:
        life = runner.lives

        def decide(verb: str, key: str) -> Fault | None:
            self.requests[(self.clock.now_ms - T0) // HOUR_MS] += 1
            if self._is_calm:
                return None
            runner.requests_left -= 1
            if runner.requests_left < 0 or runner.lives != life:
                raise SimulatedCrash
            if not self._is_meeting and self.chance.random() < MEETS:
                self._is_meeting = True
                self.append(self.chance.choice(self.kinds))
                self._is_meeting = False
            if self.chance.random() < FAILS:
                self.failures += 1
                self._disturbed.append(self.clock.now_ms)
                return self.chance.choice([Fault.REFUSE, Fault.LOSE_REPLY])
            return Fault.CRASH_AFTER if runner.requests_left == 0 else None

        return decide

    def _tick(self, runner: Runner) -> None:
        now_ms = self.clock.now_ms
        try:
            if runner.loop is None:
                self._disturbed.append(now_ms)
                self._start(runner)
                if self._lived_since_ms is None:
                    self._lived_since_ms = now_ms
            assert runner.loop is not None
            runner.next_ms = max(runner.loop.tick(), now_ms + 1)
        except SimulatedCrash:
            self.kills += 1
            self._disturbed.append(now_ms)
            runner.loop = None
            runner.next_ms = now_ms + self.chance.randrange(SECOND_MS, 90 * SECOND_MS)
            if not any(other.loop for other in self.runners if "jobs" not in other.options):
                self._lived_since_ms = None

    def newest_values(self, name: str) -> dict[str, int]:
        """The newest value of each key, without those that were deleted."""
        newest = dict(self.appended[name])
        return {key: value for key, value in newest.items() if value is not None}
