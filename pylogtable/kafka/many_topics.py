"""What imports and exports of many topics share: they look for topics, and work on them."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.events import log_event
from pylogtable.kafka.client import StoppedError
from pylogtable.kafka.side_by_side import Ended, Share, SideBySide
from pylogtable.kafka.topics_plan import Choice
from pylogtable.runtime import Runtime

_logger = logging.getLogger(__name__)

#: The longest wait for topics that end, so that a stop is noticed soon.
WAIT_SECONDS = 0.2

Report = TypeVar("Report", bound="Joined")
Progress = TypeVar("Progress")


class Joined(Protocol):
    """What came of one part of the work on a topic."""

    def followed_by(self, later: Any) -> Any:
        """The report of both parts."""


@dataclass
class ManyTopics(Generic[Report]):
    """Work on those topics of `place` that are chosen. `list_names` tells all that are there."""

    choice: Choice
    place: str
    list_names: Callable[[], list[str]]
    work: Callable[[str, Share, Callable[[], bool]], Report]
    job: str
    follow: bool
    stop: Callable[[], bool]
    look_seconds: float
    on_end: Callable[[str, Report | LogTableError], object] | None = None
    reports: dict[str, Report] = field(default_factory=dict)
    errors: dict[str, LogTableError] = field(default_factory=dict)
    _is_closing: bool = False

    def run(self) -> None:
        """Work until all topics are done, or until it is to stop."""
        runtime = Runtime()
        side = SideBySide(self._work, runtime, self.follow, self.look_seconds, self.job)
        wanted = set(self._first_look())
        looked = said = runtime.monotonic()
        done: set[str] = set()
        try:
            while not self.stop() and (self.follow or not done >= wanted):
                side.begin(sorted(wanted))
                for one in side.ended(WAIT_SECONDS):
                    self._note(one)
                    done.add(one.topic)
                # Each error is told once: nobody would notice later that nothing is done any more.
                is_idle = bool(wanted) and wanted <= self.errors.keys()
                if self.follow and is_idle and runtime.monotonic() - said > self.look_seconds:
                    said = runtime.monotonic()
                    self._say_that_all_have_failed(len(wanted))
                is_due = runtime.monotonic() - looked > self.look_seconds
                if is_due and self.follow and self.choice.may_grow:
                    wanted.update(self._later_look())
                    looked = runtime.monotonic()
        finally:
            self._is_closing = True
            for one in side.wait():
                self._note(one)

    def _say_that_all_have_failed(self, topics: int) -> None:
        log_event(
            _logger,
            logging.WARNING,
            "nothing is done: all %(topics)s topics of this %(job)s have failed, and are tried "
            "again every %(seconds)s seconds",
            topics=topics,
            job=self.job,
            seconds=self.look_seconds,
        )

    def _first_look(self) -> list[str]:
        if not self.choice.may_grow:
            return self.choice.among(())
        try:
            names = self.list_names()
        except StoppedError:
            return []
        chosen = self.choice.among(names)
        if not chosen:
            problem = self.choice.nothing_in(self.place, names)
            if not self.follow:
                raise InvalidRequestError(problem)
            warnings.warn(
                f"{problem}. It is looked for again every {self.look_seconds:.0f} seconds",
                stacklevel=5,
            )
        return chosen

    def _later_look(self) -> list[str]:
        try:
            return self.choice.among(self.list_names())
        except StoppedError:
            return []
        except LogTableError as error:
            warnings.warn(f"new topics are not looked for, and later again: {error}", stacklevel=5)
            return []

    def _work(self, topic: str, share: Share) -> Report:
        return self.work(
            topic, share, lambda: self._is_closing or self.stop() or share.is_outdated()
        )

    def _note(self, ended: Ended[Report]) -> None:
        """Tell what has become of a topic. An error that was told is not told again."""
        topic, error = ended.topic, ended.error
        if error is not None:
            is_news = str(error) != str(self.errors.get(topic))
            self.errors[topic] = error
            if is_news and self.on_end is not None:
                self.on_end(topic, error)
            return
        assert ended.report is not None
        self.errors.pop(topic, None)
        before = self.reports.get(topic)
        report: Report = ended.report if before is None else before.followed_by(ended.report)
        self.reports[topic] = report
        if not ended.to_go_on and self.on_end is not None:
            self.on_end(topic, report)


class TellProgress(Generic[Progress]):
    """Tells how far the topics are, to a caller who wants to know. The work on a topic may begin
    anew: what is told of it does not go back then."""

    def __init__(
        self,
        tell: Callable[[str, Progress], object] | None,
        joined: Callable[[Progress, Progress], Progress],
    ) -> None:
        self._tell = tell
        self._joined = joined
        self._last: dict[str, Progress] = {}

    def begun(self, topic: str) -> Callable[[Progress], None] | None:
        """What the work on a topic is given that begins now."""
        before, tell = self._last.get(topic), self._tell
        if tell is None:
            return None

        def note(at: Progress) -> None:
            self._last[topic] = at if before is None else self._joined(before, at)
            tell(topic, self._last[topic])

        return note


def check_options(call: Callable[..., object], options: Mapping[str, Any], *without: str) -> None:
    """Raise for options that a call for one topic does not have, and those that are only for one
    topic."""
    known = inspect.signature(call).parameters.keys()
    for name in options:
        if name not in known or name in without:
            raise TypeError(f"{name!r} is no option for many topics")
