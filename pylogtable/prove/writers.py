"""The clients of a proof that write: appends with and without a txn, and producers."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pylogtable.errors import CommitConflictError, CommitUnknownError, LogTableError
from pylogtable.prove.client import PARTITIONS, Assignment, Client, error_text, outcome_of
from pylogtable.prove.history import APPEND, JOB, OK

#: Appends of more than this are in files.
INLINE_BYTES = 4096

_PAD_BYTES = 2 * INLINE_BYTES
_TRIES = 3


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
