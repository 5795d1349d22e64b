"""What all clients of a proof share: their assignment, a store with faults, and the record of what
they asked and were told."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.prove.faulty_store import Faults, FaultyStore
from pylogtable.prove.history import FAILED, JOB, OK, UNKNOWN, Recorder
from pylogtable.runtime import Runtime, patience_in, seeded_chance
from pylogtable.storage.open import open_store
from pylogtable.store import Store
from pylogtable.topic import Topic

TOPIC = "log"
PARTITIONS = 4


@dataclass(frozen=True)
class Assignment:
    """What a client process is told. `until` is a time of the monotonic clock."""

    name: str
    start: int
    role: str
    url: str
    storage_options: Mapping[str, Any] | None
    folder: Path
    seed: str
    until: float
    has_faults: bool = False
    skew_ms: int = 0
    pause_seconds: float = 0.0

    @property
    def process(self) -> str:
        """The name of this process: a client that is started again is another one."""
        return f"{self.name}.{self.start}"

    @property
    def stop_file(self) -> Path:
        """A file that tells clients to end, once it is there."""
        return self.folder / "stop"


class Client:
    """What all clients share. A subclass does its work in `step`."""

    def __init__(self, assignment: Assignment) -> None:
        self.at = assignment
        self.chance = seeded_chance(assignment.seed)
        runtime = Runtime(patience_seconds=patience_in(assignment.storage_options or {}))
        self.runtime = replace(runtime, clock=lambda: Runtime().clock() + assignment.skew_ms)
        self.faults = Faults(runtime, self.chance, are_on=assignment.has_faults)
        self.recorder = Recorder(assignment.folder, assignment.process, runtime.monotonic)
        self._parent = os.getppid()

    def run(self) -> None:
        with self.recorder:
            while not self.is_over():
                with self.operation(JOB, name="open"):
                    self.topic = self.open()
                    break
            while not self.is_over():
                self.step()
                self.runtime.pause(self.chance() * self.at.pause_seconds)
            self.close()
            self.faults.settle()

    def is_over(self) -> bool:
        is_late = self.runtime.monotonic() >= self.at.until or self.at.stop_file.exists()
        return is_late or os.getppid() != self._parent  # then nobody is there to end this client

    def open(self) -> Topic:
        """The topic, over a store with faults."""
        store = open_store(self.at.url, self.at.storage_options)
        return Store(FaultyStore(store, self.faults), self.runtime).topic(TOPIC)

    def step(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End what is open."""

    def number(self, least: int, most: int) -> int:
        """A random number."""
        return least + int(self.chance() * (most - least + 1))

    @contextmanager
    def operation(self, kind: str, **asked: Any) -> Iterator[dict[str, Any]]:
        """Record an operation. The body fills in what it was told. No error leaves the body."""
        requests, met = self.faults.requests, self.faults.met.copy()
        told: dict[str, Any] = {}
        index = self.recorder.begin(kind, **asked)
        outcome = OK
        try:
            yield told
        except Exception as error:
            outcome = outcome_of(error)
            told["error"] = error_text(error)
        told["requests"] = self.faults.requests - requests
        if faults := self.faults.met - met:
            told["faults"] = faults
        self.recorder.end(index, outcome, told)


def outcome_of(error: BaseException) -> str:
    """Whether a call that raised may have had an effect."""
    if isinstance(error, LogTableError) and not error.may_have_landed:
        return FAILED
    return UNKNOWN


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
