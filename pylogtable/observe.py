"""Tells listeners, and the log, of each request to a store. If nobody listens, nothing is done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from pylogtable.events import log_event

Kind = Literal["get", "put", "list", "head", "delete", "copy"]
#: `missing`: there is no such object. `exists`: a put-if-absent found one. `refused`: the store
#: said no, for want of permission or because it is busy. `unanswered`: no whole reply came in time.
#: `failed`: anything else, such as an error of the server.
Outcome = Literal["ok", "missing", "exists", "refused", "unanswered", "failed"]

_logger = logging.getLogger("pylogtable.requests")


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a store: what was asked, for how long, and what came of it. A request that is
    sent again is another one."""

    kind: Kind
    seconds: float
    outcome: Outcome


@dataclass(eq=False, slots=True)
class _Listener:
    hear: Callable[[Request], object]
    has_failed: bool = False

    def tell(self, request: Request) -> None:
        try:
            self.hear(request)
        except Exception:
            if not self.has_failed:
                self.has_failed = True
                _logger.warning("a listener to requests failed: %r", self.hear, exc_info=True)


_listeners: tuple[_Listener, ...] = ()
_lock = Lock()


def listen_to_requests(listener: Callable[[Request], object]) -> Callable[[], None]:
    """Call `listener` with each request of this process from now on, until the function that is
    returned is called. It is called in the threads that send requests, so it must not wait.

    >>> stop = listen_to_requests(print)
    >>> stop()
    """
    added = _Listener(listener)
    _change(lambda listeners: (*listeners, added))
    return lambda: _change(lambda listeners: tuple(one for one in listeners if one is not added))


def _change(change: Callable[[tuple[_Listener, ...]], tuple[_Listener, ...]]) -> None:
    global _listeners
    with _lock:
        _listeners = change(_listeners)


def is_observed() -> bool:
    """True if somebody wants to know of requests."""
    return bool(_listeners) or _logger.isEnabledFor(logging.DEBUG)


def note_request(request: Request, place: str) -> None:
    """Tell of a request; `place` is the object, or where a listing begins."""
    kind, seconds, outcome = request.kind, request.seconds, request.outcome
    log_event(
        _logger,
        logging.DEBUG,
        "%(kind)s %(key)s: %(outcome)s",
        kind=kind,
        key=place,
        outcome=outcome,
        seconds=seconds,
    )
    for listener in _listeners:
        listener.tell(request)
