"""Where a consumer starts if it has no position, or one that is no longer in the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pylogtable.errors import InvalidRequestError
from pylogtable.times import parse_iso_duration

EARLIEST = "earliest"
LATEST = "latest"
NONE = "none"
BY_DURATION = "by_duration:"


@dataclass(frozen=True)
class ResetPolicy:
    """`at` is one of the four words. `ago` is the duration that comes with `by_duration`."""

    at: str
    ago: timedelta | None = None


def parse_policy(text: object) -> ResetPolicy:
    """Parse Kafka's `auto.offset.reset`: earliest, latest, none or by_duration:PnDTnHnMnS."""
    if text in (EARLIEST, LATEST, NONE):
        return ResetPolicy(str(text))
    if isinstance(text, str) and text.startswith(BY_DURATION):
        return ResetPolicy("by_duration", parse_iso_duration(text.removeprefix(BY_DURATION)))
    raise InvalidRequestError(
        f"auto_offset_reset is 'earliest', 'latest', 'none' or 'by_duration:PT1H', not {text!r}"
    )
