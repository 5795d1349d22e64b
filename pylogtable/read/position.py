"""Positions in a log: one grammar, and where a position is in each partition.

The grammar is in the guide, under "Positions". A number is always an offset. Text is a word, a
time, a duration, or digits; only as text does `-5` count from the end. So an offset that was
computed, and became negative by mistake, is an error and never means other records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Literal, NamedTuple, Protocol

from pylogtable.arguments import is_whole
from pylogtable.errors import InvalidRequestError, OffsetOutOfRangeError
from pylogtable.times import Moment, from_us, parse_duration, parse_time, to_us

OTHER_PARTITIONS = "*"
_DURATION = re.compile(r"[0-9]+\s*[a-z]+|p[0-9t].*", re.IGNORECASE)


class Position(NamedTuple):
    """`value` is an offset, how many offsets before the end, or a time or duration in
    microseconds."""

    kind: Literal["earliest", "latest", "offset", "from_end", "time", "ago"]
    value: int = 0

    def __str__(self) -> str:
        if self.kind != "time":
            ago = timedelta(microseconds=self.value) if self.kind == "ago" else None
            shown = {"offset": f"{self.value}", "from_end": f"-{self.value}", "ago": f"{ago} ago"}
            return shown.get(self.kind, self.kind)
        try:
            return f"{self.value // 1000} ({from_us(self.value).isoformat()})"
        except OverflowError:
            return f"{self.value // 1000} (beyond the year 9999; is it in milliseconds?)"


EARLIEST = Position("earliest")
LATEST = Position("latest")

#: A position as callers give it.
Given = Position | int | str | datetime | timedelta
#: One end of a read: a position, or positions by partition, "*" for those without an own one.
Bound = Given | Mapping[int, Given] | Mapping[int | str, Given] | None


class PositionLog(Protocol):
    """What it takes to find positions: a `View`."""

    @property
    def clock(self) -> Callable[[], int]:
        """Gives milliseconds."""

    def ranges(self, partition: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The log start and the end of these partitions."""

    def offsets_for_time(
        self, when: Moment, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        """The first offset at or after a time, by partition."""


class Found(NamedTuple):
    """Where a position is in a partition. `asked` is the offset that was asked for, which may be
    outside of the log; None if it was a time and no record is that late."""

    asked: int | None
    log_start: int
    end: int

    @property
    def nearest(self) -> int:
        """The offset in the log that is nearest to the position."""
        return self.end if self.asked is None else min(max(self.asked, self.log_start), self.end)


def parse_position(given: object, zone: timezone | None = None) -> Position:
    """A position of any kind. `zone` is that of times without one; None refuses them."""
    match given:
        case Position():
            return given
        case datetime():
            return Position("time", to_us(given))
        case timedelta():
            return _ago(given)
        case str():
            text = given.strip()
            if text.lower() in ("earliest", "latest"):
                return EARLIEST if text.lower() == "earliest" else LATEST
            if re.fullmatch(r"-?[0-9]{1,30}", text):
                offset = int(text)
                is_from_end = text.startswith("-")
                return Position("from_end", -offset) if is_from_end else Position("offset", offset)
            if re.match(r"@?[0-9]|p[0-9t]", text, re.IGNORECASE):
                return parse_when(text, zone)
        case _ if is_whole(given):
            return Position("offset", int(given))  # type: ignore[call-overload]
    raise InvalidRequestError(
        f"{given!r} is not a position: give 'earliest', 'latest', an offset, '-5' for the last 5 "
        "offsets, a time such as '2024-05-01T12:00:00Z' or '@1714564800000', a duration such as "
        "'12h' for that long ago, or a dict of these by partition, with '*' for the others"
    )


def parse_when(text: str, zone: timezone | None = None) -> Position:
    """A time, or a duration for that long ago. Digits alone are milliseconds since the epoch."""
    if _DURATION.fullmatch(text.strip()):
        return _ago(parse_duration(text))
    return Position("time", to_us(parse_time(text, zone)))


def parse_bound(bound: Bound, partitions: Sequence[int]) -> dict[int, Position]:
    """The position of each of these partitions that has one, and of those that the bound names."""
    if bound is None:
        return {}
    if not isinstance(bound, Mapping):
        return dict.fromkeys(partitions, parse_position(bound))
    named: dict[int, Position] = {}
    for key, given in bound.items():
        if not isinstance(key, str) and not is_whole(key):
            raise InvalidRequestError(f"there is no partition {key!r}: partitions are numbers")
        named[key if isinstance(key, str) else int(key)] = parse_position(given)  # type: ignore[index]
    if OTHER_PARTITIONS not in bound:
        return named
    others = named.pop(OTHER_PARTITIONS)  # type: ignore[call-overload]
    return {**dict.fromkeys(partitions, others), **named}


def locate(log: PositionLog, positions: Mapping[int, Position]) -> dict[int, Found]:
    """Where the position of each partition is in this version of the log. A time is the first
    record at or after it, or the end."""
    logs = log.ranges(list(positions))
    by_position: dict[Position, list[int]] = {}
    for number, position in positions.items():
        by_position.setdefault(position, []).append(number)
    found: dict[int, int | None] = {}
    for position, numbers in by_position.items():
        match position.kind:
            case "earliest":
                found |= {number: logs[number][0] for number in numbers}
            case "latest":
                found |= {number: logs[number][1] for number in numbers}
            case "offset":
                found |= dict.fromkeys(numbers, position.value)
            case "from_end":
                found |= {n: max(logs[n][0], logs[n][1] - position.value) for n in numbers}
            case "time":
                found |= log.offsets_for_time(_moment(position.value), numbers)
            case "ago":
                since_us = log.clock() * 1000 - position.value
                found |= log.offsets_for_time(_moment(since_us), numbers)
    return {number: Found(found[number], *logs[number]) for number in positions}


def resolve(log: PositionLog, positions: Mapping[int, Position]) -> dict[int, int]:
    """The offset of each position. Raises for an offset outside of the log."""
    found = locate(log, positions)
    for number, at in found.items():
        if at.asked is not None and at.asked != at.nearest:
            raise OffsetOutOfRangeError(number, at.asked, at.log_start, at.end)
    return {number: at.nearest for number, at in found.items()}


def _ago(duration: timedelta) -> Position:
    if duration < timedelta(0):
        raise InvalidRequestError(
            f"a duration goes back in time, and {duration} is negative: give a positive one"
        )
    return Position("ago", duration // timedelta(microseconds=1))


def _moment(us: int) -> Moment:
    """Only milliseconds can be outside of Python's calendar."""
    if us % 1000 == 0:
        return us // 1000
    try:
        return from_us(us)
    except OverflowError:
        return us // 1000
