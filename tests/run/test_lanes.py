"""Long jobs of a loop with threads: what they keep waiting, and what goes on beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

import pytest

from pylogtable import Topic
from pylogtable.jobs.compaction_plan import CompactionUnit
from pylogtable.jobs.work import Rewritten, Worker
from pylogtable.run import JobRun, Loop, RunOptions
from pylogtable.run.due_plan import FIRST_VACUUM_MS, HOUR_MS
from pylogtable.run.lanes import CLEAN, WIDTH
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, Clock, kafka, limited, make_store, rows, times
from tests.run.loops import one_by_one

PATIENCE_SECONDS = 60
#: At most.
LOOKS = 600
COMPACTED = {"cleanup.policy": "compact,delete", "retention.ms": HOUR_MS, **IN_FILES}
PLAIN = {"retention.ms": HOUR_MS, **IN_FILES}


class Threads:
    """A loop with threads whose compactions do not end before they are told to."""

    def __init__(self, objects: MemoryStore, clock: Clock) -> None:
        self.clock = clock
        self.may_end = Event()
        self.begun: SimpleQueue[None] = SimpleQueue()
        self.runs: SimpleQueue[JobRun] = SimpleQueue()
        self.ran: set[tuple[str, str]] = set()
        store = limited(make_store(objects, clock), small_work_bytes=0)
        self.loop = Loop(store, RunOptions(on_job=self.runs.put), self._run_units)

    def _run_units(self, worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
        if units and isinstance(units[0], CompactionUnit):
            self.begun.put(None)
            assert self.may_end.wait(6 * PATIENCE_SECONDS)
        return one_by_one(worker, units)

    def look_until(self, wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Look at the topics until these jobs have run. All that have run so far."""
        ran = self.ran
        for _ in range(LOOKS):
            self.loop.tick()
            with suppress(Empty):  # a job that had to wait is begun by a later look
                while not wanted <= ran:
                    run = self.runs.get(timeout=PATIENCE_SECONDS / LOOKS)
                    assert run.error is None
                    ran.add((run.topic, run.job))
            if wanted <= ran:
                return ran
            self.clock.tick(1_000)
        raise AssertionError(f"{wanted - ran} did not run")

    def end(self) -> None:
        self.may_end.set()
        self.loop.stop()
        self.loop.run()


@pytest.fixture
def threads(objects: MemoryStore, clock: Clock) -> Iterator[Threads]:
    threads = Threads(objects, clock)
    yield threads
    threads.end()


def filled(objects: MemoryStore, clock: Clock, name: str, config: dict[str, object]) -> Topic:
    """A topic with something to do for each job: records that are too old, four small neighbours,
    older records of a key."""
    topic = make_store(objects, clock).create_topic(name, config=config)
    topic.append(kafka(["k", "old"], timestamp=times(*[-10 * HOUR_MS] * 2)))
    for number in range(4):
        topic.append(kafka(["k", str(number)]))
    return topic


def test_long_compactions_do_not_stop_the_jobs_of_other_topics(
    threads: Threads, objects: MemoryStore, clock: Clock
) -> None:
    """Of the compacted ones, too, whose compaction waits until the others end."""
    long = [f"long-{n}" for n in range(WIDTH[CLEAN])]
    for name in long:
        filled(objects, clock, name, COMPACTED)
    threads.loop.tick()
    for _ in long:
        threads.begun.get(timeout=PATIENCE_SECONDS)
    other = filled(objects, clock, "other", PLAIN)
    waits = filled(objects, clock, "waits", COMPACTED)
    clock.tick(FIRST_VACUUM_MS)
    shaped = {(name, job) for name in ("other", "waits") for job in ("retention", "merge")}
    threads.look_until(shaped)
    assert other.start_offsets() == waits.start_offsets() == {0: 2}
    assert other.describe().segments == waits.describe().segments == 1
    clock.tick(FIRST_VACUUM_MS)
    tidied = {(name, "vacuum") for name in (*long, "other", "waits")}
    assert threads.look_until(tidied) == shaped | tidied


def test_jobs_that_would_undo_a_compaction_wait_until_it_ends(
    threads: Threads, objects: MemoryStore, clock: Clock
) -> None:
    topic = filled(objects, clock, "t", COMPACTED)
    threads.loop.tick()
    threads.begun.get(timeout=PATIENCE_SECONDS)
    clock.tick(FIRST_VACUUM_MS)
    assert threads.look_until({("t", "vacuum")}) == {("t", "vacuum")}
    assert topic.start_offsets() == {0: 0}
    threads.may_end.set()
    threads.look_until({("t", job) for job in ("compaction", "retention", "merge")})
    assert [row["operation"] for row in topic.history().to_pylist()].count("compact") == 1
    assert rows(topic.read(), "key") == [b"0", b"1", b"2", b"k", b"3"]
    assert topic.verify(data=True)
