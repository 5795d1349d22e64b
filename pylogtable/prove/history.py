"""What clients asked, and what they were told: a history of operations.

Each process writes a file of its own, a JSON line when an operation begins and one when it ends. A
line is one `write`, so a process that is killed loses nothing but the end of its last operation:
the outcome of that one is unknown. All times are of the monotonic clock of one machine, which its
processes share.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"

#: The kinds of operations. A `read` and `ends` look up to the end of the log, a `poll` does not.
APPEND, READ, ENDS, POLL, COMMIT, JOB = "append", "read", "ends", "poll", "commit", "job"

SUFFIX = ".jsonl"


class Run(NamedTuple):
    """Records in the log that follow each other, and that one sender has numbered one after the
    other. The record at `offset + i` has the number `first + i`."""

    partition: int
    offset: int
    sender: str
    first: int
    records: int


@dataclass(frozen=True)
class Operation:
    """One call. `ended` is infinite if nobody knows when, or whether, it ended. `asked` and `told`
    depend on the kind:

    | kind   | asked                                     | told if ok                         |
    |--------|-------------------------------------------|------------------------------------|
    | append | sender, rows: [partition, first, count]   | offsets: one for each of the rows  |
    | read   | from: the position of each partition      | rows: runs, to: positions          |
    | ends   |                                           | to: the end of each partition      |
    | poll   | group                                     | rows                               |
    | commit | group, from and to: what has been polled  | positions: what was committed      |
    | job    | name                                      |                                    |

    An append may be ok without `offsets`: it is known to have landed, and not where. `told` also
    has `requests`, `faults` and, if it was not ok, `error`.
    """

    process: str
    index: int
    kind: str
    begun: float
    ended: float
    outcome: str
    asked: Mapping[str, Any]
    told: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The process and the number of its operation."""
        return f"{self.process}#{self.index}"

    @property
    def seconds(self) -> float:
        return self.ended - self.begun

    @property
    def runs(self) -> list[Run]:
        """The records that a read or a poll returned."""
        return [Run(*row) for row in self.told.get("rows", ())]


@dataclass(frozen=True)
class Contents:
    """The topic at the end: its records, its end offsets, the positions of each group, and what a
    verification found. A topic that `is_broken` cannot be read, so it proves nothing else."""

    runs: tuple[Run, ...]
    ends: Mapping[int, int]
    positions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    is_broken: bool = False


@dataclass(frozen=True)
class History:
    """The operations of all processes. `paused` has the times in which a process was stopped:
    begin and end. `stuck` names the processes that did not end when they were asked to."""

    operations: tuple[Operation, ...]
    paused: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    stuck: frozenset[str] = frozenset()

    def faults(self) -> Counter[str]:
        """How many faults the clients have met, by kind."""
        met: Counter[str] = Counter()
        for operation in self.operations:
            met.update(operation.told.get("faults", {}))
        return met


class Recorder:
    """Writes the operations of one process. Several may be under way at once."""

    def __init__(self, folder: Path, process: str, monotonic: Callable[[], float]) -> None:
        self._process = process
        self._monotonic = monotonic
        self._file = os.open(
            folder / f"{process}{SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._next = 0

    def begin(self, kind: str, **asked: Any) -> int:
        """Note that an operation begins. Returns its number."""
        index, self._next = self._next, self._next + 1
        self._write({"do": kind, "id": index, "at": self._monotonic(), **asked})
        return index

    def end(self, index: int, outcome: str, told: Mapping[str, Any]) -> None:
        """Note how it ended."""
        self._write({"end": outcome, "id": index, "at": self._monotonic(), **told})

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def read_operations(folder: Path) -> tuple[Operation, ...]:
    """The operations of all processes that have written into this folder, as they began."""
    found = [
        operation
        for path in sorted(folder.glob(f"*{SUFFIX}"))
        for operation in operations_in(path.stem, path.read_bytes().splitlines())
    ]
    return tuple(sorted(found, key=lambda one: (one.begun, one.process, one.index)))


def operations_in(process: str, lines: Iterable[bytes]) -> Iterator[Operation]:
    """The operations that one process wrote."""
    begun: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # Half a line: the disk was full.
        index = entry.pop("id")
        if "do" in entry:
            begun[index] = entry
        elif index in begun:
            asked, outcome, ended = begun.pop(index), entry.pop("end"), entry.pop("at")
            yield _operation(process, index, asked, ended, outcome, entry)
    for index, asked in begun.items():
        yield _operation(process, index, asked, math.inf, UNKNOWN, {})


def _operation(
    process: str,
    index: int,
    asked: dict[str, Any],
    ended: float,
    outcome: str,
    told: dict[str, Any],
) -> Operation:
    kind, at = asked.pop("do"), asked.pop("at")
    return Operation(process, index, kind, at, ended, outcome, asked, told)


def runs_of(partitions: Ints, offsets: Ints, senders: Sequence[str], numbers: Ints) -> list[Run]:
    """Records, in this order, as runs."""
    if not len(offsets):
        return []
    names = sorted(set(senders))
    codes = np.searchsorted(np.array(names), np.array(senders))
    follows = (np.diff(partitions) == 0) & (np.diff(codes) == 0)
    follows &= (np.diff(offsets) == 1) & (np.diff(numbers) == 1)
    first = np.flatnonzero(np.concatenate([[True], ~follows]))
    count = np.diff(np.append(first, len(offsets)))
    columns = (partitions[first], offsets[first], codes[first], numbers[first], count)
    return [
        Run(partition, offset, names[code], number, length)
        for partition, offset, code, number, length in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
