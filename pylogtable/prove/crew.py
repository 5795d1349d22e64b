"""The processes of a proof: started, killed, stopped for a while, and ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Any

from pylogtable.prove.client import Assignment
from pylogtable.prove.clients import NEVER_SKEWED
from pylogtable.runtime import Runtime, seeded_chance

KILLS, PAUSES, SKEW = "kills", "pauses", "skewed-clocks"

LONGEST_PAUSE_SECONDS = 4.0
#: From one kill or pause of some process to the next, on average.
SECONDS_BETWEEN = 1.0
LARGEST_SKEW_MS = 2 * 3_600_000

#: What clients would import at their first call: pyarrow looks for pandas. What is not installed is
#: left out.
_SLOW_IMPORTS = ("pyarrow.parquet", "pyarrow.compute", "pandas", "s3fs", "aiobotocore.session")
_HAS_SIGNALS = sys.platform != "win32"


@dataclass
class _Worker:
    assignment: Assignment
    process: BaseProcess
    wakes_at: float | None = None
    stopped_at: float = 0.0


class Crew:
    """Client processes. `kinds` says which of kills, pauses and skewed clocks they meet."""

    def __init__(
        self,
        serve: Callable[[Assignment], None],
        kinds: frozenset[str],
        seed: str,
        runtime: Runtime,
    ) -> None:
        self._serve = serve
        self._kinds = kinds
        self._runtime = runtime
        self._chance = seeded_chance(seed)
        # A warm process that forks is faster than a new interpreter for each client, and safer than
        # a fork of this one, which may have threads.
        self._context: Any = multiprocessing.get_context("forkserver" if _HAS_SIGNALS else "spawn")
        self._context.set_forkserver_preload(["pylogtable.prove.clients", *_SLOW_IMPORTS])
        self._workers: list[_Worker] = []
        self._next_fault = 0.0
        self.met: Counter[str] = Counter()
        #: When a process was killed or stopped.
        self.struck: list[float] = []
        self.paused: dict[str, list[tuple[float, float]]] = {}

    def start(self, assignment: Assignment) -> None:
        """Start a client."""
        self._workers.append(self._started(assignment))
        self._next_fault = self._runtime.monotonic() + SECONDS_BETWEEN

    def _started(self, assignment: Assignment) -> _Worker:
        if SKEW in self._kinds and assignment.role not in NEVER_SKEWED and self._chance() < 0.5:
            skew = int((self._chance() * 2 - 1) * LARGEST_SKEW_MS)
            assignment = replace(assignment, skew_ms=skew)
            self.met[SKEW] += 1
        process: BaseProcess = self._context.Process(
            target=self._serve, args=(assignment,), daemon=True
        )
        process.start()
        return _Worker(assignment, process)

    def tick(self, ready: Collection[str]) -> None:
        """Wake processes whose pause is over, start those again that are gone, and sometimes kill
        or stop one of those that are ready: on a slow store, others would never be."""
        now = self._runtime.monotonic()
        for at, worker in enumerate(self._workers):
            if worker.wakes_at is not None and now >= worker.wakes_at:
                self._wake(worker)
            if not worker.process.is_alive() and now < worker.assignment.until:
                self._workers[at] = self._again(worker)
        kinds = sorted(self._kinds & {KILLS, PAUSES})
        if kinds and now >= self._next_fault and _HAS_SIGNALS:
            self._next_fault = now + self._chance() * 2 * SECONDS_BETWEEN
            worker = self._workers[int(self._chance() * len(self._workers))]
            kind = kinds[int(self._chance() * len(kinds))]
            if worker.wakes_at is None and worker.assignment.process in ready:
                self._strike(worker, kind)

    def _again(self, worker: _Worker) -> _Worker:
        worker.process.join()
        before = worker.assignment
        start = before.start + 1
        seed = f"{before.seed.partition('~')[0]}~{start}"
        return self._started(replace(before, start=start, seed=seed, skew_ms=0))

    def _strike(self, worker: _Worker, kind: str) -> None:
        self.met[kind] += 1
        self.struck.append(self._runtime.monotonic())
        if kind == KILLS:
            worker.process.kill()
            return
        worker.stopped_at = self._runtime.monotonic()
        worker.wakes_at = worker.stopped_at + self._chance() * LONGEST_PAUSE_SECONDS
        self._signal(worker, signal.SIGSTOP)

    def _wake(self, worker: _Worker) -> None:
        self._signal(worker, signal.SIGCONT)
        spans = self.paused.setdefault(worker.assignment.process, [])
        spans.append((worker.stopped_at, self._runtime.monotonic()))
        worker.wakes_at = None

    def _signal(self, worker: _Worker, number: int) -> None:
        if worker.process.pid is not None and worker.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, number)

    def end(self, grace_seconds: float) -> frozenset[str]:
        """Wait until all have ended. Returns those that had to be killed."""
        for worker in self._workers:
            if worker.wakes_at is not None:
                self._wake(worker)
        give_up = self._runtime.monotonic() + grace_seconds
        for worker in self._workers:
            worker.process.join(max(0.0, give_up - self._runtime.monotonic()))
        stuck = [worker for worker in self._workers if worker.process.is_alive()]
        self.kill()
        return frozenset(worker.assignment.process for worker in stuck)

    def kill(self) -> None:
        """Kill all that are left."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
