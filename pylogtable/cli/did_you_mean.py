"""Hints for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_MOST_NAMES = 20


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint for a name that does not exist: a similar name, or all available names."""
    similar = difflib.get_close_matches(name, known, n=1)
    if similar:
        return f"did you mean {similar[0]!r}?"
    if not known:
        return "none exist yet"
    more = len(known) - _MOST_NAMES
    shown = ", ".join(list(known)[:_MOST_NAMES])
    return f"available: {shown}" + (f" and {more} more" if more > 0 else "")
