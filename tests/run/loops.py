"""Loops whose time is the test's: all work is done in the caller's thread, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pylogtable.jobs.work import Rewritten, Worker
from pylogtable.run import JobRun, Loop, RunOptions
from pylogtable.run.lanes import OneThread
from pylogtable.store import Store
from tests.builders import Clock


def one_by_one(worker: Worker, units: Sequence[Any]) -> Iterable[Rewritten]:
    return [worker(unit) for unit in units]


@dataclass
class Driven:
    """A loop, what it has told, and the clock that it goes by."""

    loop: Loop
    clock: Clock
    runs: list[JobRun] = field(default_factory=list)

    def go(self, ms: int) -> None:
        """Let so much time pass; the loop is called whenever it wants to be."""
        until_ms = self.clock.now_ms + ms
        while (due_ms := self.loop.tick()) <= until_ms:
            self.clock.now_ms = max(due_ms, self.clock.now_ms)
        self.clock.now_ms = until_ms

    def of(self, job: str, topic: str | None = None) -> list[JobRun]:
        return [run for run in self.runs if run.job == job and topic in (None, run.topic)]


def driven(store: Store, clock: Clock, **options: Any) -> Driven:
    runs: list[JobRun] = []
    asked = RunOptions(on_job=runs.append, **options)
    return Driven(Loop(store, asked, one_by_one, OneThread()), clock, runs)


def together(loops: Sequence[Driven], clock: Clock, ms: int) -> None:
    """Let so much time pass for all of them."""
    until_ms = clock.now_ms + ms
    while (due_ms := min([loop.loop.tick() for loop in loops])) <= until_ms:
        clock.now_ms = max(due_ms, clock.now_ms)
    clock.now_ms = until_ms
