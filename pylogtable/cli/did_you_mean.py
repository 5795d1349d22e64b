"""Hints for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection

_MOST_NAMES = 20


def did_you_mean(
    name: str, known: Collection[str], may_suggest: Callable[[str], bool] = lambda name: True
) -> str:
    """A hint for a name that does not exist: a similar name that `may_suggest` allows, or all
    available names."""
    for similar in difflib.get_close_matches(name, known):
        if may_suggest(similar):
            return f"did you mean {similar!r}?"
    if not known:
        return "none exist yet"
    more = len(known) - _MOST_NAMES
    shown = ", ".join(list(known)[:_MOST_NAMES])
    return f"available: {shown}" + (f" and {more} more" if more > 0 else "")
