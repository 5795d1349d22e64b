"""Times and durations: how callers give them, and how the format stores them. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from pylogtable.errors import InvalidRequestError

#: A time as callers give it: an aware datetime, or milliseconds since the epoch.
Moment = datetime | int

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

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


def parse_time(text: str) -> datetime:
    """A time in ISO 8601 with a time zone, such as `2024-05-01T12:00:00Z`."""
    try:
        # Python 3.10 does not accept the Z.
        when = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
    except ValueError:
        raise InvalidRequestError(
            f"{text!r} is not a time: give ISO 8601 with a zone, such as 2024-05-01T12:00:00Z"
        ) from None
    if when.tzinfo is None:
        raise InvalidRequestError(
            f"{text!r} has no time zone; write {when.isoformat()}Z if it is in UTC"
        )
    return when


def from_us(us: int) -> datetime:
    """The UTC time for a number of microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=us)


def parse_duration(text: str) -> timedelta:
    """A duration such as `90s`, `15m`, `12h`, `7d` or `2w`, or in ISO 8601, such as `PT1H30M`."""
    short = _SHORT_DURATION.fullmatch(text.strip())
    if short is None and not text.strip().upper().startswith("P"):
        raise InvalidRequestError(
            f"{text!r} is not a duration: give a number and a unit, such as 90s, 15m, 12h, 7d or "
            "2w, or ISO 8601, such as P1DT12H. It cannot be negative."
        )
    if short is None:
        return parse_iso_duration(text.strip())
    return _timedelta(text, {_SHORT_UNITS[short[2]]: short[1]})


def parse_iso_duration(text: str) -> timedelta:
    """A duration in ISO 8601 of weeks, days, hours, minutes and seconds, such as `P1DT12H`. Raises
    for years and months, which have no fixed length, and for a negative duration."""
    found = _ISO_DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts or text[-1] in "tT":
        raise InvalidRequestError(
            f"{text!r} is not a duration: give weeks, days, hours, minutes and seconds, such as "
            "P7D, PT30M or P1DT12H30M5S. It cannot be negative."
        )
    return _timedelta(text, parts)


def _timedelta(text: str, parts: dict[str, str]) -> timedelta:
    try:
        return timedelta(**{name: float(number) for name, number in parts.items()})
    except OverflowError:
        raise InvalidRequestError(f"the duration {text!r} is too long") from None
