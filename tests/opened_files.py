"""Which files an action opens, by Python's own audit."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

_opened: list[str] = []
_is_watching = False


@functools.cache
def _watch() -> None:
    """Once, because Python keeps a hook for ever."""

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if _is_watching and event == "open":
            _opened.append(str(arguments[0]))

    sys.addaudithook(note)


def opened_by(action: Callable[[], object]) -> list[str]:
    """The files that Python opens for this."""
    global _is_watching
    _watch()
    _opened.clear()
    _is_watching = True
    try:
        action()
    finally:
        _is_watching = False
    return list(_opened)
