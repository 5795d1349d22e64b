"""The clients of a proof that read: readers of the topic, and consumers of groups."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pylogtable.errors import LogTableError
from pylogtable.prove.client import PARTITIONS, Assignment, Client
from pylogtable.prove.history import COMMIT, ENDS, JOB, POLL, READ, Run, runs_of
from pylogtable.topic import Topic

GROUP = "members"
LEASE_MS = 3000

COLUMNS = ["partition", "offset", "sender", "number"]


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
