"""The start and end of a read as the options state them: offsets or times, not yet resolved.

The syntax is Kafka's: the words `earliest` and `latest`, -2 and -1 for them in JSON, and JSON by
topic and partition. Two forms are ours: the `"*"` entry, which covers everything that is not named,
and the short form `{"0":23,"*":-2}`, which omits the topic's name if there is only one topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pylogtable import InvalidRequestError
from pylogtable.engine import EARLIEST, LATEST, Position, parse_position, parse_when
from pyspark_pylogtable.request.json_text import expected, json_object

ANY_TOPIC = "*"
# If several are given for one side, the first of these wins.
BOUND_FORMS = ("Timestamp", "OffsetsByTimestamp", "Offsets")

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_NUMBERS = {-2: EARLIEST, -1: LATEST}
_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":"2023-11-14T22:13:20Z"}}'


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range: a position for each partition.

    The topic ANY_TOPIC stands for every topic, and the partition None for every partition, that has
    no entry of its own. So a single word or time for the whole read is `{ANY_TOPIC: {None: …}}`.
    `is_short` says that the JSON omitted the topic's name.
    """

    option: str
    values: dict[str, dict[int | None, Position]]
    is_short: bool = False

    def at(self, topic: str, partition: int) -> Position | None:
        """The position of a partition, from its most specific entry; None if no entry covers it."""
        for name in (topic, ANY_TOPIC):
            entries = self.values.get(name, {})
            for key in (partition, None):
                if key in entries:
                    return entries[key]
        return None

    def entries(self) -> Iterator[tuple[str, int | None]]:
        """Topic and partition of every entry."""
        return ((topic, partition) for topic, row in self.values.items() for partition in row)

    @property
    def names_all(self) -> bool:
        """True if every entry names its partition, so that there is no `"*"`."""
        topics_named = self.is_short or ANY_TOPIC not in self.values
        return topics_named and all(partition is not None for _, partition in self.entries())


def everywhere(option: str, position: Position) -> Bound:
    """The same position for every partition."""
    return Bound(option, {ANY_TOPIC: {None: position}})


def parse_bound(given: Mapping[str, str], side: str) -> Bound | None:
    """The start or the end; `side` is "starting" or "ending".

    A single time wins over times by partition, and those win over offsets. All of the given options
    are checked.
    """
    parsers = dict(zip(BOUND_FORMS, (_single_time, _times, _offsets), strict=True))
    found = [
        parse(name, given[name].strip())
        for form, parse in parsers.items()
        if (name := f"{side}{form}") in given
    ]
    return found[0] if found else None


def _single_time(option: str, text: str) -> Bound:
    return everywhere(option, _time(option, text))


def _times(option: str, text: str) -> Bound:
    def time(value: object) -> Position:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise expected(option, _TIMES_EXAMPLE, text, f"{json.dumps(value)} is not a time")
        return _time(option, str(value))

    return _by_partition(option, text, _TIMES_EXAMPLE, time)


def _offsets(option: str, text: str) -> Bound:
    def offset(value: object) -> Position:
        if isinstance(value, str) and value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
        if isinstance(value, int) and not isinstance(value, bool) and -2 <= value < 2**63:
            return _NUMBERS.get(value) or parse_position(value)
        raise expected(option, _OFFSETS_EXAMPLE, text, f"{json.dumps(value)} is not an offset")

    if text.lower() in _WORDS:
        return everywhere(option, _WORDS[text.lower()])
    return _by_partition(option, text, _OFFSETS_EXAMPLE, offset)


def _time(option: str, text: str) -> Position:
    """Milliseconds (Kafka's form), ISO 8601 with a zone, or a duration ago. Without a zone it is
    refused: SQL would take it in the session's zone, which Spark does not tell a source."""
    with naming(option, text):
        return parse_when(text)


@contextmanager
def naming(option: str, text: str) -> Iterator[None]:
    """Errors about a time name its option, in the Kafka connector's words."""
    try:
        yield
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{option}: Expected a single long value, got {text!r}: {error}"
        ) from None


def _by_partition(
    option: str, text: str, example: str, parse: Callable[[object], Position]
) -> Bound:
    def row(entries: Mapping[str, object]) -> dict[int | None, Position]:
        for key in entries:
            if not re.fullmatch(r"\*|0|[1-9][0-9]{0,9}", key):
                raise expected(option, example, text, f"{key!r} is neither a partition nor '*'")
        return {None if key == "*" else int(key): parse(value) for key, value in entries.items()}

    content = json_object(option, text, example)
    values: dict[str, dict[int | None, Position]] = {}
    for topic, entries in content.items():
        if isinstance(entries, dict):
            values[topic] = row(entries)
    if values and len(values) < len(content):
        raise expected(option, example, text, "some entries are by topic and some are not")
    is_short = bool(content) and not values
    return Bound(option, {ANY_TOPIC: row(content)} if is_short else values, is_short)
