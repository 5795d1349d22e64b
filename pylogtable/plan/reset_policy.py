"""Where a consumer begins that finds no position, or one that is not in the log any more. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pylogtable.errors import InvalidRequestError
from pylogtable.format.times import parse_iso_duration

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
BY_DURATION = "by_duration:"


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
        return ResetPolicy("by_duration", parse_iso_duration(text.removeprefix(BY_DURATION)))
    raise InvalidRequestError(
        f"auto_offset_reset is 'earliest', 'latest', 'none' or 'by_duration:PT1H', not {text!r}"
    )
