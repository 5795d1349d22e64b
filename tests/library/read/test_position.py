"""The grammar of positions, and where they are in a log."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from pylogtable import InvalidRequestError, OffsetOutOfRangeError, Store, Topic
from pylogtable.read.position import (
    EARLIEST,
    LATEST,
    Found,
    Position,
    locate,
    parse_position,
    parse_when,
    resolve,
)
from pylogtable.times import parse_duration
from tests.builders import T0, Clock, at, ints, kafka, times

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
NOON_US = 1_714_564_800_000_000
HOUR = Position("ago", 3_600_000_000)


@pytest.mark.parametrize(
    ("given", "position"),
    [
        ("earliest", EARLIEST),
        (" LATEST ", LATEST),
        (0, Position("offset", 0)),
        (np.int64(7), Position("offset", 7)),
        ("7", Position("offset", 7)),
        ("-7", Position("from_end", 7)),
        (-7, Position("offset", -7)),
        (NOON, Position("time", NOON_US)),
        ("2024-05-01T12:00:00Z", Position("time", NOON_US)),
        ("2024-05-01 14:00:00.1234567+02:00", Position("time", NOON_US + 123_456)),
        ("@1714564800000", Position("time", NOON_US)),
        (timedelta(hours=1), HOUR),
        ("1h", HOUR),
        ("60 m", HOUR),
        ("PT1H", HOUR),
        ("pt60m", HOUR),
        (HOUR, HOUR),
    ],
    ids=str,
)
def test_positions_are_parsed(given: object, position: Position) -> None:
    assert parse_position(given) == position


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "None is not a position"),
        (True, "True is not a position"),
        (1.5, "1.5 is not a position"),
        ("", "'' is not a position"),
        ("- 5", "'- 5' is not a position"),
        ("newest", "'newest' is not a position: give 'earliest'"),
        ("٣", "is not a position"),
        ("1.5", "'1.5' is not a time"),
        ("2024-05-01T12:00:00", "has no time zone; write 2024-05-01T12:00:00Z if it is in UTC"),
        (datetime(2024, 5, 1), "has no time zone"),
        ("1 year", "'1 year' is not a duration"),
        ("P1M", "'P1M' is not a duration"),
        ("-1h", "'-1h' is not a position"),
        (timedelta(seconds=-1), "is negative"),
    ],
    ids=str,
)
def test_everything_else_is_refused(given: object, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_position(given)
    assert message in str(refused.value)


def test_a_time_without_a_zone_may_have_a_default_one() -> None:
    assert parse_position("2024-05-01T12:00", timezone.utc) == Position("time", NOON_US)
    assert parse_position("2024-05-01T14:00+02:00", timezone.utc) == Position("time", NOON_US)


def test_where_only_times_make_sense_digits_are_milliseconds() -> None:
    assert parse_when("1714564800000") == Position("time", NOON_US)
    assert parse_when("1h") == HOUR
    for text in ("-1", "earliest"):
        with pytest.raises(InvalidRequestError, match="is not a time"):
            parse_when(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("2w", timedelta(weeks=2)),
        ("P7D", timedelta(days=7)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("pt30m", timedelta(minutes=30)),
        ("PT0S", timedelta(0)),
    ],
)
def test_durations_are_parsed(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "-PT1H", "PT-1H", "P", "PT", "P1DT", "P1H", "P1M", "PT1H30", f"P{10**12}D", "1"]
)
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="duration"):
        parse_duration(text)


@pytest.fixture
def topic(store: Store, clock: Clock) -> Topic:
    """Partition 0: offsets 2 to 9 at 20, 30, … 90 ms; partition 1 is empty. It is 100 ms."""
    topic = store.create_topic("t", partitions=2)
    topic.append(kafka(["k"] * 10, partition=ints(*[0] * 10), timestamp=times(*range(0, 100, 10))))
    topic.delete_records({0: 2})
    clock.now_ms = T0 + 100
    return topic


@pytest.mark.parametrize(
    ("given", "asked", "nearest"),
    [
        ("earliest", 2, 2),
        ("latest", 10, 10),
        (5, 5, 5),
        (10, 10, 10),
        (1, 1, 2),
        (11, 11, 10),
        (-1, -1, 2),
        ("-3", 7, 7),
        ("-0", 10, 10),
        ("-99", 2, 2),
        (at(45), 5, 5),
        (at(0), 2, 2),
        (at(91), None, 10),
        ("45ms", 6, 6),
        ("99999d", 2, 2),
        ("0ms", None, 10),
    ],
    ids=str,
)
def test_where_a_position_is(topic: Topic, given: Any, asked: int | None, nearest: int) -> None:
    """Only a number can be outside of the log."""
    view, positions = topic.at(), {0: parse_position(given)}
    found = locate(view, positions)[0]
    assert found == Found(asked, 2, 10)
    assert found.nearest == nearest
    if asked in (nearest, None):
        assert resolve(view, positions) == {0: nearest}
        assert topic.at().ranges(0, start=given) == {0: (nearest, 10)}
    else:
        for call in (lambda: resolve(view, positions), lambda: topic.read(0, start=given)):
            with pytest.raises(OffsetOutOfRangeError, match=rf"offset {asked} .*\[2, 10\)"):
                call()


def test_each_partition_has_its_own_position(topic: Topic) -> None:
    wanted = {0: HOUR, 1: HOUR}
    assert locate(topic.at(), wanted) == {0: Found(2, 2, 10), 1: Found(None, 0, 0)}
    assert topic.at().ranges(start={0: "-2", "*": timedelta(0)}) == {0: (8, 10), 1: (0, 0)}


@pytest.mark.parametrize("key", [True, 1.0, None])
def test_only_whole_numbers_are_partitions(store: Store, key: object) -> None:
    topic = store.create_topic("keys", partitions=2)
    with pytest.raises(InvalidRequestError, match="there is no partition"):
        topic.read(start={key: 0})  # type: ignore[dict-item]


@pytest.mark.parametrize("far", [timedelta.max, timedelta(days=800_000, microseconds=1)])
def test_durations_before_the_calendar_are_the_beginning(store: Store, far: timedelta) -> None:
    topic = store.create_topic("far")
    topic.append(kafka(["a"]))
    assert topic.read(start=far).read_all().num_rows == 1


def test_a_number_of_too_many_digits_is_refused(store: Store) -> None:
    topic = store.create_topic("digits")
    with pytest.raises(InvalidRequestError):
        topic.read(start="9" * 5000)
