"""Waits for records of a topic that somebody follows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from pylogtable import Topic, View

_SHORTEST_WAIT, _LONGEST_WAIT = 0.02, 1.0


class Silence:
    """The time in which no record comes. It is over after `timeout_ms`, or never with None."""

    def __init__(self, timeout_ms: int | None) -> None:
        self._timeout_ms = timeout_ms
        self._is_over = threading.Event()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Silence:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def begin(self) -> None:
        """Begin, or begin again: a record has come."""
        self._stop()
        self._is_over.clear()
        if self._timeout_ms is not None:
            self._timer = threading.Timer(self._timeout_ms / 1000, self._is_over.set)
            self._timer.daemon = True
            self._timer.start()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    @property
    def is_over(self) -> bool:
        """True if so much time has passed since it began."""
        return self._is_over.is_set()


def next_version(topic: Topic, view: View, silence: Silence) -> View | None:
    """Wait for the next version, with longer pauses while nothing happens. None if the silence is
    over first."""
    newer, wait = topic.at(), _SHORTEST_WAIT
    while newer.version == view.version:
        if silence.is_over:
            return None
        newer = topic.wait_for(view.version + 1, wait)
        wait = min(wait * 1.5, _LONGEST_WAIT)
    return newer
