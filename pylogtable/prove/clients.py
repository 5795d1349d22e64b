"""The clients of a proof: processes that use a topic, and record what they were told."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from pylogtable.errors import CommitConflictError, CommitUnknownError, LogTableError
from pylogtable.prove.faulty_store import Faults, FaultyStore
from pylogtable.prove.history import (
    APPEND,
    COMMIT,
    ENDS,
    FAILED,
    JOB,
    OK,
    POLL,
    READ,
    UNKNOWN,
    Recorder,
    Run,
    runs_of,
)
from pylogtable.runtime import Runtime, patience_in, seeded_chance
from pylogtable.storage.open import open_store
from pylogtable.store import Store
from pylogtable.topic import Topic

TOPIC = "log"
PARTITIONS = 4
#: Appends of more than this are in files.
INLINE_BYTES = 4096
GROUP = "members"
LEASE_MS = 3000

COLUMNS = ["partition", "offset", "sender", "number"]
_PAD_BYTES = 2 * INLINE_BYTES
_TRIES = 3


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


def serve(assignment: Assignment) -> None:
    """Run a client until its time is over. It is the body of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (assignment.folder / f"{assignment.process}.err").open("wb", buffering=0) as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
    client = ROLES[assignment.role](assignment)
    client.run()


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


class Appender(Client):
    """Appends small tables without a txn: their records are in the commits."""

    rows_at_most = 5
    pad: bytes | None = None

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.sender = assignment.process
        self.next = 0

    def step(self) -> None:
        rows = self.new_rows(self.next)
        self.next = rows[-1][1] + rows[-1][2]
        with self.operation(APPEND, sender=self.sender, rows=rows) as told:
            self.append(rows, told)

    def append(self, rows: list[list[int]], told: dict[str, Any]) -> None:
        try:
            result = self.topic.append(self.table(rows))
        except CommitUnknownError as error:
            told["was"] = error_text(error)
            # It raises the same error if this is not decided.
            if self.topic.find_commit(error.commit_id, error.version) is None:
                raise CommitConflictError(f"it is known to have failed: {error}") from error
        else:
            told["offsets"] = [result.offsets[partition][0] for partition, _, _ in rows]

    def new_rows(self, number: int) -> list[list[int]]:
        """[partition, first number, count] for some partitions."""
        rows: list[list[int]] = []
        for partition in range(PARTITIONS):
            if self.chance() < 0.5 or (partition == PARTITIONS - 1 and not rows):
                count = self.number(1, self.rows_at_most)
                rows.append([partition, number, count])
                number += count
        return rows

    def table(self, rows: list[list[int]]) -> pa.Table:
        partitions = [partition for partition, _, count in rows for _ in range(count)]
        numbers = [first + i for _, first, count in rows for i in range(count)]
        return pa.table(
            {
                "partition": pa.array(partitions, pa.int32()),
                "sender": pa.array([self.sender] * len(numbers)),
                "number": pa.array(numbers, pa.int64()),
                "pad": pa.array([self.pad] * len(numbers), pa.binary()),
            }
        )


class FileAppender(Appender):
    """Appends tables that are too large for a commit."""

    rows_at_most = 3

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.pad = hashlib.shake_256(assignment.seed.encode()).digest(_PAD_BYTES)


class TxnAppender(Appender):
    """Appends with a txn, and goes on after a restart where the log says."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.sender = assignment.name
        self.done: int | None = None
        self.is_known = False

    def step(self) -> None:
        if not self.is_known:
            with self.operation(JOB, name="last_txn"):
                self.done = self.topic.last_txn(self.sender)
                self.is_known = True
            return
        rows = self.new_rows(self.done or 0)
        self.is_known = False
        with self.operation(APPEND, sender=self.sender, rows=rows) as told:
            self.append(rows, told)
            self.done = rows[-1][1] + rows[-1][2]
            self.is_known = True

    def append(self, rows: list[list[int]], told: dict[str, Any]) -> None:
        """After an unknown outcome the same call is made again, as the guide says."""
        txn = (self.sender, rows[-1][1] + rows[-1][2])
        for attempt in range(1, _TRIES + 1):
            try:
                result = self.topic.append(self.table(rows), txn=txn, expected_last=self.done)
            except LogTableError as error:  # noqa: PERF203 (a retry needs it)
                if attempt == _TRIES or not error.may_have_landed:
                    if "was" in told and not isinstance(error, CommitConflictError):
                        raise CommitUnknownError("", 0) from error
                    raise
                told["was"] = error_text(error)
            else:
                told["offsets"] = [result.offsets[partition][0] for partition, _, _ in rows]
                return


class Sender(Client):
    """Sends records one by one with a producer. Each record is an operation of its own."""

    app_id: str | None = None

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.sender = assignment.process
        self.next = 0
        self.producer: Any = None

    def step(self) -> None:
        if self.producer is None:
            with self.operation(JOB, name="open producer"):
                self.producer = self.topic.producer(linger_ms=2, app_id=self.app_id)
                self.next = self.next if self.app_id is None else self.producer.sequence
            return
        requests, met = self.faults.requests, self.faults.met.copy()
        sent = [self._send() for _ in range(self.number(1, 8))]
        with suppress(Exception):  # the futures have the errors
            self.producer.flush()
        has_failed = False
        for index, partition, future in sent:
            told: dict[str, Any] = {"requests": self.faults.requests - requests}
            if faults := self.faults.met - met:
                told["faults"] = faults
            requests, met = self.faults.requests, self.faults.met.copy()
            outcome = OK
            try:
                if isinstance(future, Exception):
                    raise future
                written = future.result()
                told["offsets"] = [written.offset]
                assert written.partition == partition, "the record went to another partition"
            except Exception as error:
                outcome, has_failed = outcome_of(error), True
                told["error"] = error_text(error)
            self.recorder.end(index, outcome, told)
        if has_failed:
            self.close()

    def _send(self) -> tuple[int, int, Any]:
        partition = self.number(0, PARTITIONS - 1)
        row = [partition, self.next, 1]
        index = self.recorder.begin(APPEND, sender=self.sender, rows=[row])
        try:
            future = self.producer.send(
                partition=partition, sender=self.sender, number=self.next, pad=None
            )
        except LogTableError as error:
            return index, partition, error
        finally:
            self.next += 1
        return index, partition, future

    def close(self) -> None:
        if self.producer is not None:
            with suppress(LogTableError):
                self.producer.close()
            self.producer = None


class TxnSender(Sender):
    """A producer with an app id: it counts its records in the log."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.sender = self.app_id = assignment.name


