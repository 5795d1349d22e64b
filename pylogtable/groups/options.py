"""The arguments of a consumer, and their checks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from pylogtable.arguments import check_callable, check_flags, check_number
from pylogtable.errors import InvalidRequestError
from pylogtable.format.group_model import MAX_LEASE_MS

MIN_LEASE_MS = 100

#: Called with the consumer and partitions.
OnPartitions = Callable[[Any, Any], object]


@dataclass
class Talk:
    """Whether one of the program's functions runs."""

    is_on: bool = False


@dataclass(frozen=True)
class Callbacks:
    """What a program wants to be told of its partitions. If its consumer is one of many topics,
    that is the `owner` of the consumers of each topic, and they take turns to talk."""

    on_assign: OnPartitions | None = None
    on_revoke: OnPartitions | None = None
    on_lost: OnPartitions | None = None
    owner: Callable[[], Any] | None = None
    talk: Talk = field(default_factory=Talk)

    def check_silent(self, method: str) -> None:
        """Raise if this method is called out of one of the program's functions."""
        if self.talk.is_on:
            raise InvalidRequestError(
                f"{method}() cannot be called inside of on_assign, on_revoke or on_lost: the "
                "consumer is in the middle of a change. commit(), seek(), pause() and positions() "
                "can"
            )

    def __bool__(self) -> bool:
        return any((self.on_assign, self.on_revoke, self.on_lost))


@dataclass(frozen=True)
class ConsumerOptions:
    """The arguments of `Topic.consumer` and `Store.consumer`."""

    group: str
    member: tuple[int, int] | str | None
    auto_offset_reset: str
    columns: Sequence[str] | None
    max_records: int
    lease_ms: int
    max_poll_interval_ms: int
    follow: bool
    callbacks: Callbacks = field(default_factory=Callbacks)

    def check(self) -> None:
        """Raise for values that no consumer can have."""
        check_count(self.max_records)
        check_flags(follow=self.follow)
        check_number("lease_ms", self.lease_ms, MIN_LEASE_MS)
        if self.lease_ms > MAX_LEASE_MS:
            raise InvalidRequestError(
                f"lease_ms must be at most {MAX_LEASE_MS:,} (24 hours), not {self.lease_ms:,}: a "
                "longer lease would not be believed"
            )
        check_number("max_poll_interval_ms", self.max_poll_interval_ms, MIN_LEASE_MS)
        for name in ("on_assign", "on_revoke", "on_lost"):
            check_callable(name, getattr(self.callbacks, name))


def check_count(count: int) -> int:
    """The most records of a poll."""
    check_number("max_records", count, 1)
    return min(count, sys.maxsize)


def check_timeout(timeout: object) -> float:
    """The seconds of a timeout."""
    is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
    if not is_number or timeout != timeout:  # NaN is no number of seconds
        raise InvalidRequestError(f"timeout must be a number of seconds, not {timeout!r}")
    try:
        return float(timeout)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf
