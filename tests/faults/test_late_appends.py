"""A run dies while its append is on its way, and the next run goes on: no record twice, none lost.

A run asks for the last txn, whose number says how many records are in the log, and appends the rest
with `expected_last`. If another append has landed by then, it asks again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pylogtable.append.report import AppendResult
from pylogtable.engine import plan_append
from pylogtable.errors import CommitConflictError, CommitUnknownError
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.faults.support import (
    check,
    data_files,
    faulty,
    named_files,
    new_topic,
    open_topic,
    rows,
)
from tests.stores import Fault, FaultyStore

APP = "loader"
#: More than the operations of a run, so that a late put also lands after it.
MOMENTS = 20

Append = Callable[[Topic, range, int, int | None], AppendResult]


def append(topic: Topic, numbers: range, end: int, last: int | None) -> AppendResult:
    return topic.append(rows(numbers), txn=(APP, end), expected_last=last)


def stage_and_commit(topic: Topic, numbers: range, end: int, last: int | None) -> AppendResult:
    """What an engine does."""
    staged = [plan_append(topic).stage(rows(part)) for part in (numbers[:3], numbers[3:])]
    return plan_append(topic, refresh=False).commit(staged, txn=(APP, end), expected_last=last)


def load(topic: Topic, end: int, how: Append = append) -> list[int]:
    """Bring the records up to `end` into the log. Returns how many were there at each look."""
    looks = []
    while True:
        done = topic.last_txn(APP)
        looks.append(done or 0)
        assert len(looks) <= 3
        if looks[-1] >= end:
            return looks
        try:
            how(topic, range(done or 0, end), end, done)
        except CommitConflictError:
            continue
        return looks


def is_commit(verb: str, key: str) -> bool:
    return verb == "create" and "/_manifest/" in key and ".root." not in key


def dead_run(inner: MemoryStore, end: int) -> FaultyStore:
    """A run that died while its append was on its way; `land` lets it arrive."""
    store = FaultyStore(inner, lambda v, k: Fault.LATE if is_commit(v, k) else None)
    with pytest.raises(CommitUnknownError):
        load(open_topic(store, patience_seconds=0.01), end)
    assert store.late
    return store


class Moment:
    """Does something at one of the operations that follow."""

    def __init__(self, at: int, what: Callable[[], object]) -> None:
        self.left = at
        self.what = what
        self.seen = False

    def __call__(self, verb: str, key: str) -> None:
        if self.left == 0 and not self.seen:
            self.seen = True
            self.what()
        self.left -= 1


@pytest.mark.parametrize("inline_bytes", [0, 4096], ids=["files", "inline"])
@pytest.mark.parametrize("how", [append, stage_and_commit], ids=["append", "staged"])
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_late_append_of_a_dead_run_brings_no_record_twice(
    moment: int, how: Append, inline_bytes: int
) -> None:
    inner = MemoryStore()
    new_topic(inner, inline_bytes)
    first = dead_run(inner, 10)
    left_behind = data_files(inner)
    lands = Moment(moment, first.land)
    looks = load(faulty(inner, lands), 14, how)
    landed = bool(lands.seen and open_topic(inner).at(1).count() == 10)
    if not lands.seen:
        first.land()
    topic = check(inner, range(14))
    assert topic.last_txn(APP) == 14
    # If it landed first, the next run has seen it, at once or after a refusal. If not, it never
    # lands, and vacuum removes its files.
    assert looks == ([0] if not landed else [10] if looks[0] else [0, 10])
    assert data_files(inner) - named_files(inner) == (set() if landed else left_behind)


@pytest.mark.parametrize("how", [append, stage_and_commit], ids=["append", "staged"])
def test_late_append_lands_before_in_between_and_after(how: Append) -> None:
    """The test above does have all three cases."""
    cases = set()
    for moment in range(MOMENTS):
        inner = MemoryStore()
        new_topic(inner)
        lands = Moment(moment, dead_run(inner, 10).land)
        cases.add(tuple(load(faulty(inner, lands), 14, how)))
    assert cases == {(10,), (0, 10), (0,)}


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("ends", [(10, 14), (14, 10), (12, 12)])
def test_two_runs_that_are_both_alive_bring_no_record_twice(
    moment: int, ends: tuple[int, int]
) -> None:
    """One stops in the middle for a while, as a process that is suspended, and the other runs."""
    inner = MemoryStore()
    new_topic(inner)
    successor = open_topic(inner)
    topic = faulty(inner, Moment(moment, lambda: load(successor, ends[1])))
    load(topic, ends[0])
    load(successor, ends[1])
    check(inner, range(max(ends)))
    assert data_files(inner) == named_files(inner)


@pytest.mark.parametrize("lands", ["before", "after", "never"])
def test_repeat_after_an_unknown_outcome_is_not_refused(lands: str) -> None:
    """By then its own txn may be the last one, and not the expected one."""
    inner = MemoryStore()
    new_topic(inner).append(rows(range(4)), txn=(APP, 4))
    store = FaultyStore(inner, lambda v, k: Fault.LATE if is_commit(v, k) else None)
    mine = {"txn": (APP, 8), "expected_last": 4}
    with pytest.raises(CommitUnknownError):
        open_topic(store, patience_seconds=0.01).append(rows(range(4, 8)), **mine)
    if lands == "before":
        store.land()
    result = open_topic(inner).append(rows(range(4, 8)), **mine)
    if lands == "after":
        store.land()
    assert result.repeated == (lands == "before")
    assert result.offsets == {0: (2, 4), 1: (2, 4)}
    check(inner, range(8))


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.SELF_RETRY, Fault.REFUSE, Fault.LATE])
def test_refused_append_removes_its_files_and_no_others(fault: Fault) -> None:
    """Another one takes the version just before the put, whatever the store answers."""
    inner = MemoryStore()
    new_topic(inner)
    other = open_topic(inner)
    won: list[AppendResult] = []

    def decide(verb: str, key: str) -> Fault | None:
        if is_commit(verb, key) and not won:
            won.append(other.append(rows(range(3)), txn=(APP, 3)))
            return fault
        return None

    store = FaultyStore(inner, decide)
    with pytest.raises(CommitConflictError, match="is 3 in version 1, and expected_last is None"):
        open_topic(store).append(rows(range(5)), txn=(APP, 5), expected_last=None)
    store.land()
    check(inner, range(3))
    assert data_files(inner) == named_files(inner)
