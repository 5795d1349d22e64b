"""Sealed copies whose commit has lost against appends, or that was killed before it: the merge of a
loop replaces them, so neither the topic nor the state of a table grows with their number."""

from __future__ import annotations

from contextlib import suppress

import pytest

from pylogtable import Topic
from pylogtable.engine import plan_append
from pylogtable.errors import LogTableError
from pylogtable.publish.tables import table_of
from pylogtable.run import RunOptions
from pylogtable.run.due_plan import MERGE_MS
from pylogtable.run.kept_topic import KeptTopic
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, Clock, kafka, make_store
from tests.publish.plain_delta import check_table
from tests.run.loops import driven, one_by_one, together
from tests.stores import Fault, FaultyStore, SimulatedCrash

SECOND_MS = 1_000
BOTH = {"publish.formats": "delta,iceberg"}
#: No file is small enough to be joined.
IN_LARGE_FILES = {**IN_FILES, "segment.bytes": 1_000}
FORMATS = ("delta", "iceberg")
#: So often does a publication try to commit its copies.
SEAL_TRIES = 4


class Racing:
    """Somebody appends just before each of the first commits of a job: those of a publication are
    all lost. Or the publication is killed before the commit number `crashes_at`."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.is_on = False
        self.tries = 0
        self.lost = 0
        self.crashes_at: int | None = None

    def __call__(self, verb: str, key: str) -> Fault | None:
        if verb == "open_output":  # a job writes its files before it commits
            self.tries = 0
        if self.is_on and verb == "create" and "_manifest/0" in key:
            self.tries += 1
            if self.tries == self.crashes_at:
                return Fault.CRASH_BEFORE
            if self.tries <= SEAL_TRIES:
                self.lost += self.tries == SEAL_TRIES
                self.topic.append(kafka(["k"]))
        return None


def race(topic: Topic) -> None:
    """Two appends that were staged at the same end: the files of the second are shifted."""
    for staged in [plan_append(topic).stage(kafka(list("abc"))) for _ in range(2)]:
        plan_append(topic).commit([staged])


def copies(objects: MemoryStore, topic: Topic) -> int:
    """How many copies the tables show that the topic has not got; of the table with the most."""
    found = [table_of(name, objects.below("t"), topic._log.runtime).newest() for name in FORMATS]
    return max(len(table.state.copies) for table in found if table is not None)


def check(objects: MemoryStore, topic: Topic) -> None:
    assert copies(objects, topic) == 0
    assert topic.describe().inline_segments == 0
    check_table(topic, objects.below("t"))
    assert [status.lag_records for status in topic.describe().published] == [0, 0]
    assert topic.verify(data=True)


@pytest.mark.parametrize("config", [{}, IN_LARGE_FILES], ids=["commits", "files"])
@pytest.mark.parametrize("jobs", [[None], [["publication"], ["merge"]]], ids=["one", "two"])
def test_copies_that_lose_each_race_stay_few_and_go_when_it_is_calm(
    objects: MemoryStore, clock: Clock, config: dict[str, object], jobs: list[list[str] | None]
) -> None:
    """Also if two processes have the publication and the merge."""
    topic = make_store(objects, clock).create_topic("t", 2, config={**BOTH, **config})
    racing = Racing(topic)
    store = make_store(FaultyStore(objects, racing), clock)
    loops = [driven(store, clock, jobs=some) for some in jobs]
    topic.append(kafka(["k"]))
    together(loops, clock, SECOND_MS)
    racing.is_on = True
    most = 0
    for _ in range(25):
        race(topic)
        together(loops, clock, SECOND_MS)
        most = max(most, copies(objects, topic))
    racing.is_on = False
    assert racing.lost > 10
    assert most <= 10 or len(loops) == 2  # then one looks only now and then what the other does
    together(loops, clock, 2 * MERGE_MS)
    assert not [run for loop in loops for run in loop.runs if run.error]
    check(objects, topic)


@pytest.mark.parametrize("at", range(2, SEAL_TRIES + 1))
def test_copies_of_a_killed_process_are_replaced_by_the_next_one(
    objects: MemoryStore, clock: Clock, at: int
) -> None:
    topic = make_store(objects, clock).create_topic("t", config=BOTH)
    racing = Racing(topic)
    loop = driven(make_store(FaultyStore(objects, racing), clock), clock)
    topic.append(kafka(["k"]))
    loop.go(SECOND_MS)
    racing.is_on, racing.crashes_at = True, at
    topic.append(kafka(["k"]))
    with suppress(SimulatedCrash):
        loop.go(10 * SECOND_MS)
        raise AssertionError("it was not killed")
    assert copies(objects, topic) == 1
    after = driven(make_store(objects, clock), clock)
    after.go(2 * MERGE_MS)
    check(objects, topic)


def test_copy_of_a_publication_beside_the_merge_is_for_the_next_merge(
    objects: MemoryStore, clock: Clock
) -> None:
    """Although nothing is committed since: what has won the race was no append."""
    topic = make_store(objects, clock).create_topic("t", config=BOTH)
    puts = 0

    def meet(verb: str, key: str) -> Fault | None:
        nonlocal puts
        if puts >= 0 and verb == "create" and "_manifest/0" in key:
            puts += 1
            if puts > 1:
                raise LogTableError("the store takes no commits")
            topic.alter(config={"retention.ms": -1})
        elif puts == 1 and verb == "create" and "_delta_log/" in key:
            assert kept.look() is not None
            (run,) = kept.run("merge")
            assert not run.error
        return None

    kept = KeptTopic(
        make_store(FaultyStore(objects, meet), clock).topic("t"),
        RunOptions(),
        one_by_one,
        one_by_one,
    )
    puts = -1
    kept.run("publication")
    topic.append(kafka(["k"]))
    puts = 0
    kept.look()
    kept.run("publication")
    assert puts == 2
    puts = -1
    kept.run("publication")
    assert copies(objects, topic) == 1
    clock.tick(MERGE_MS)
    assert "merge" in kept.look()
    kept.run("merge")
    kept.look()
    kept.run("publication")
    check(objects, topic)
