"""The records of a history as columns of numbers, so that millions of them are compared at once.

A record that a sender numbered is one number, its *value*. A partition and an offset are one
number, a *place*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pylogtable.prove.history import APPEND, FAILED, OK, UNKNOWN, Ints, Operation

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_NUMBER_BITS = 40
_OFFSET_BITS = 48
_CERTAINTY = {FAILED: 0, UNKNOWN: 1, OK: 2}


def expanded(first: Ints, count: Ints) -> Ints:
    """All numbers of ranges: `first`, `first + 1`, and so on, of each."""
    total = int(count.sum())
    before = np.cumsum(count) - count
    return np.repeat(first - before, count) + np.arange(total, dtype=np.int64)


def ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def place_text(place: int) -> str:
    """A place as people write it."""
    return f"{place >> _OFFSET_BITS}:{place & ((1 << _OFFSET_BITS) - 1)}"


def partition_of(place: Ints) -> Ints:
    return place >> _OFFSET_BITS


def offset_of(place: Ints) -> Ints:
    return place & ((1 << _OFFSET_BITS) - 1)


@dataclass(frozen=True)
class Sent:
    """What appends tried to append. A row is a record of one operation; several operations may
    have tried the same record. `place` is where it was told to be, or -1."""

    value: Ints
    operation: Ints
    place: Ints

    @cached_property
    def values(self) -> Ints:
        """Every value that was sent, sorted."""
        return np.unique(self.value)

    def per_value(self, rows: npt.NDArray[np.generic], reduce: np.ufunc) -> npt.NDArray[np.generic]:
        """A column of all rows, reduced to one number for each of `values`."""
        order = np.argsort(self.value, kind="stable")
        starts = np.searchsorted(self.value[order], self.values)
        reduced: npt.NDArray[np.generic] = reduce.reduceat(rows[order], starts)
        return reduced


@dataclass(frozen=True)
class Seen:
    """What reads and polls returned: a row is a record of one operation. The last read of the
    contents is an operation as well."""

    value: Ints
    place: Ints
    operation: Ints


class Senders:
    """Numbers for the names of senders."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def value(self, sender: str, number: int) -> int:
        code = self._codes.setdefault(sender, len(self._codes))
        return code << _NUMBER_BITS | number

    def text(self, value: int) -> str:
        """A record as people write it: the sender and its number."""
        sender = list(self._codes)[value >> _NUMBER_BITS]
        return f"{sender}/{value & ((1 << _NUMBER_BITS) - 1)}"

    @staticmethod
    def code_of(value: Ints) -> Ints:
        return value >> _NUMBER_BITS


def sent_by(operations: Sequence[Operation], senders: Senders) -> Sent:
    """The records of all appends."""
    first, place, count, index = [], [], [], []
    for at, operation in enumerate(operations):
        if operation.kind != APPEND:
            continue
        rows = operation.asked["rows"]
        told = operation.told.get("offsets") if operation.outcome == OK else None
        for (partition, number, length), offset in zip(
            rows, told or [None] * len(rows), strict=True
        ):
            first.append(senders.value(operation.asked["sender"], number))
            place.append(-1 if offset is None else (partition << _OFFSET_BITS) | offset)
            count.append(length)
            index.append(at)
    counts, places = ints(count), ints(place)
    told_places = expanded(places, counts)
    told_places[np.repeat(places < 0, counts)] = -1
    return Sent(expanded(ints(first), counts), np.repeat(ints(index), counts), told_places)


def seen_by(operations: Sequence[Operation], senders: Senders) -> Seen:
    """The records of all reads and polls."""
    value, place, count, index = [], [], [], []
    for at, operation in enumerate(operations):
        if operation.outcome != OK:
            continue
        for partition, offset, sender, number, length in operation.told.get("rows", ()):
            value.append(senders.value(sender, number))
            place.append((partition << _OFFSET_BITS) | offset)
            count.append(length)
            index.append(at)
    counts = ints(count)
    return Seen(
        expanded(ints(value), counts),
        expanded(ints(place), counts),
        np.repeat(ints(index), counts),
    )


def certainty(operations: Sequence[Operation]) -> Ints:
    """For each operation: 2 if it was ok, 1 if its outcome is unknown, 0 if it failed."""
    return ints(_CERTAINTY[operation.outcome] for operation in operations)


class HighWater:
    """How far each partition was known to reach, at any time."""

    def __init__(self, partition: Ints, at: Floats, end: Ints, operation: Ints) -> None:
        self._by_partition = {}
        for number in np.unique(partition).tolist():
            mine = np.flatnonzero(partition == number)
            mine = mine[np.argsort(at[mine], kind="stable")]
            highest = np.maximum.accumulate(end[mine])
            is_new = np.concatenate([[True], highest[1:] > highest[:-1]])
            last_new = np.maximum.accumulate(np.where(is_new, np.arange(len(mine)), 0))
            self._by_partition[number] = (at[mine], highest, operation[mine][last_new])

    def before(self, partition: int, at: Floats) -> tuple[Ints, Ints]:
        """The highest end that was known before each of these times, 0 if none was; and the
        operation that knew it."""
        if partition not in self._by_partition:
            return np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        times, highest, operation = self._by_partition[partition]
        found = np.searchsorted(times, at, side="left") - 1
        return (
            np.where(found >= 0, highest[found], 0),
            np.where(found >= 0, operation[found], 0),
        )
