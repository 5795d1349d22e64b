"""Times and durations: how callers give them, and how the format stores them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from pylogtable.errors import InvalidRequestError

#: A time as callers give it: an aware datetime, or milliseconds since the epoch.
Moment = datetime | int

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_MS = (2**63 - 1) // 1000  # no record is later: timestamps are 64-bit microseconds

_ISO_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SHORT_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)", re.ASCII)
_SHORT_UNITS = {
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "d": "days",
    "w": "weeks",
}


def to_us(when: Moment) -> int:
    """A time as microseconds since the epoch."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidRequestError(f"{when!r} has no time zone; add one, such as timezone.utc")
        return (when - EPOCH) // timedelta(microseconds=1)
    if isinstance(when, bool) or not isinstance(when, int):
        raise InvalidRequestError(f"{when!r} is not a time: give a datetime or milliseconds")
    return when * 1000


def as_datetime(when: Moment) -> datetime:
    """A time as a datetime. Raises if it is outside of Python's calendar."""
    if isinstance(when, datetime):
        return when
    try:
        return from_us(to_us(when))
    except OverflowError:
        raise InvalidRequestError(
            f"{when} is a time after the year 9999; is it in milliseconds?"
        ) from None


def parse_time(text: str, zone: timezone | None = None) -> Moment:
    """A time in ISO 8601, such as `2024-05-01T12:00:00Z`, or in milliseconds since the epoch, with
    or without an `@` before them. ISO 8601 without a time zone is refused, unless there is a
    default `zone`."""
    stripped = text.strip()
    digits = re.fullmatch(r"@?([0-9]{1,19})", stripped)
    if digits is not None and int(digits[1]) < 2**63:
        return min(int(digits[1]), _LAST_MS)
    # Before Python 3.11 fromisoformat() takes neither Z nor fractions of any length.
    iso = re.sub(r"[zZ]$", "+00:00", stripped)
    iso = re.sub(r"\.([0-9]{1,6})[0-9]*", lambda found: "." + found[1].ljust(6, "0"), iso)
    try:
        when = datetime.fromisoformat(iso)
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is not a time: give ISO 8601 with a zone, such as 2024-05-01T12:00:00Z, or "
            "milliseconds since the epoch, such as @1714564800000"
        ) from None
    if when.tzinfo is None and zone is None:
        raise InvalidRequestError(
            f"{text!r} has no time zone; write {when.isoformat()}Z if it is in UTC"
        )
    return when if when.tzinfo is not None else when.replace(tzinfo=zone)


def is_within(since_ms: int | None, now_ms: int, for_ms: int) -> bool:
    """Whether less than a time has passed since then. False too if the clock was set back, or if it
    has never been."""
    return since_ms is not None and 0 <= now_ms - since_ms < for_ms


def from_us(us: int) -> datetime:
    """The UTC time for a number of microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=us)


def parse_duration(text: str) -> timedelta:
    """A duration such as `90s`, `15m`, `12h`, `7d` or `2w`, or in ISO 8601, such as `PT1H30M`.
    Raises for years and months, which have no fixed length, and for a negative duration."""
    stripped = text.strip()
    short, iso = _SHORT_DURATION.fullmatch(stripped), _ISO_DURATION.fullmatch(stripped)
    parts: dict[str, str | None] = {} if iso is None else iso.groupdict()
    if short is not None:
        parts = {_SHORT_UNITS[short[2]]: short[1]}
    given = {unit: float(number) for unit, number in parts.items() if number is not None}
    if not given or stripped[-1] in "tT":
        raise InvalidRequestError(
            f"{text!r} is not a duration: give a number and a unit, such as 90s, 15m, 12h, 7d or "
            "2w, or ISO 8601 with weeks, days, hours, minutes and seconds, such as P1DT12H. It "
            "cannot be negative."
        )
    try:
        return timedelta(**given)
    except OverflowError:
        raise InvalidRequestError(f"the duration {text!r} is too long") from None