class Reader(Client):
    """Reads what is new, reads again what it has read, and asks for the end."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.positions = dict.fromkeys(range(PARTITIONS), 0)

    def step(self) -> None:
        roll = self.chance()
        if roll < 0.2:
            with self.operation(ENDS) as told:
                told["to"] = self.topic.end_offsets()
        elif roll < 0.3:
            self.read(
                {number: int(self.chance() * at) for number, at in self.positions.items()},
                self.open,
            )
        else:
            found = self.read(self.positions, lambda: self.topic)
            self.positions = self.positions if found is None else found

    def read(self, start: dict[int, int], topic: Callable[[], Topic]) -> dict[int, int] | None:
        """Read from these positions to the end. Returns the new positions."""
        reached = dict(start)
        with self.operation(READ, **{"from": start}) as told:
            table = topic().read(start=start, columns=COLUMNS).read_all()
            told["rows"] = runs = runs_in(table)
            for run in runs:
                reached[run.partition] = run.offset + run.records
            told["to"] = reached
            return reached
        return None


def runs_in(table: pa.Table) -> list[Run]:
    """The records of a table as runs."""
    return runs_of(
        table["partition"].to_numpy(),
        table["offset"].to_numpy(),
        table["sender"].to_pylist(),
        table["number"].to_numpy(),
    )


class Member(Client):
    """A dynamic member of a consumer group. It commits after most of its polls."""

    group = GROUP

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        self.consumer: Any = None
        self.reached: dict[int, int] = {}

    def member(self) -> str | None:
        return self.at.name

    def step(self) -> None:
        if self.consumer is None:
            with self.operation(JOB, name="open consumer"):
                self.consumer = self.topic.consumer(
                    self.group,
                    self.member(),
                    columns=COLUMNS,
                    max_records=self.number(20, 200),
                    lease_ms=LEASE_MS,
                )
            return
        began: dict[int, int] = {}
        with self.operation(POLL, group=self.group) as told:
            told["rows"] = runs = runs_in(self.consumer.poll(timeout=0.2))
            for run in runs:
                began.setdefault(run.partition, run.offset)
                self.reached[run.partition] = run.offset + run.records
        if began and self.chance() < 0.8:
            asked = {"from": began, "to": self.reached}
            with self.operation(COMMIT, group=self.group, **asked) as told:
                told["positions"] = self.consumer.commit()

    def close(self) -> None:
        if self.consumer is not None:
            with suppress(LogTableError):
                self.consumer.close()


class LoneConsumer(Member):
    """The only consumer of its group."""

    group = "alone"

    def member(self) -> str | None:
        return None


class Maintenance(Client):
    """Merges, and removes files that nobody needs. Nothing expires, so that nothing may vanish."""

    def step(self) -> None:
        if self.chance() < 0.7:
            with self.operation(JOB, name="merge"):
                self.topic.merge(threads=1)
        else:
            with self.operation(JOB, name="vacuum"):
                self.topic.vacuum(dry_run=False)


ROLES: dict[str, Callable[[Assignment], Client]] = {
    "append": Appender,
    "append-txn": TxnAppender,
    "append-files": FileAppender,
    "producer": Sender,
    "producer-txn": TxnSender,
    "reader": Reader,
    "member": Member,
    "consumer": LoneConsumer,
    "maintenance": Maintenance,
}
#: Roles that append, in the order in which they are given out.
APPENDING = ("append", "producer-txn", "append-txn", "producer", "append-files")
#: How long each waits between two operations, at most. Readers need not be faster than people.
PAUSE_SECONDS = {"reader": 0.2, "maintenance": 3.0}
#: Leases depend on clocks that agree, so members have the right time.
NEVER_SKEWED = ("member", "consumer")
