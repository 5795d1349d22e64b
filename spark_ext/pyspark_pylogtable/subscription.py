"""What a read asks for: which topics, from where, to where. Parsed from text, not yet resolved.

All of it is Kafka's: the words `earliest` and `latest`, -2 and -1 for them in JSON, and JSON by
topic and partition. Ours are the `"*"` entry (the default for what is not named) and the short form
`{"0":23,"*":-2}` that leaves the topic's name out where there is only one topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pylogtable import InvalidRequestError

EARLIEST = -2
LATEST = -1
ANY_TOPIC = "*"
# Of what is given for one side, the first form wins.
POSITION_FORMS = ("Timestamp", "OffsetsByTimestamp", "Offsets")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_LONG_MAX = 2**63 - 1
_LAST_MS = _LONG_MAX // 1000  # no record is later: timestamps are 64-bit microseconds
_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'
_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":"2023-11-14T22:13:20Z"}}'


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Python's `re`, where Kafka's is Java's; as there, it must match the whole name."""

    pattern: str

    def matches(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    partitions: dict[str, tuple[int, ...]]


Subscription = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class Position:
    """One end of a range, as an offset or a time per partition.

    `values` holds offsets (EARLIEST and LATEST among them), or microseconds since the epoch if
    `is_time`. ANY_TOPIC stands for every topic and partition None for every partition that is not
    named, so a word or a single time for the whole read is `{ANY_TOPIC: {None: value}}`.
    """

    option: str
    is_time: bool
    values: dict[str, dict[int | None, int]]
    is_short: bool = False

    def at(self, topic: str, partition: int) -> int | None:
        """The value for a partition, by its nearest entry; None if no entry covers it."""
        for entries in (self.values.get(topic, {}), self.values.get(ANY_TOPIC, {})):
            for key in (partition, None):
                if key in entries:
                    return entries[key]
        return None

    def entries(self) -> Iterator[tuple[str, int | None]]:
        return ((topic, partition) for topic, row in self.values.items() for partition in row)

    @property
    def names_all(self) -> bool:
        """No entry is a default: the partitions named are all that are meant."""
        topics_named = self.is_short or ANY_TOPIC not in self.values
        return topics_named and all(partition is not None for _, partition in self.entries())


def everywhere(option: str, value: int, is_time: bool = False) -> Position:
    return Position(option, is_time, {ANY_TOPIC: {None: value}})


def parse_subscription(given: Mapping[str, str]) -> Subscription | None:
    """The choice of topics; None if there is none, as for a path that is a topic."""
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
    for topic, numbers in _json_object("assign", text or "{}", _ASSIGN_EXAMPLE).items():
        if not isinstance(numbers, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in numbers
        ):
            raise _expected("assign", _ASSIGN_EXAMPLE, text)
        if numbers:
            partitions[topic] = tuple(sorted(set(numbers)))
    if not partitions:
        raise InvalidRequestError(
            f"No topicpartitions to assign: give assign as {_ASSIGN_EXAMPLE}; "
            "subscribe reads all partitions of a topic"
        )
    return Assign(partitions)


def parse_position(given: Mapping[str, str], side: str) -> Position | None:
    """`side` is starting or ending. One time for all wins over times by partition, and those over
    offsets; what is overruled is checked all the same."""
    parsers = dict(zip(POSITION_FORMS, (_single_time, _times, _offsets), strict=True))
    found = [
        parse(name, given[name].strip())
        for form, parse in parsers.items()
        if (name := f"{side}{form}") in given
    ]
    return found[0] if found else None


def _single_time(option: str, text: str) -> Position:
    return everywhere(option, parse_time(option, text), is_time=True)


def _times(option: str, text: str) -> Position:
    def time(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise _expected(option, _TIMES_EXAMPLE, text, f"{json.dumps(value)} is not a time")
        return parse_time(option, str(value))

    values, is_short = _by_partition(option, text, _TIMES_EXAMPLE, time)
    return Position(option, True, values, is_short)


def _offsets(option: str, text: str) -> Position:
    def offset(value: object) -> int:
        if isinstance(value, str) and value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
        if isinstance(value, int) and not isinstance(value, bool) and -2 <= value <= _LONG_MAX:
            return value
        raise _expected(option, _OFFSETS_EXAMPLE, text, f"{json.dumps(value)} is not an offset")

    if text.lower() in _WORDS:
        return everywhere(option, _WORDS[text.lower()])
    values, is_short = _by_partition(option, text, _OFFSETS_EXAMPLE, offset)
    return Position(option, False, values, is_short)


def parse_time(option: str, text: str) -> int:
    """Microseconds since the epoch, of milliseconds (Kafka's form) or of ISO-8601 text.

    ISO text without a time zone is UTC, whatever the session's zone: the same option must mean the
    same records on every machine. A negative number is refused, for -1 and -2 are offsets.
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= _LONG_MAX:
        return min(int(text), _LAST_MS) * 1000
    try:
        # Python 3.10 does not know the Z.
        when = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise InvalidRequestError(
            f"{option}: Expected a single long value, got {text!r}. Give milliseconds since the "
            "epoch (0 or more), or ISO-8601 such as 2024-05-01T12:00:00Z (UTC if it names no zone)"
        ) from None
    aware = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // timedelta(microseconds=1)


def _by_partition(
    option: str, text: str, example: str, parse: Callable[[object], int]
) -> tuple[dict[str, dict[int | None, int]], bool]:
    """The values by topic and partition, and whether the topic's name was left out."""

    def row(entries: Mapping[str, object]) -> dict[int | None, int]:
        for key in entries:
            if not re.fullmatch(r"\*|0|[1-9][0-9]{0,9}", key):
                raise _expected(option, example, text, f"{key!r} is neither a partition nor '*'")
        return {None if key == "*" else int(key): parse(value) for key, value in entries.items()}

    content = _json_object(option, text, example)
    values: dict[str, dict[int | None, int]] = {}
    for topic, entries in content.items():
        if isinstance(entries, dict):
            values[topic] = row(entries)
    if values and len(values) < len(content):
        raise _expected(option, example, text, "some entries are by topic and some are not")
    is_short = bool(content) and not values
    return ({ANY_TOPIC: row(content)} if is_short else values), is_short


def _json_object(option: str, text: str, example: str) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            raise ValueError("a name is given twice")
        return entries

    try:
        content = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise _expected(option, example, text, str(error)) from None
    if not isinstance(content, dict):
        raise _expected(option, example, text)
    return content


def _expected(option: str, example: str, text: str, why: str = "") -> InvalidRequestError:
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return InvalidRequestError(
        f"{option}: Expected e.g. {example}, got {shown}" + (f" ({why})" if why else "")
    )
