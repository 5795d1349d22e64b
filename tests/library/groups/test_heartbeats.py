"""A heartbeat renews the lease of a member while its program works, and does nothing else."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import pylogtable
from pylogtable import CommitConflictError, Consumer, Topic
from pylogtable.groups.dynamic_member import DynamicMember
from pylogtable.groups.heartbeat_plan import Act, plan_beat
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, runtime
from tests.library.groups.test_consumer import drain, fill
from tests.library.groups.test_dynamic_members import states
from tests.stores import CountingStore, Fault, FaultyStore

LEASE = 10_000
IDLE = 300_000
WAITED_SECONDS = 60


class Work:
    """What runs beside a program here: nothing, until the test runs it."""

    def __init__(self, clock: Clock, objects: ObjectStore) -> None:
        self.threads: list[Callable[[], None]] = []
        self.process = 1
        self.runtime = replace(
            runtime(clock),
            monotonic=lambda: clock.now_ms / 1000,
            beside=self.threads.append,
            process_id=lambda: self.process,
        )
        self.store = Store(objects, self.runtime)

    def topic(self) -> Topic:
        return self.store.topic("t")


@pytest.fixture
def work(clock: Clock, objects: MemoryStore) -> Work:
    return Work(clock, objects)


@pytest.fixture
def topic(store: Store, work: Work) -> Topic:
    fill(store.create_topic("t", partitions=4), 5, 5, 5, 5)
    return work.topic()


def member_of(consumer: Consumer) -> DynamicMember:
    member = consumer._member
    assert isinstance(member, DynamicMember)
    return member


def beat(consumer: Consumer) -> float | None:
    return member_of(consumer)._heart.beat()


def work_for(clock: Clock, ms: int, *consumers: Consumer) -> None:
    """The programs work, and neither poll nor commit. Their hearts beat when it is time."""
    until_ms = clock.now_ms + ms
    while clock.now_ms < until_ms:
        waits = [wait for consumer in consumers if (wait := beat(consumer)) is not None]
        clock.tick(min(until_ms - clock.now_ms, *(int(wait * 1000) + 1 for wait in waits)))


@pytest.mark.parametrize(
    ("now", "until", "idle", "act", "wait"),
    [
        (0, None, 0, Act.WAIT, 1),  # not in the group
        (0, 3_000, 0, Act.WAIT, 1),
        (400, 3_000, 0, Act.WAIT, 0.6),  # until a third of the lease is over
        (400, 3_000, 4_700, Act.WAIT, 0.3),  # until the program has been idle for too long
        (999, 3_000, 0, Act.WAIT, 0.001),
        (1_000, 3_000, 0, Act.RENEW, 1),
        (2_999, 3_000, 4_999, Act.RENEW, 1),
        (2_999, 3_000, 5_000, Act.LEAVE, 1),
        (3_000, 3_000, 5_000, Act.WAIT, 1),  # the lease is over
        (0, 9_000, 0, Act.WAIT, 1),  # the clock was set back: look again soon
    ],
)
def test_plan_of_a_beat(now: int, until: int | None, idle: int, act: Act, wait: float) -> None:
    assert plan_beat(now, until, 3_000, idle, 5_000) == (act, wait)


def test_work_may_take_longer_than_the_lease(topic: Topic, clock: Clock) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    assert drain(one, 8)
    work_for(clock, IDLE - 1, one)
    assert other.assignment() == ()
    assert one.commit() == dict.fromkeys(range(4), 5)
    assert one.member is not None


def test_beats_write_no_more_than_polls_would(
    topic: Topic, clock: Clock, work: Work, objects: MemoryStore
) -> None:
    counting = CountingStore(objects)
    consumer = Store(counting, work.runtime).topic("t").consumer("g", "a", lease_ms=30_000)
    drain(consumer)
    counting.reset()
    for _ in range(60):
        clock.tick(1_000)
        beat(consumer)
    assert counting.counts["create"] == 6
    for _ in range(60):
        clock.tick(1_000)
        beat(consumer)
        consumer.poll()
    assert counting.counts["create"] == 12
    assert counting.counts["list"] == 0


def test_beat_gives_up_nothing_and_takes_nothing(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    one, other, dead = (topic.consumer("g", name) for name in ("a", "b", "c"))
    one.assignment()
    other.assignment()
    work_for(clock, 2 * LEASE, one, other)
    owned = {name: held.owned for name, held in states(objects)[-1].members.items()}
    assert owned == {one.member: (0, 1, 2, 3), other.member: ()}
    one.poll()  # gives up two
    dead.poll()
    other.poll()
    work_for(clock, LEASE, one, other)
    before = other.assignment()
    dead_id = dead.member
    work_for(clock, LEASE, one, other)
    newest = states(objects)[-1]
    assert {states(objects)[-1].operation} == {"heartbeat"}
    assert dead_id in newest.members or before  # its partitions stay until somebody polls
    assert member_of(other).tenures.keys() == set(before)


def test_program_that_never_polls_leaves_the_group(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    assert drain(one)
    work_for(clock, IDLE - 1_000, one)
    assert one.member is not None
    work_for(clock, 2_000, one)
    assert one.member is None
    assert states(objects)[-1].operation == "leave"
    before = states(objects)[-1].number
    work_for(clock, IDLE, one)
    assert states(objects)[-1].number == before
    assert len(other.assignment()) == 4  # at once
    with pytest.raises(CommitConflictError, match=r"for 300 s \(max_poll_interval_ms\)"):
        one.commit()
    assert one.assignment() == ()
    assert one.member is not None


def test_commit_is_a_sign_of_life_and_a_long_lease_counts(topic: Topic, clock: Clock) -> None:
    consumer = topic.consumer("g", "a", max_poll_interval_ms=1_000)
    drain(consumer)
    for n in range(5):
        work_for(clock, LEASE - 1, consumer)
        consumer.commit({0: n})
    work_for(clock, 2 * LEASE, consumer)
    assert consumer.member is None


def test_member_that_was_removed_is_told_by_its_commit(
    topic: Topic, clock: Clock, work: Work, objects: MemoryStore
) -> None:
    counting = CountingStore(objects)
    consumer = Store(counting, work.runtime).topic("t").consumer("g", "a")
    drain(consumer)
    topic.group("g").remove_member("a")
    work_for(clock, LEASE // 2, consumer)
    counting.reset()
    work_for(clock, LEASE // 2 - 1, consumer)
    assert not counting.counts  # it has been refused once, and asks no more
    assert consumer.member is not None
    with pytest.raises(CommitConflictError, match="no longer in the group"):
        consumer.commit()
    assert len(drain(consumer)) == 20


def test_store_that_is_down_is_told_by_the_program_and_not_by_beats(
    topic: Topic, clock: Clock, work: Work, objects: MemoryStore
) -> None:
    is_down = False

    def decide(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if is_down else None

    impatient = replace(work.runtime, patience_seconds=0)
    consumer = Store(FaultyStore(objects, decide), impatient).topic("t").consumer("g", "a")
    drain(consumer)
    is_down = True
    work_for(clock, LEASE // 2, consumer)
    is_down = False
    work_for(clock, LEASE, consumer)
    assert consumer.commit() == dict.fromkeys(range(4), 5)
    is_down = True
    work_for(clock, LEASE, consumer)
    is_down = False
    with pytest.raises(CommitConflictError, match=r"(?s)ran out \d+ ms ago. The heartbeat could"):
        consumer.commit({0: 4})


def test_clock_that_is_set_forward_ends_the_lease_and_no_more(topic: Topic, clock: Clock) -> None:
    consumer = topic.consumer("g", "a")
    drain(consumer)
    clock.tick(LEASE)
    wait = beat(consumer)
    assert wait == LEASE / 3000
    assert len(drain(consumer)) == 20
    clock.tick(-LEASE)
    assert beat(consumer) == LEASE / 3000
    assert consumer.commit() == dict.fromkeys(range(4), 5)


class SlowForBeats(WrappedStore):
    """A put of this thread takes until the test lets it go on."""

    def __init__(self, inner: ObjectStore, slow: Slow) -> None:
        super().__init__(inner)
        self._slow = slow

    def below(self, prefix: str) -> SlowForBeats:
        return SlowForBeats(self._inner.below(prefix), self._slow)

    def create(self, key: str, data: bytes) -> Created:
        if threading.current_thread() is self._slow.thread:
            self._slow.has_begun.set()
            assert self._slow.may_go_on.wait(WAITED_SECONDS)
        return self._inner.create(key, data)


@dataclass
class Slow:
    thread: threading.Thread | None = None
    has_begun: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)


def test_poll_does_not_wait_for_a_beat(
    topic: Topic, clock: Clock, work: Work, objects: MemoryStore
) -> None:
    slow = Slow()
    consumer = Store(SlowForBeats(objects, slow), work.runtime).topic("t").consumer("g", "a")
    consumer.poll(max_records=1)
    clock.tick(LEASE // 2)
    slow.thread = threading.Thread(target=lambda: beat(consumer))
    slow.thread.start()
    assert slow.has_begun.wait(WAITED_SECONDS)
    assert len(drain(consumer)) == 19
    slow.may_go_on.set()
    consumer.commit()
    slow.thread.join(WAITED_SECONDS)
    assert [state.operation for state in states(objects)] == ["join", "heartbeat", "commit"]


def test_one_thread_ends_with_the_consumer(topic: Topic, work: Work, clock: Clock) -> None:
    consumer = topic.consumer("g", "a")
    assert work.threads == []  # nothing is written before the first poll
    for _ in range(3):
        drain(consumer)
        clock.tick(LEASE)
    assert len(work.threads) == 1
    thread = threading.Thread(target=work.threads[0])
    thread.start()
    consumer.close()
    thread.join(WAITED_SECONDS)
    assert not thread.is_alive()
    assert beat(consumer) is None


def test_consumer_that_was_dropped_beats_no_more(
    topic: Topic, work: Work, clock: Clock, objects: MemoryStore
) -> None:
    consumer = topic.consumer("g", "a")
    drain(consumer)
    gc.disable()
    try:
        del consumer
        clock.tick(LEASE // 2)
        work.threads[0]()  # ends
    finally:
        gc.enable()
    assert [state.operation for state in states(objects)] == ["join"]


def test_copy_in_a_forked_process_is_another_member(
    topic: Topic, work: Work, clock: Clock, objects: MemoryStore
) -> None:
    consumer = topic.consumer("g", "a")
    drain(consumer)
    before = consumer.member
    member_of(consumer)._lock.acquire()  # the parent's thread may hold these at that moment
    member_of(consumer)._heart._lock.acquire()
    work.process = 2
    clock.tick(LEASE // 2)
    with pytest.raises(CommitConflictError, match="not a member"):
        consumer.commit()
    assert drain(consumer) == []
    assert consumer.member not in (None, before)
    assert len(work.threads) == 2
    assert before in states(objects)[-1].members
    consumer.close()
    assert list(states(objects)[-1].members) == [before]


def test_copy_in_a_forked_process_does_not_take_its_parent_out(
    topic: Topic, work: Work, objects: MemoryStore
) -> None:
    consumer = topic.consumer("g", "a")
    drain(consumer)
    work.process = 2
    consumer.close()
    assert [state.operation for state in states(objects)] == ["join"]


def test_program_ends_without_a_word_while_its_heart_beats(tmp_path: Path) -> None:
    """It has closed nothing, and its leases are renewed all the time."""
    store = pylogtable.open(tmp_path)
    for name in ("a", "b", "c"):
        store.create_topic(name)
    code = (
        "import pylogtable, sys\n"
        "store = pylogtable.open(sys.argv[1])\n"
        "many = store.consumer('g', pattern='.*', member='m', lease_ms=100)\n"
        "one = store.topic('a').consumer('h', 'm', lease_ms=100)\n"
        "for _ in range(30):\n"
        "    many.poll(0.01)\n"
        "    one.poll(0.01)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WAITED_SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
