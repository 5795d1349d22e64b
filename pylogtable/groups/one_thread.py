"""Two threads that use a consumer at once are told so, as by Java's `KafkaConsumer`. Otherwise both
would get the same records, or break each other's positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from threading import RLock
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pylogtable.errors import InvalidRequestError

Given = ParamSpec("Given")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)


class Turn:
    """What a thread holds while it is in a consumer. The program's callbacks are in it, too."""

    def __init__(self) -> None:
        self._lock = RLock()

    @contextmanager
    def held(self, *, waits: bool) -> Iterator[None]:
        """Raises if another thread holds it, or waits for that one."""
        if not self._lock.acquire(blocking=waits):
            raise InvalidRequestError(
                "this consumer is used by two threads at once, and it is made for one. Give each "
                'thread a consumer of its own, such as consumer(group, member="worker-a"): they '
                "share the partitions"
            )
        try:
            yield
        finally:
            self._lock.release()


class _TakesTurns(Protocol):
    _turn: Turn | None

    def _settle(self) -> None: ...


Own = TypeVar("Own", bound=_TakesTurns)


def in_turn(
    method: Callable[Concatenate[Own, Given], Result], *, waits: bool = False
) -> Callable[Concatenate[Own, Given], Result]:
    """Make each call of a method a turn, or a part of the one that calls it."""

    @wraps(method)
    def call(self: Own, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        if self._turn is None:  # the turn is that of the consumer of several topics
            return method(self, *args, **kwargs)
        # Asynchronous code works in threads, and a cancelled one may not be done.
        self._settle()
        with self._turn.held(waits=waits):
            return method(self, *args, **kwargs)

    return call


def one_thread(public: Class) -> Class:
    """Make every public method of a consumer a turn. `close` waits for its turn, so that another
    thread can end a loop that waits for records."""
    for name, member in list(vars(public).items()):
        is_method = isinstance(member, FunctionType) and not name.startswith("_")
        if is_method and not iscoroutinefunction(member):
            taking: Any = in_turn(member, waits=name == "close")
            setattr(public, name, taking)
    return public
