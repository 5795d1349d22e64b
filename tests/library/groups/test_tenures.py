"""Whoever gains a partition begins at its committed position, also if it had the partition before.
A commit never moves the position of a partition that was lost in between."""

from __future__ import annotations

import pytest

from pylogtable import CommitConflictError, Consumer, Topic
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.delegating import WrappedStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, make_store
from tests.library.groups.test_consumer import drain, fill, of_partition

LEASE = 30_000


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=2)
    fill(topic, 100, 100)
    return topic


def polled(topic: Topic, records: int) -> Consumer:
    """A member that has polled so many records of both partitions, and committed none."""
    consumer = topic.consumer("g", "a", lease_ms=LEASE)
    consumer.poll(max_records=2 * records)
    assert [consumer.position(p) for p in (0, 1)] == [records, records]
    return consumer


def lend(topic: Topic, clock: Clock, lender: Consumer, committed: int | None) -> None:
    """Another member joins, gets partition 1, commits there and leaves. The lender only commits."""
    other = topic.consumer("g", "b", lease_ms=LEASE)
    other.assignment()
    lender.commit({0: 5})
    clock.tick(LEASE // 10)
    assert other.assignment() == (1,)
    if committed is not None:
        other.seek(1, committed)
        other.commit()
    other.close()


def test_partition_that_comes_back_is_not_committed_backward(topic: Topic, clock: Clock) -> None:
    one = polled(topic, 10)
    lend(topic, clock, one, committed=60)
    one.commit({0: 10})  # takes partition 1 back
    assert min(of_partition(drain(one), 1)) == 60
    one.commit()
    assert topic.group("g").positions() == {0: 100, 1: 100}


def test_partition_that_comes_back_skips_no_record(topic: Topic, clock: Clock) -> None:
    one = polled(topic, 80)
    lend(topic, clock, one, committed=30)
    one.commit({0: 10})
    assert of_partition(drain(one), 1) == list(range(30, 100))


def test_partition_that_nobody_committed_begins_anew(topic: Topic, clock: Clock) -> None:
    one = polled(topic, 10)
    lend(topic, clock, one, committed=None)
    one.commit({0: 10})
    assert one.position(1) == 0
    assert one.position(0) == 10  # it was never lost


@pytest.mark.parametrize("is_back", [False, True])
def test_positions_from_before_are_left_out_of_a_commit(
    topic: Topic, clock: Clock, is_back: bool
) -> None:
    one = polled(topic, 10)
    lend(topic, clock, one, committed=60)
    if is_back:
        one.commit({0: 6})
    assert one.commit() == {0: 10}
    assert topic.group("g").positions() == {0: 10, 1: 60}


@pytest.mark.parametrize("is_back", [False, True])
def test_close_does_not_commit_positions_from_before(
    topic: Topic, clock: Clock, is_back: bool
) -> None:
    one = polled(topic, 10)
    lend(topic, clock, one, committed=60)
    if is_back:
        one.commit({0: 6})
    one.close(commit=True)
    assert topic.group("g").positions() == {0: 10, 1: 60}


def test_given_positions_of_a_lost_partition_are_refused(topic: Topic, clock: Clock) -> None:
    one = polled(topic, 10)
    member = one.member
    lend(topic, clock, one, committed=60)
    with pytest.raises(
        CommitConflictError, match=r"partition 1 is not owned by member 'a-.*nobody"
    ):
        one.commit({0: 9, 1: 10})
    one.commit({0: 6})
    for _ in range(2):
        with pytest.raises(CommitConflictError, match="took partition 1 after its last poll"):
            one.commit({0: 9, 1: 10})
        assert one.assignment() == (0, 1)  # says that it is back, and not where to go on
    assert topic.group("g").positions() == {0: 6, 1: 60}
    assert one.member == member  # it knows what it owns, so there is no need to join again
    one.poll(max_records=1)
    assert one.commit({1: 70}) == {1: 70}


def test_partition_that_comes_back_is_not_paused(topic: Topic, clock: Clock) -> None:
    one = polled(topic, 10)
    one.pause([0, 1])
    lend(topic, clock, one, committed=60)
    one.commit({0: 10})
    assert of_partition(drain(one), 1) == list(range(60, 100))
    assert one.position(0) == 10


class Interrupted(WrappedStore):
    """Ctrl-C comes right after an object was put, as often as `due` has an item."""

    def __init__(self, inner: ObjectStore, due: list[str]) -> None:
        super().__init__(inner)
        self._due = due

    def below(self, prefix: str) -> Interrupted:
        return Interrupted(self._inner.below(prefix), self._due)

    def create(self, key: str, data: bytes) -> Created:
        created = self._inner.create(key, data)
        if self._due and created is Created.YES:
            self._due.pop()
            raise KeyboardInterrupt
        return created


def test_commits_that_are_interrupted_give_up_and_take_partitions_all_the_same(
    clock: Clock,
) -> None:
    due: list[str] = []
    topic = make_store(Interrupted(MemoryStore(), due), clock).create_topic("t", partitions=2)
    fill(topic, 100, 100)
    one = polled(topic, 10)
    other = topic.consumer("g", "b", lease_ms=LEASE)
    other.assignment()
    due.append("give up")
    with pytest.raises(KeyboardInterrupt):
        one.commit({0: 5})  # gives partition 1 up
    clock.tick(LEASE // 10)
    assert other.assignment() == (1,)
    other.seek(1, 60)
    other.close(commit=True)
    due.append("take")
    with pytest.raises(KeyboardInterrupt):
        one.commit({0: 6})  # takes it back
    assert one.commit() == {0: 10}
    assert min(of_partition(drain(one), 1)) == 60


def test_static_consumer_does_not_overwrite_what_it_has_not_seen(topic: Topic) -> None:
    """Two consumers were given the same number. The one that is behind may not win."""
    one, other = topic.consumer("g"), topic.consumer("g")
    one.poll(max_records=20)
    other.poll(max_records=120)
    other.commit({1: 60})
    one.commit({0: 5})
    with pytest.raises(CommitConflictError, match="its position was none and is 60 now"):
        one.commit()
    assert min(of_partition(drain(one), 1)) == 60
    one.commit()
    assert topic.group("g").positions() == {0: 100, 1: 100}


def test_commit_of_one_partition_is_no_look_at_another(topic: Topic) -> None:
    one, other = topic.group("g"), topic.group("g")
    assert one.positions() == other.positions() == {}
    other.commit({1: 60})
    assert one.commit({0: 5}) == {0: 5, 1: 60}
    with pytest.raises(CommitConflictError, match="its position was none and is 60 now"):
        one.commit({1: 10})
    assert one.positions() == {0: 5, 1: 60}
    assert one.commit({1: 61}) == {0: 5, 1: 61}
