"""SIGTERM as a way to end that cleans up, as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. It is a `KeyboardInterrupt`, so whoever cleans up after Ctrl-C does it
    here as well."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let the first SIGTERM raise `Terminated`. The second ends the program at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
