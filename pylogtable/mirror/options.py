"""What `Topic.mirror` can be asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pylogtable.arguments import check_callable, check_flags, check_mapping
from pylogtable.errors import InvalidRequestError
from pylogtable.mirror.report import MirrorProgress

MOST_POLL_SECONDS = 86_400


@dataclass(frozen=True)
class MirrorOptions:
    """The options of `Topic.mirror`, checked."""

    name: str | None = None
    retention: str | None = None
    config: Mapping[str, object] | None = None
    groups: bool = False
    follow: bool = False
    allow_gaps: bool = False
    poll_seconds: float = 1.0
    on_progress: Callable[[MirrorProgress], object] | None = None
    stop: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        check_flags(groups=self.groups, follow=self.follow, allow_gaps=self.allow_gaps)
        poll = self.poll_seconds
        is_number = isinstance(poll, int | float) and not isinstance(poll, bool)
        if not is_number or not poll <= MOST_POLL_SECONDS:
            raise InvalidRequestError(
                f"`poll_seconds` must be a number of seconds, a day at most, not {poll!r}"
            )
        check_callable("on_progress", self.on_progress)
        check_callable("stop", self.stop)
        if self.retention not in (None, "source", "own"):
            raise InvalidRequestError(
                f"`retention` must be 'source' (the copy has the records of its source) or 'own' "
                f"(it keeps and removes records by its own settings), not {self.retention!r}"
            )
        check_mapping("config", self.settings, "{'retention.ms': -1}")
        if self.settings and not self.own_retention:
            raise InvalidRequestError(
                f"`config` ({', '.join(self.settings)}) is for copies with retention='own': others "
                "have the settings of their source"
            )

    @property
    def settings(self) -> Mapping[str, object]:
        """The settings of a new copy."""
        return {} if self.config is None else self.config

    @property
    def own_retention(self) -> bool | None:
        """Whether the copy keeps and removes records by its own settings; None if it is to stay as
        it is."""
        return None if self.retention is None else self.retention == "own"

    def is_to_stop(self) -> bool:
        """Whether the caller wants no more."""
        return self.stop is not None and self.stop()
