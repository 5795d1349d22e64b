"""Argument checks. Every error names the argument and shows its value."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from numbers import Integral
from typing import Any, Final

from pylogtable.errors import InvalidRequestError

YEAR_10000_MS = 253_402_300_800_000
_MOST_NAMES = 20


class NotGiven(Enum):
    """The type of `NOT_GIVEN`. An enum of one member, so that type checkers know what is left
    after `is NOT_GIVEN`."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return "NOT_GIVEN"


#: The default of an argument whose None means something.
NOT_GIVEN: Final = NotGiven.NOT_GIVEN


def check_mapping(name: str, value: object, example: str) -> None:
    """Raise if the value is not a dict or another mapping."""
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"`{name}` must be a dict such as {example}, not {_shown(value)}")


def check_flags(**flags: object) -> None:
    """Raise if a value is not True or False. A text such as "no" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidRequestError(f"`{name}` must be True or False, not {_shown(value)}")


def check_number(name: str, value: object, least: int = 0) -> None:
    """Raise if the value is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidRequestError(
            f"`{name}` must be a whole number, {least} or more, not {_shown(value)}"
        )


def check_name(name: str, value: object) -> None:
    """Raise if the value is not a string, or is empty."""
    check_text(name, value)
    if not value:
        raise InvalidRequestError(f"`{name}` must not be empty")


def check_callable(name: str, value: object) -> None:
    """Raise if the value is neither a function nor None."""
    if value is not None and not callable(value):
        raise InvalidRequestError(f"`{name}` must be a function, not {_shown(value)}")


def check_text(name: str, value: object) -> None:
    """Raise if the value is not a string that can be stored."""
    if not isinstance(value, str):
        raise InvalidRequestError(f"`{name}` must be a string, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"`{name}` is not valid Unicode: {_shown(value)}") from None


def checked_clock(clock: Callable[[], int]) -> Callable[[], int]:
    """The same clock. It raises if it gives anything but milliseconds since 1970, or a time beyond
    Python's calendar."""
    if not callable(clock):
        raise InvalidRequestError(f"`clock` must be callable, not {clock!r}")

    def checked() -> int:
        now_ms = clock()
        is_whole = isinstance(now_ms, int) and not isinstance(now_ms, bool)
        if not is_whole or not 0 <= now_ms < YEAR_10000_MS:
            raise InvalidRequestError(
                f"`clock` must return milliseconds since 1970, up to the year 9999, not {now_ms!r}"
            )
        return now_ms

    return checked


def names_in(name: str, value: object) -> list[str]:
    """The value as a list of names. Raises if it is a single string, a common mistake."""
    if isinstance(value, str):
        raise InvalidRequestError(f"`{name}` must be a list of names: [{value!r}]")
    listed = list(value) if isinstance(value, Iterable) else None
    if listed is None or not all(isinstance(part, str) for part in listed):
        raise InvalidRequestError(f"`{name}` must be a list of names, not {_shown(value)}")
    for part in listed:
        check_text(f"a name in {name}", part)
    return listed


def new_names(name: str, value: object) -> dict[str, str]:
    """The value as a dict of new names by old names."""
    check_mapping(name, value, "{'old': 'new'}")
    assert isinstance(value, Mapping)
    for part in (*value.keys(), *value.values()):
        check_text(f"a name in {name}", part)
    return dict(value)


def address(url: object) -> str:
    """A path or a URL as text."""
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise InvalidRequestError(
            f"an address must be a path or a URL and not empty, not {_shown(url)}"
        )
    try:
        is_usable = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_usable = False
    if not is_usable:
        raise InvalidRequestError(f"no path or URL can have these characters: {_shown(url)}")
    return text


def _shown(value: object) -> str:
    """The value if it is short, otherwise its beginning and its type."""
    text = repr(value)
    is_short = len(text) <= 60 and "\n" not in text
    return text if is_short else f"{text[:40].splitlines()[0]}... ({type(value).__name__})"


def is_whole(number: object) -> bool:
    """True for a whole number of Python or numpy; a bool is none."""
    # Most are plain, and to ask an abstract class is slow.
    is_plain = type(number) is int
    return is_plain or (isinstance(number, Integral) and not isinstance(number, bool))


def parse_storage_options(text: str | None, option: str) -> dict[str, Any] | None:
    """A JSON object for the client of a store; None if no text is given. Errors do not repeat the
    text: it may hold secrets."""
    if text is None:
        return None
    try:
        options = json.loads(text)
    except ValueError as error:
        raise InvalidRequestError(f"{option} is not JSON: {error}") from None
    if not isinstance(options, dict):
        raise InvalidRequestError(f"{option} must be a JSON object")
    return options


def did_you_mean(
    name: str, known: Collection[str], may_suggest: Callable[[str], bool] = lambda name: True
) -> str:
    """A hint for a name that does not exist: the name that is most like it, if `may_suggest` allows
    that one, or all available names."""
    for similar in difflib.get_close_matches(name, known, n=1):
        if may_suggest(similar):
            return f"did you mean {similar!r}?"
    if not known:
        return "none exist yet"
    more = len(known) - _MOST_NAMES
    shown = ", ".join(list(known)[:_MOST_NAMES])
    return f"available: {shown}" + (f" and {more} more" if more > 0 else "")
