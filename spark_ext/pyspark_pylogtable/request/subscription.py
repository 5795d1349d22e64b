"""Which topics of a store a read asks for: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.json_text import expected, json_object

_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'


@dataclass(frozen=True, slots=True)
class Subscribe:
    """These topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """The topics whose whole name matches. The syntax is Python's `re`; Kafka's is Java's."""

    pattern: str

    def matches(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions of these topics."""

    partitions: dict[str, tuple[int, ...]]


Subscription = Subscribe | SubscribePattern | Assign


def named(topics: Sequence[str], most: int = 10) -> str:
    """The names of some topics, for messages."""
    more = f" and {len(topics) - most} more" if len(topics) > most else ""
    return f"{', '.join(topics[:most])}{more}"


def parse_subscription(given: Mapping[str, str]) -> Subscription | None:
    """The chosen topics; None if the options choose none, as for the path of a single topic."""
    parsers: dict[str, Callable[[str], Subscription]] = {
        "subscribe": _subscribe,
        "subscribePattern": _pattern,
        "assign": _assign,
    }
    chosen = [name for name in parsers if name in given]
    if len(chosen) > 1:
        raise InvalidRequestError(
            "Only one of the following options can be specified: "
            f"{', '.join(parsers)}; given were {' and '.join(chosen)}"
        )
    return parsers[chosen[0]](given[chosen[0]].strip()) if chosen else None


def _subscribe(text: str) -> Subscribe:
    topics = [part.strip() for part in text.split(",") if part.strip()]
    if not topics:
        raise InvalidRequestError("No topics to subscribe: give subscribe as 'topicA,topicB'")
    return Subscribe(tuple(dict.fromkeys(topics)))


def _pattern(text: str) -> SubscribePattern:
    if not text:
        raise InvalidRequestError(
            "Pattern to subscribe is empty: give subscribePattern as 'logs-.*'"
        )
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequestError(
            f"subscribePattern {text!r} is not a regular expression of Python's re: {error}"
        ) from None
    return SubscribePattern(text)


def _assign(text: str) -> Assign:
    partitions: dict[str, tuple[int, ...]] = {}
    for topic, numbers in json_object("assign", text or "{}", _ASSIGN_EXAMPLE).items():
        if not isinstance(numbers, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in numbers
        ):
            raise expected("assign", _ASSIGN_EXAMPLE, text)
        if numbers:
            partitions[topic] = tuple(sorted(set(numbers)))
    if not partitions:
        raise InvalidRequestError(
            f"No topicpartitions to assign: give assign as {_ASSIGN_EXAMPLE}; "
            "subscribe reads all partitions of a topic"
        )
    return Assign(partitions)
