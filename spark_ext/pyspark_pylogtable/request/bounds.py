"""The start and end of a read as the options state them: offsets or times, not yet resolved.

The syntax is Kafka's: the words `earliest` and `latest`, -2 and -1 for them in JSON, and JSON by
topic and partition. Two forms are ours: the `"*"` entry, which covers everything that is not named,
and the short form `{"0":23,"*":-2}`, which omits the topic's name if there is only one topic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.json_text import expected, json_object

EARLIEST = -2
LATEST = -1
ANY_TOPIC = "*"
# If several are given for one side, the first of these wins.
BOUND_FORMS = ("Timestamp", "OffsetsByTimestamp", "Offsets")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_LONG_MAX = 2**63 - 1
_LAST_MS = _LONG_MAX // 1000  # no record is later: timestamps are 64-bit microseconds
_OFFSETS_EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_TIMES_EXAMPLE = '{"topicA":{"0":1700000000000,"1":"2023-11-14T22:13:20Z"}}'


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range, as an offset or a time per partition.

    `values` holds offsets (EARLIEST and LATEST among them), or microseconds since the epoch if
    `is_time`. The topic ANY_TOPIC stands for every topic, and the partition None for every
    partition, that has no entry of its own. So a single word or time for the whole read is
    `{ANY_TOPIC: {None: value}}`. `is_short` says that the JSON omitted the topic's name.
    """

    option: str
    is_time: bool
    values: dict[str, dict[int | None, int]]
    is_short: bool = False

    def at(self, topic: str, partition: int) -> int | None:
        """The value for a partition, from its most specific entry; None if no entry covers it."""
        for entries in (self.values.get(topic, {}), self.values.get(ANY_TOPIC, {})):
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


def everywhere(option: str, value: int, is_time: bool = False) -> Bound:
    """The same value for every partition."""
    return Bound(option, is_time, {ANY_TOPIC: {None: value}})


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
    return everywhere(option, parse_time(option, text), is_time=True)


def _times(option: str, text: str) -> Bound:
    def time(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise expected(option, _TIMES_EXAMPLE, text, f"{json.dumps(value)} is not a time")
        return parse_time(option, str(value))

    values, is_short = _by_partition(option, text, _TIMES_EXAMPLE, time)
    return Bound(option, True, values, is_short)


def _offsets(option: str, text: str) -> Bound:
    def offset(value: object) -> int:
        if isinstance(value, str) and value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
        if isinstance(value, int) and not isinstance(value, bool) and -2 <= value <= _LONG_MAX:
            return value
        raise expected(option, _OFFSETS_EXAMPLE, text, f"{json.dumps(value)} is not an offset")

    if text.lower() in _WORDS:
        return everywhere(option, _WORDS[text.lower()])
    values, is_short = _by_partition(option, text, _OFFSETS_EXAMPLE, offset)
    return Bound(option, False, values, is_short)


def parse_time(option: str, text: str) -> int:
    """Microseconds since the epoch, from milliseconds (Kafka's form) or ISO-8601 text.

    ISO text without a time zone is refused: SQL would take it in the session's zone, which Spark
    does not tell a source. Negative numbers are refused because -1 and -2 are offsets.
    """
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= _LONG_MAX:
        return min(int(text), _LAST_MS) * 1000
    try:
        # Python 3.10 does not accept the Z.
        when = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise InvalidRequestError(
            f"{option}: Expected a single long value, got {text!r}. Give milliseconds since the "
            "epoch (0 or more), or ISO-8601 with a zone, such as 2024-05-01T12:00:00Z"
        ) from None
    if when.tzinfo is None:
        raise InvalidRequestError(
            f"{option}: {text!r} names no time zone. Write {when.isoformat()}Z if it is in UTC, or "
            f"add the zone, as in {when.isoformat()}+02:00"
        )
    return (when - EPOCH) // timedelta(microseconds=1)


def _by_partition(
    option: str, text: str, example: str, parse: Callable[[object], int]
) -> tuple[dict[str, dict[int | None, int]], bool]:
    """The values by topic and partition, and whether the topic's name was omitted."""

    def row(entries: Mapping[str, object]) -> dict[int | None, int]:
        for key in entries:
            if not re.fullmatch(r"\*|0|[1-9][0-9]{0,9}", key):
                raise expected(option, example, text, f"{key!r} is neither a partition nor '*'")
        return {None if key == "*" else int(key): parse(value) for key, value in entries.items()}

    content = json_object(option, text, example)
    values: dict[str, dict[int | None, int]] = {}
    for topic, entries in content.items():
        if isinstance(entries, dict):
            values[topic] = row(entries)
    if values and len(values) < len(content):
        raise expected(option, example, text, "some entries are by topic and some are not")
    is_short = bool(content) and not values
    return ({ANY_TOPIC: row(content)} if is_short else values), is_short
