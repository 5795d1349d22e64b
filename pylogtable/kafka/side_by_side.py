"""Work on several topics at a time, each in a thread of its own, with one budget of memory.

Work that follows its topic has to go on for all of them at once. Other work takes a few topics at a
time. A topic that fails stops no other one; if it is followed, it is tried again after a while.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from pylogtable.errors import LogTableError
from pylogtable.runtime import Runtime

_logger = logging.getLogger(__name__)

#: Topics at a time, if they are not followed. More would only share the same network.
AT_ONCE = 4

Report = TypeVar("Report")


@dataclass(frozen=True)
class Share:
    """The share of one topic in what all of them may use: one of `parts`. It is outdated once there
    are so many more topics that each has to do with less. Work ends then, and begins again."""

    parts: int
    is_outdated: Callable[[], bool]

    def of(self, total: int, least: int) -> int:
        """So much of the whole."""
        return max(least, total // self.parts)


@dataclass(frozen=True)
class Ended(Generic[Report]):
    """The work on a topic has ended: with a report, or with an error. If it goes on at once, with a
    smaller share, it is `to_go_on`."""

    topic: str
    began_ms: int
    seconds: float
    report: Report | None = None
    error: LogTableError | None = None
    to_go_on: bool = False


@dataclass
class SideBySide(Generic[Report]):
    """Threads that call `work` with a topic and its share. If it `follows`, work that has ended is
    begun again after `rest_seconds`; otherwise it is done."""

    work: Callable[[str, Share], Report]
    runtime: Runtime
    follows: bool
    rest_seconds: float
    name: str
    _threads: dict[str, threading.Thread] = field(default_factory=dict)
    _rests_from: dict[str, float] = field(default_factory=dict)
    _ended: SimpleQueue[Ended[Report]] = field(default_factory=SimpleQueue)
    _parts: int = 1

    def begin(self, topics: Iterable[str]) -> None:
        """Begin the work on those of these topics that have none, and need not rest."""
        new = [topic for topic in topics if topic not in self._threads and not self._rests(topic)]
        if not self.follows:
            self._parts = max(self._parts, min(AT_ONCE, len(self._threads) + len(new)))
            new = new[: AT_ONCE - len(self._threads)]
        while self.follows and self._parts < len(self._threads) + len(new):
            self._parts *= 2  # seldom, since work has to begin again for it
        for topic in new:
            share = self._share()
            thread = threading.Thread(
                target=self._run, args=(topic, share), name=f"{self.name} {topic}", daemon=True
            )
            self._threads[topic] = thread
            thread.start()

    @property
    def running(self) -> int:
        """On how many topics there is work."""
        return len(self._threads)

    def ended(self, seconds: float = 0.0) -> list[Ended[Report]]:
        """What has ended since the last call. If it is nothing, wait for at most this long."""
        found: list[Ended[Report]] = []
        wait = seconds
        while True:
            try:
                one = self._ended.get(timeout=wait) if wait else self._ended.get_nowait()
            except Empty:
                return found
            wait = 0.0
            self._threads.pop(one.topic).join()
            if not one.to_go_on:
                self._rests_from[one.topic] = self.runtime.monotonic()
            found.append(one)

    def wait(self) -> list[Ended[Report]]:
        """Wait until all has ended, which was told to."""
        found = []
        while self._threads:
            found += self.ended(seconds=1.0)
        return found

    def _rests(self, topic: str) -> bool:
        since = self._rests_from.get(topic)
        if since is None:
            return False
        return not self.follows or self.runtime.monotonic() - since < self.rest_seconds

    def _share(self) -> Share:
        parts = self._parts
        return Share(parts, lambda: self._parts != parts)

    def _run(self, topic: str, share: Share) -> None:
        began_ms, began = self.runtime.clock(), self.runtime.monotonic()
        report: Report | None = None
        error: LogTableError | None = LogTableError("it ended early")
        try:
            report = self.work(topic, share)
            error = None
        except LogTableError as raised:
            error = raised
        except Exception as raised:
            _logger.exception("the %s of topic %r ended early", self.name, topic)
            error = LogTableError(f"{type(raised).__name__}: {raised}")
        finally:
            seconds = self.runtime.monotonic() - began
            to_go_on = error is None and self.follows and share.is_outdated()
            self._ended.put(Ended(topic, began_ms, seconds, report, error, to_go_on))
