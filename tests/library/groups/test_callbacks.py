"""`on_assign`, `on_revoke` and `on_lost`: a program is told of its partitions in time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from pylogtable import CommitConflictError, Consumer, InvalidRequestError, Topic
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock
from tests.library.groups.test_consumer import drain, fill, of_partition
from tests.library.groups.test_dynamic_members import LEASE, beat, states

Told = list[tuple[str, Any]]


@pytest.fixture
def topic(store: Store) -> Topic:
    topic = store.create_topic("t", partitions=4)
    fill(topic, 5, 5, 5, 5)
    return topic


@pytest.fixture
def told() -> Told:
    return []


def heard(topic: Topic, told: Told, name: str | None = "a", **options: Any) -> Consumer:
    """A consumer that writes down what it is told, and commits what it has before it goes."""

    def revoke(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        told.append(("revoke", partitions))
        told.append(("committed", consumer.commit()))

    def note(word: str) -> Callable[[Consumer, tuple[int, ...]], None]:
        return lambda consumer, partitions: told.append((word, partitions))

    options = {"on_assign": note("assign"), "on_revoke": revoke, "on_lost": note("lost")} | options
    return topic.consumer("g", name, **options)


def test_partitions_are_committed_before_they_are_given_up(
    topic: Topic, clock: Clock, told: Told, objects: MemoryStore
) -> None:
    one, other = heard(topic, told), topic.consumer("g", "b")
    assert told == []
    assert len(drain(one)) == 20
    assert told == [("assign", (0, 1, 2, 3))]
    other.assignment()
    assert drain(one) == []  # it has not looked yet
    beat(clock, one, other)
    fives = dict.fromkeys(range(4), 5)
    assert told[1:] == [("revoke", (2, 3)), ("committed", fives)]
    operations = [(state.operation, len(state.members)) for state in states(objects)]
    assert operations == [
        ("join", 1),
        ("join", 2),
        ("commit", 2),  # and gives nothing up
        ("heartbeat", 2),
        ("heartbeat", 2),
    ]
    assert one.member is not None
    assert states(objects)[2].members[one.member].owned == (0, 1, 2, 3)
    assert drain(other) == []  # nothing is read twice
    other.close()
    beat(clock, one)
    assert told[3:] == [("assign", (2, 3))]
    one.close()
    assert told[4:] == [("revoke", (0, 1, 2, 3)), ("committed", {})]


def test_commits_give_nothing_up_without_a_word(topic: Topic, clock: Clock, told: Told) -> None:
    one, other = heard(topic, told), topic.consumer("g", "b")
    drain(one)
    other.assignment()
    for n in range(3):
        one.commit({0: n})
        clock.tick(LEASE // 3)
        assert other.assignment() == ()
    assert [word for word, _ in told] == ["assign"]


def test_lease_that_ran_out_is_told_as_lost(topic: Topic, clock: Clock, told: Told) -> None:
    one = heard(topic, told)
    drain(one)
    one.commit()
    told.clear()
    clock.tick(LEASE)
    fill(topic, 1, 0, 0, 0)
    assert drain(one) == ["0:5"]
    assert told == [("lost", (0, 1, 2, 3)), ("assign", (0, 1, 2, 3))]
    told.clear()
    clock.tick(LEASE)
    one.close()
    assert told == [("lost", (0, 1, 2, 3))]


def test_what_is_lost_is_told_as_revoked_if_nobody_listens_for_it(
    topic: Topic, clock: Clock, told: Told
) -> None:
    one = heard(topic, told, on_lost=None)
    drain(one)
    told.clear()
    clock.tick(LEASE)
    assert len(drain(one)) == 20
    assert told == [
        ("revoke", (0, 1, 2, 3)),
        ("committed", {}),  # others may have read on since
        ("assign", (0, 1, 2, 3)),
    ]


def test_seek_inside_of_on_assign_says_where_to_begin(topic: Topic) -> None:
    def begin_at_3(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        for partition in partitions:
            consumer.seek(partition, 3)

    with topic.consumer("g", "a", auto_offset_reset="none", on_assign=begin_at_3) as consumer:
        found = drain(consumer)
    assert all(of_partition(found, partition) == [3, 4] for partition in range(4))
    with topic.consumer("h", auto_offset_reset="none", on_assign=begin_at_3) as consumer:
        assert len(drain(consumer)) == 8


def test_static_consumer_is_told_of_its_partitions(topic: Topic, told: Told) -> None:
    one = heard(topic, told, None)
    drain(one)
    topic.alter(partitions=5)
    drain(one)
    one.close()
    assert told == [
        ("assign", (0, 1, 2, 3)),
        ("assign", (4,)),
        ("revoke", (0, 1, 2, 3, 4)),
        ("committed", {0: 5, 1: 5, 2: 5, 3: 5, 4: 0}),
    ]


def test_others_that_join_while_a_callback_runs_wait_for_the_next_one(
    topic: Topic, clock: Clock, told: Told
) -> None:
    """Only what the program was told of is given up."""
    other, *late = (topic.consumer("g", name) for name in "bcd")

    def revoke(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        told.append(("revoke", partitions))
        while late:
            late.pop().assignment()

    one = heard(topic, told, on_revoke=revoke)
    drain(one)
    other.assignment()
    clock.tick(LEASE // 10)
    one.poll()
    assert told == [("assign", (0, 1, 2, 3)), ("revoke", (2, 3))]
    assert one._tenures.keys() == {0, 1}
    one.poll()
    assert told[2:] == [("revoke", (1,))]
    assert one._tenures.keys() == {0}


def test_what_was_told_is_given_up_even_if_others_have_left_meanwhile(
    topic: Topic, clock: Clock, told: Told
) -> None:
    other = topic.consumer("g", "b")

    def revoke(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        told.append(("revoke", partitions))
        other.close()

    one = heard(topic, told, on_revoke=revoke)
    drain(one)
    other.assignment()
    clock.tick(LEASE // 10)
    one.poll()
    assert told[1:] == [("revoke", (2, 3))]
    assert one.poll().num_rows == 10  # not committed, so they come again
    assert told[2:] == [("assign", (2, 3))]


def test_callback_that_fails_is_not_called_again_for_the_same(
    topic: Topic, clock: Clock, told: Told
) -> None:
    def fail(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        told.append(("fail", partitions))
        raise ZeroDivisionError

    one, other = heard(topic, told, on_revoke=fail), topic.consumer("g", "b")
    drain(one)
    other.assignment()
    clock.tick(LEASE // 10)
    with pytest.raises(ZeroDivisionError):
        one.poll()
    assert one.poll().num_rows == 0
    beat(clock, other)
    assert other.assignment() == (2, 3)
    with pytest.raises(ZeroDivisionError):
        one.close()
    beat(clock, other, other)
    assert other.assignment() == (0, 1, 2, 3)  # it has left all the same
    assert [word for word, _ in told] == ["assign", "fail", "fail"]


def test_commit_that_is_refused_inside_of_on_revoke_reaches_the_caller(
    topic: Topic, clock: Clock, told: Told
) -> None:
    def too_late(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        clock.tick(LEASE)
        consumer.commit()

    slow, other = heard(topic, told, on_revoke=too_late), topic.consumer("g", "b")
    drain(slow)
    other.assignment()
    clock.tick(LEASE // 10)
    with pytest.raises(CommitConflictError, match="ran out"):
        slow.poll()
    assert len(drain(slow)) == 20  # the other's lease is over, too
    everything = ("assign", (0, 1, 2, 3))
    assert told == [everything, ("lost", (0, 1)), everything]  # it was told of the rest


@pytest.mark.parametrize("method", ["poll", "close"])
def test_consumer_is_not_moved_inside_of_a_callback(topic: Topic, method: str) -> None:
    consumer = topic.consumer("g", "a", on_assign=lambda one, _: getattr(one, method)())
    with pytest.raises(InvalidRequestError, match=rf"{method}\(\) cannot be called inside"):
        consumer.poll()


def test_callbacks_must_be_functions(topic: Topic) -> None:
    with pytest.raises(InvalidRequestError, match="`on_revoke` must be a function"):
        topic.consumer("g", on_revoke="commit")  # type: ignore[arg-type]


def in_thread(work: Callable[[], object]) -> str:
    """The error of this work in another thread."""
    found = []

    def run() -> None:
        try:
            work()
            found.append("")
        except InvalidRequestError as error:
            found.append(str(error))

    thread = Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_second_thread_is_refused_while_one_is_in_the_consumer(topic: Topic) -> None:
    """The first is in a callback, which may use the consumer itself."""
    errors: list[str] = []

    def assigned(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        works = (
            consumer.poll,
            lambda: next(iter(consumer)),
            consumer.commit,
            lambda: consumer.seek(0, 0),
            consumer.positions,
            consumer.records,
        )
        errors.extend(in_thread(work) for work in works)
        consumer.seek(0, 2)

    consumer = topic.consumer("g", "a", on_assign=assigned)
    assert len(drain(consumer)) == 18
    assert len(errors) == 6
    assert all("used by two threads at once" in error for error in errors)
    assert in_thread(consumer.commit) == ""  # one after the other they may


def test_consumer_of_topics_refuses_a_second_thread(topic: Topic, store: Store) -> None:
    fill(store.create_topic("u", partitions=1), 5)
    errors: list[str] = []

    def assigned(consumer: Any, partitions: Any) -> None:
        errors.extend(in_thread(work) for work in (consumer.poll, consumer.commit))
        consumer.commit({name: dict.fromkeys(mine, 0) for name, mine in partitions.items()})

    consumer = store.consumer("g", ["t", "u"], member="a", on_assign=assigned)
    assert consumer.poll().num_rows
    assert len(errors) == 4
    assert all("used by two threads at once" in error for error in errors)
    consumer.close()


def test_close_waits_for_its_turn(topic: Topic) -> None:
    """So a thread can end the loop of another."""
    closing: list[Thread] = []

    def assigned(consumer: Consumer, partitions: tuple[int, ...]) -> None:
        closing.append(Thread(target=consumer.close))
        closing[0].start()

    consumer = topic.consumer("g", "a", on_assign=assigned)
    assert consumer.poll(max_records=1).num_rows == 1
    closing[0].join()
    with pytest.raises(InvalidRequestError, match="is closed"):
        consumer.poll()
