"""Where a consumer begins that finds no position, or one that is not in the log any more. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from pylogtable.errors import InvalidRequestError

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
BY_DURATION = "by_duration:"

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ResetPolicy:
    """`at` is one of the words; `ago` is how long ago instead, where a duration was given."""

    at: str
    ago: timedelta | None = None


def parse_policy(text: object) -> ResetPolicy:
    """Kafka's `auto.offset.reset`: earliest, latest, none or by_duration:PnDTnHnMnS."""
    if text in (EARLIEST, LATEST, NONE):
        return ResetPolicy(str(text))
    if isinstance(text, str) and text.startswith(BY_DURATION):
        return ResetPolicy("by_duration", parse_duration(text.removeprefix(BY_DURATION)))
    raise InvalidRequestError(
        f"auto_offset_reset is 'earliest', 'latest', 'none' or 'by_duration:PT1H', not {text!r}"
    )


def parse_duration(text: str) -> timedelta:
    """A duration of ISO 8601 in days, hours, minutes and seconds, such as P1DT12H; none is
    negative."""
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else {k: v for k, v in found.groupdict().items() if v is not None}
    if not parts or text[-1] in "tT":
        raise InvalidRequestError(
            f"{text!r} is not a duration: give days, hours, minutes and seconds, such as P7D, "
            "PT30M or P1DT12H30M5S, and nothing negative"
        )
    try:
        return timedelta(**{name: float(number) for name, number in parts.items()})
    except OverflowError:
        raise InvalidRequestError(f"the duration {text!r} is too long") from None
