"""Dynamic members of a group share partitions, take over, are fenced, and join again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pylogtable import (
    CommitConflictError,
    Consumer,
    InvalidRequestError,
    StorageError,
    Topic,
    TopicNotFoundError,
)
from pylogtable.format.group_model import GroupState
from pylogtable.format.json_codec import decode_group
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, contents, make_store, runtime
from tests.library.groups.test_consumer import drain, fill, of_partition
from tests.stores import CountingStore, Fault, FaultyStore

LEASE = 10_000


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=4)
    fill(topic, 5, 5, 5, 5)
    return topic


def states(objects: MemoryStore) -> list[GroupState]:
    found = []
    for info in objects.below("t").list("_groups/g/"):
        data = objects.below("t").read(info.key)
        assert data is not None
        found.append(decode_group(data, "g", int(info.key[-25:-5])))
    return found


def beat(clock: Clock, *consumers: Consumer) -> None:
    """Let each consumer look at the group once, a tenth of the lease apart."""
    for consumer in consumers:
        clock.tick(LEASE // 10)
        consumer.assignment()


def test_first_poll_joins_the_group_and_opening_does_not(
    topic: Topic, objects: MemoryStore
) -> None:
    consumer = topic.consumer("g", "worker")
    assert states(objects) == []
    assert consumer.member is None
    assert len(drain(consumer)) == 20
    assert consumer.member is not None
    assert consumer.member.startswith("worker-")
    (state,) = states(objects)
    assert state.members[consumer.member].owned == (0, 1, 2, 3)
    assert (state.operation, state.generation) == ("join", 1)


def test_members_share_partitions_evenly(topic: Topic, clock: Clock) -> None:
    one = topic.consumer("g", "a")
    assert one.assignment() == (0, 1, 2, 3)
    other = topic.consumer("g", "b")
    assert other.assignment() == ()
    beat(clock, one, other)
    assert (one.assignment(), other.assignment()) == ((0, 1), (2, 3))
    third = topic.consumer("g", "c")
    beat(clock, third, one, other, third)
    owned = [one.assignment(), other.assignment(), third.assignment()]
    assert sorted(len(mine) for mine in owned) == [1, 1, 2]
    assert sorted(p for mine in owned for p in mine) == [0, 1, 2, 3]
    other.close()
    beat(clock, one, third)
    assert sorted([*one.assignment(), *third.assignment()]) == [0, 1, 2, 3]


def test_committed_records_are_not_polled_again_when_partitions_move(
    topic: Topic, clock: Clock
) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    first = drain(one, 8)
    one.commit()
    other.assignment()
    fill(topic, 2, 2, 2, 2)
    beat(clock, one, other)
    rest = drain(one) + drain(other)
    assert len(first) == 20
    assert sorted(rest) == sorted(f"{p}:{n}" for p in range(4) for n in (5, 6))


def test_uncommitted_records_are_polled_again_by_the_next_owner(topic: Topic, clock: Clock) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    drain(one)
    other.assignment()
    beat(clock, one, other)
    assert of_partition(drain(other), 2) == list(range(5))


def test_commit_hands_partitions_over_in_the_same_step(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    drain(one)
    other.assignment()
    one.commit()
    newest = states(objects)[-1]
    assert newest.operation == "commit"
    assert one.member is not None
    assert newest.members[one.member].owned == (0, 1)
    assert {p: entry.offset for p, entry in newest.positions.items()} == dict.fromkeys(range(4), 5)
    assert one.commit() == {}
    clock.tick(LEASE // 10)
    assert other.assignment() == (2, 3)
    assert drain(other) == []


def test_dead_member_is_replaced_after_its_lease(topic: Topic, clock: Clock) -> None:
    dead, alive = topic.consumer("g", "a"), topic.consumer("g", "b")
    dead.poll(max_records=4)
    alive.assignment()
    clock.tick(LEASE - 1)
    assert alive.assignment() == ()
    clock.tick(1)
    beat(clock, alive)
    assert alive.assignment() == (0, 1, 2, 3)
    assert len(drain(alive)) == 20
    alive.commit()


def test_member_that_lost_its_lease_cannot_commit_and_joins_again(
    topic: Topic, clock: Clock
) -> None:
    slow, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    assert slow.poll(max_records=8).num_rows == 8
    before = slow.member
    clock.tick(LEASE)
    other.assignment()
    assert other.poll(max_records=4).num_rows == 4
    other.commit()
    for _ in range(2):
        with pytest.raises(CommitConflictError):
            slow.commit()
    with pytest.raises(CommitConflictError):
        slow.commit({0: 3})
    assert topic.group("g").positions() == dict.fromkeys(range(4), 1)
    assert slow.assignment() == ()  # it is in the group again, and has nothing yet
    assert slow.member not in (None, before)
    beat(clock, other, slow)
    assert slow.assignment() == (2, 3)
    assert of_partition(drain(slow), 2) == [1, 2, 3, 4]
    slow.commit()


def test_expired_member_is_refused_even_if_nobody_replaced_it(topic: Topic, clock: Clock) -> None:
    consumer = topic.consumer("g", "a")
    consumer.poll(max_records=8)
    clock.tick(LEASE)
    with pytest.raises(CommitConflictError, match="ran out 0 ms ago"):
        consumer.commit()
    assert len(drain(consumer)) == 20
    assert consumer.commit() == dict.fromkeys(range(4), 5)


def test_late_poll_starts_again_from_the_committed_positions(topic: Topic, clock: Clock) -> None:
    consumer = topic.consumer("g", "a")
    consumer.poll(max_records=8)
    consumer.commit()
    consumer.poll(max_records=8)
    clock.tick(LEASE)
    assert len(drain(consumer)) == 12


def test_member_can_commit_only_its_own_partitions(topic: Topic, clock: Clock) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    beat(clock, one, other, one, other)
    assert other.commit({2: 4}) == {2: 4}
    with pytest.raises(CommitConflictError, match="partition 2 is not owned"):
        one.commit({2: 5})
    with pytest.raises(InvalidRequestError, match="no partition 9"):
        other.commit({9: 5})
    assert topic.group("g").positions() == {2: 4}


def test_only_members_can_commit_while_a_group_is_active(topic: Topic, clock: Clock) -> None:
    member = topic.consumer("g", "a")
    member.poll()
    plain = topic.consumer("g")
    plain.poll()
    with pytest.raises(InvalidRequestError, match="active member"):
        plain.commit()
    with pytest.raises(InvalidRequestError, match="active member"):
        topic.group("g").reset(to="earliest")
    member.close()
    plain.commit()
    assert topic.group("g").positions() == dict.fromkeys(range(4), 5)


def test_close_leaves_at_once_and_commits_if_asked(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    drain(one)
    other.assignment()
    one.close(commit=True)
    assert states(objects)[-1].operation == "leave"
    clock.tick(LEASE // 10)
    assert other.assignment() == (0, 1, 2, 3)
    assert drain(other) == []
    with topic.consumer("g", "c") as third:
        third.assignment()
    assert third.member is None
    assert [m.split("-")[0] for m in states(objects)[-1].members] == ["b"]


def test_close_without_having_joined_writes_nothing(topic: Topic, objects: MemoryStore) -> None:
    topic.consumer("g", "a").close()
    assert states(objects) == []


def test_lease_is_renewed_after_a_third_of_it(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    counting = CountingStore(objects)
    consumer = make_store(counting, clock).topic("t").consumer("g", "a", lease_ms=30_000)
    drain(consumer)
    counting.reset()
    for _ in range(60):  # a second each
        clock.tick(1_000)
        consumer.poll()
    assert counting.counts["create"] == 6
    looks = sum(
        n for (verb, key), n in counting.by_key.items() if verb == "read" and "_groups" in key
    )
    assert looks <= 70
    clock.tick(29_999)
    consumer.poll()
    assert len(states(objects)[-1].members) == 1
    assert states(objects)[-1].generation == 1


def test_new_partitions_are_shared(topic: Topic, clock: Clock) -> None:
    one, other, third = (topic.consumer("g", name) for name in "abc")
    beat(clock, *[one, other, third] * 2)
    topic.alter(partitions=8)
    fill(topic, 0, 0, 0, 0, 1, 1, 1, 1)
    found: list[str] = []
    for _ in range(3):
        for consumer in (one, other, third):
            clock.tick(LEASE // 10)
            found += drain(consumer)
            consumer.commit()
    counts = [len(consumer.assignment()) for consumer in (one, other, third)]
    assert sorted(counts) == [2, 3, 3]
    assert len(found) == len(set(found)) == 24


def test_member_without_partitions_gets_new_ones(topic: Topic, clock: Clock) -> None:
    small = topic.consumer("g", "a")
    others = [topic.consumer("g", name) for name in "bcde"]
    beat(clock, small, *others, small, *others)
    idle = next(c for c in [small, *others] if c.assignment() == ())
    topic.alter(partitions=5)
    fill(topic, 0, 0, 0, 0, 3)
    clock.tick(LEASE // 10)
    assert drain(idle) == ["4:0", "4:1", "4:2"]


def test_new_partitions_are_taken_at_once_when_the_clock_starts_at_zero() -> None:
    """A time of 0 is a time: it must not be taken for "never looked"."""
    clock = Clock(now_ms=0)
    topic = make_store(MemoryStore(), clock).create_topic("t", partitions=1)
    consumer = topic.consumer("g", "a")
    assert consumer.assignment() == (0,)
    topic.alter(partitions=2)
    consumer.poll()
    assert consumer.assignment() == (0, 1)


def test_iteration_waits_for_its_share(objects: MemoryStore, topic: Topic, clock: Clock) -> None:
    """A member that just joined has no partitions yet. That is not the end of the log."""
    one = topic.consumer("g", "a", max_records=4)
    one.poll()
    one.commit()

    def meanwhile(seconds: float) -> None:
        clock.tick(int(seconds * 1000))
        one.assignment()

    own = replace(runtime(clock), pause=meanwhile)
    other = Store(objects, own).topic("t").consumer("g", "b")
    found = [value for table in other for value in table["value"].to_pylist()]
    assert sorted(found) == sorted(f"{p}:{n}".encode() for p in (2, 3) for n in range(1, 5))


@pytest.mark.records_in("files")
def test_poll_starts_again_if_the_lease_runs_out_while_reading(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    """The records are not returned, because another member may own the partitions now."""
    is_slow = True

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal is_slow
        if verb == "open_input" and is_slow:
            is_slow = False
            clock.tick(LEASE)
            rival.assignment()
        return None

    rival = topic.consumer("g", "rival")
    consumer = make_store(FaultyStore(objects, decide), clock).topic("t").consumer("g", "a")
    assert consumer.poll().num_rows == 0
    assert rival.assignment() == (0, 1, 2, 3)
    assert len(drain(rival)) == 20


@pytest.mark.records_in("files")
def test_reads_that_always_outlast_the_lease_are_an_error(
    topic: Topic, clock: Clock, objects: MemoryStore
) -> None:
    def decide(verb: str, key: str) -> Fault | None:
        if verb == "open_input":
            clock.tick(LEASE)
        return None

    consumer = make_store(FaultyStore(objects, decide), clock).topic("t").consumer("g", "a")
    with pytest.raises(InvalidRequestError, match="lost its lease while it read a batch, 3 times"):
        consumer.poll()
    assert consumer.position(0) == 0


def test_clock_that_jumps_and_comes_back_loses_no_records(
    topic: Topic, objects: MemoryStore
) -> None:
    clock = Clock()
    jumps, is_first = False, True

    def jumping() -> int:
        nonlocal jumps
        jump, jumps = jumps, False
        return clock() + (LEASE if jump else 0)

    def decide(verb: str, key: str) -> Fault | None:
        nonlocal jumps, is_first
        if is_first and verb == "open_input" and "partition=3" in key:
            jumps, is_first = True, False
        return None

    consumer = make_store(FaultyStore(objects, decide), jumping).topic("t").consumer("g", "a")
    assert consumer.assignment() == (0, 1, 2, 3)
    member = consumer.member
    found = [consumer.poll(max_records=4).num_rows for _ in range(5)]
    assert found == [4] * 5
    assert consumer.member == member


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.SELF_RETRY])
def test_unknown_outcomes_are_resolved(
    topic: Topic, clock: Clock, objects: MemoryStore, fault: Fault
) -> None:
    def decide(verb: str, key: str) -> Fault | None:
        return fault if verb == "create" and "_groups" in key else None

    consumer = make_store(FaultyStore(objects, decide), clock).topic("t").consumer("g", "a")
    assert len(drain(consumer)) == 20
    consumer.commit()
    assert len(states(objects)) == 2
    assert topic.group("g").positions() == dict.fromkeys(range(4), 5)


def test_failed_heartbeat_can_be_repeated(topic: Topic, clock: Clock, objects: MemoryStore) -> None:
    fails = False

    def decide(verb: str, key: str) -> Fault | None:
        return Fault.REFUSE if fails and verb == "read" and "_groups" in key else None

    consumer = make_store(FaultyStore(objects, decide), clock).topic("t").consumer("g", "a")
    assert consumer.poll(max_records=8).num_rows == 8
    member = consumer.member
    fails = True
    clock.tick(LEASE // 10)
    with pytest.raises(StorageError):
        consumer.poll()
    fails = False
    assert len(drain(consumer)) == 12
    assert consumer.member == member


def test_nothing_is_written_into_a_deleted_topic(
    topic: Topic, store: Store, clock: Clock, objects: MemoryStore
) -> None:
    consumer, idle = topic.consumer("g", "a"), topic.consumer("g", "b")
    consumer.poll()
    store.delete_topic("t")
    before = contents(objects)
    clock.tick(LEASE // 2)
    for call in (consumer.poll, consumer.commit, idle.poll):
        with pytest.raises(TopicNotFoundError):
            call()
    consumer.close()
    idle.close()
    assert contents(objects) == before


def test_groups_are_independent_and_names_need_not_be_unique(topic: Topic) -> None:
    consumers: list[Callable[[], Consumer]] = [
        lambda: topic.consumer("g", "same"),
        lambda: topic.consumer("g", "same"),
        lambda: topic.consumer("h", "same"),
    ]
    one, twin, other = (make() for make in consumers)
    assert one.assignment() == other.assignment() == (0, 1, 2, 3)
    assert twin.assignment() == ()
    assert one.member != twin.member


DAY = 86_400_000


def test_lease_of_more_than_a_day_is_refused(topic: Topic) -> None:
    with pytest.raises(InvalidRequestError, match=r"at most 86,400,000 \(24 hours\).*86,400,001"):
        topic.consumer("g", "worker", lease_ms=DAY + 1)
    assert topic.consumer("g", "worker", lease_ms=DAY).poll().num_rows


def test_dead_member_whose_clock_was_far_ahead_does_not_lock_the_group(
    topic: Topic, objects: MemoryStore, clock: Clock
) -> None:
    ahead = make_store(objects, Clock(clock() + 1000 * DAY)).topic("t")
    dead = ahead.consumer("g", "dead")
    assert len(drain(dead)) == 20
    dead.commit()
    fill(topic, 1, 1, 1, 1)
    assert [row.member for row in topic.group("g").describe()] == [None] * 4
    worker = topic.consumer("g", "worker")
    assert len(drain(worker)) == 4
    worker.commit()
    assert worker.assignment() == (0, 1, 2, 3)
    (member,) = states(objects)[-1].members
    assert member.startswith("worker-")


def test_group_is_free_after_a_member_with_an_impossible_lease(
    topic: Topic, objects: MemoryStore, clock: Clock
) -> None:
    dead = make_store(objects, Clock(clock() + 2 * DAY)).topic("t").consumer("g", "dead")
    dead.poll()
    topic.group("g").commit({0: 3})
    topic.group("g").reset("earliest")
    topic.group("g").delete()


def test_member_whose_clock_was_set_back_by_days_joins_again(
    topic: Topic, objects: MemoryStore
) -> None:
    clock = Clock()
    worker = make_store(objects, clock).topic("t").consumer("g", "worker", max_records=5)
    clock.tick(5 * DAY)
    worker.poll()
    worker.commit()
    before = worker.member
    clock.tick(-5 * DAY)
    with pytest.raises(CommitConflictError, match="too far ahead to be believed"):
        worker.commit({0: 1})
    assert len(drain(worker)) == 15
    assert worker.member != before
    worker.commit()
    assert sum(topic.group("g").positions().values()) == 20


class TestRemoveMember:
    def test_partitions_of_the_removed_member_go_to_the_others(
        self, topic: Topic, clock: Clock, objects: MemoryStore
    ) -> None:
        dead, worker = topic.consumer("g", "dead"), topic.consumer("g", "worker")
        beat(clock, dead, worker, dead, worker)
        assert len(worker.assignment()) == 2
        generation = states(objects)[-1].generation
        assert topic.group("g").remove_member("dead") == [dead.member]
        assert states(objects)[-1].operation == "remove"
        assert states(objects)[-1].generation == generation + 1
        beat(clock, worker)
        assert worker.assignment() == (0, 1, 2, 3)

    def test_member_that_is_alive_cannot_commit_and_joins_again(
        self, topic: Topic, clock: Clock
    ) -> None:
        alive = topic.consumer("g", "alive")
        alive.poll()
        before = alive.member
        assert before is not None
        assert topic.group("g").remove_member(before) == [before]
        with pytest.raises(CommitConflictError, match="no longer in the group"):
            alive.commit()
        assert len(drain(alive)) == 20
        assert alive.member != before

    def test_all_members_of_a_name_go_and_no_other(self, topic: Topic, clock: Clock) -> None:
        names = ["w", "w", "w-1", "w-12345678"]
        consumers = [topic.consumer("g", name) for name in names]
        beat(clock, *consumers)
        ids = [consumer.member for consumer in consumers]
        assert topic.group("g").remove_member("w", dry_run=True) == sorted(map(str, ids[:2]))
        assert topic.group("g").remove_member("w") == sorted(map(str, ids[:2]))
        assert topic.group("g").remove_member("w-1") == [ids[2]]
        with pytest.raises(InvalidRequestError, match=f"no member 'w'; its members: {ids[3]}"):
            topic.group("g").remove_member("w")

    def test_positions_stay(self, topic: Topic) -> None:
        worker = topic.consumer("g", "worker")
        worker.poll()
        worker.commit()
        before = topic.group("g").positions()
        topic.group("g").remove_member("worker")
        assert topic.group("g").positions() == before
        topic.group("g").reset("earliest")

    def test_group_without_members(self, topic: Topic) -> None:
        with pytest.raises(InvalidRequestError, match="its members: none"):
            topic.group("g").remove_member("worker")
        with pytest.raises(InvalidRequestError, match="name"):
            topic.group("g").remove_member(7)  # type: ignore[arg-type]

    def test_in_all_topics_of_a_store(self, store: Store, topic: Topic) -> None:
        other = store.create_topic("u")
        fill(other, 1)
        members = [t.consumer("g", "w") for t in (topic, other)]
        for member in members:
            member.poll()
        found = store.group("g").remove_member("w")
        assert found == {"t": [members[0].member], "u": [members[1].member]}
        with pytest.raises(InvalidRequestError, match="no member 'w'"):
            store.group("g").remove_member("w")
