"""An operation is one call of a public method. It has one budget of time for a silent store.

A store that does not answer is asked again for a while (`storage/requests.py`). Code above that may
go on after a failure: it looks whether a commit has landed, removes files, or turns to the next
object. Without a common budget these waits add up, and a call hangs for half an hour. So once a
store has been silent for too long, every further request of the same operation fails at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import wraps
from inspect import iscoroutinefunction
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)
Own = TypeVar("Own", bound="Closing")


class Silence:
    """For how long one store has not answered the requests of an operation."""

    def __init__(self) -> None:
        self._since: float | None = None
        #: What was tried, if it was too long.
        self.given_up: str | None = None

    def begin(self, now: float) -> None:
        """A request is sent. The silence begins here, unless it has begun before."""
        if self._since is None:
            self._since = now

    def end(self) -> None:
        """The store has answered."""
        self._since = None
        self.given_up = None

    def seconds(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since


class Operation:
    """What the requests of one call share. `limit_seconds` shortens the time that its stores allow
    for a silence."""

    def __init__(self, limit_seconds: float = math.inf) -> None:
        self.limit_seconds = limit_seconds
        self._silences: dict[Hashable, Silence] = {}
        #: How many races were lost since the last commit that landed, and since when.
        self.lost_races = 0
        self.losing_since = 0.0

    def silence_of(self, store: Hashable) -> Silence:
        return self._silences.setdefault(store, Silence())

    @property
    def has_given_up(self) -> bool:
        """True if a store was silent for too long, so that it is of no use to try again."""
        return any(silence.given_up for silence in list(self._silences.values()))


_current: ContextVar[Operation | None] = ContextVar("operation", default=None)


def current_operation() -> Operation:
    """The operation that this code is part of. A request outside of any is one of its own."""
    return _current.get() or Operation()


@contextmanager
def new_operation(limit_seconds: float = math.inf) -> Iterator[Operation]:
    """The body is an operation of its own. Long-running work uses this for each round: the next
    round asks a store again that was silent in the last one."""
    begun = Operation(limit_seconds)
    token = _current.set(begun)
    try:
        yield begun
    finally:
        _current.reset(token)


def operation(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make each call of a function an operation, or a part of the one that calls it."""

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        if _current.get() is not None:
            return function(*args, **kwargs)
        with new_operation():
            return function(*args, **kwargs)

    return call


def operations(public: Class) -> Class:
    """Make every public method of a class an operation. Asynchronous ones do their work in those
    that are not."""
    for name, member in list(vars(public).items()):
        is_method = isinstance(member, FunctionType) and not name.startswith("_")
        if is_method and not iscoroutinefunction(member):
            setattr(public, name, operation(member))
    return public


class Threads(ThreadPoolExecutor):
    """Threads whose work is part of the operation that submits it."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        return super().submit(copy_context().run, fn, *args, **kwargs)


class Closing:
    """A context manager that closes itself. If its body fails, an error of `close` does not hide
    the body's error."""

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise

    def close(self) -> None:
        """Release what this object holds."""
        raise NotImplementedError
