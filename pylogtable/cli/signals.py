"""SIGTERM as a way to end that cleans up, as Ctrl-C does; and both as a wish to end soon.

The second SIGTERM is passed over: `timeout` sends two at once. The third ends the program.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pylogtable import LogTableError


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. It is a `KeyboardInterrupt`, so whoever cleans up after Ctrl-C does it
    here as well."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let the first SIGTERM raise `Terminated`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    come = 0

    def stop(*_: Any) -> None:
        nonlocal come
        come += 1
        if come == 1:
            raise Terminated
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except LogTableError:
        raise
    except Exception as error:
        # In the middle of somebody's import statement, `Terminated` may become another error.
        if come:
            raise Terminated from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


class Signals:
    """Which of Ctrl-C and SIGTERM has come, if any."""

    def __init__(self) -> None:
        self.first: int | None = None

    def has_come(self) -> bool:
        """True once one of them has come."""
        return self.first is not None

    def raise_again(self) -> None:
        """Raise what the first signal would have raised by itself."""
        if self.first is not None:
            raise Terminated if self.first == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def noting_signals(on_first: Callable[[], None] = lambda: None) -> Iterator[Signals]:
    """Note the first Ctrl-C or SIGTERM, so that what is under way can be finished. `on_first` is
    called when it comes, in the middle of anything. The next Ctrl-C ends the program as usual.

    After a SIGTERM, the second one is passed over also when the block has ended: the program is
    about to say what it has done. `ended_by_sigterm` is around all of it."""
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def take(number: int, _: Any) -> None:
        is_first = signals.first is None
        signals.first = signals.first or number
        if not is_first and number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        elif number == signal.SIGTERM:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        else:
            restore()
        if is_first:
            on_first()

    for number in before:
        signal.signal(number, take)
    try:
        yield signals
    finally:
        if signals.first == signal.SIGTERM:
            signal.signal(signal.SIGINT, before[signal.SIGINT])
        else:
            restore()
