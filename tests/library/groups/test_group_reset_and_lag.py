"""Resetting a group's positions, and its lag."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

from pylogtable import CommitConflictError, InvalidRequestError, Store, Topic
from pylogtable.format.snapshot import Snapshot
from tests.builders import T0, Clock, at, ints, kafka, rows, times


@pytest.fixture(autouse=True)
def no_silent_warning() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def topic(store: Store, clock: Clock) -> Topic:
    """Partition 0: offsets 2 to 9 at 20, 30, … 90 ms; partition 1: 0 to 3; partition 2 empty."""
    topic = store.create_topic("t", partitions=3)
    topic.append(kafka(["k"] * 10, partition=ints(*[0] * 10), timestamp=times(*range(0, 100, 10))))
    topic.append(kafka(["k"] * 4, partition=ints(*[1] * 4), timestamp=times(0, 1, 2, 3)))
    topic.delete_records({0: 2})
    clock.now_ms = T0 + 100
    return topic


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"to": "earliest"}, {0: 2, 1: 0, 2: 0}),
        ({"to": "latest"}, {0: 10, 1: 4, 2: 0}),
        ({"to": "current"}, {0: 5, 1: 4, 2: 0}),
        ({"to": 3, "partitions": [0, 1]}, {0: 3, 1: 3}),
        ({"to": np.int64(3), "partitions": 0}, {0: 3}),
        ({"to": {0: 4, 1: 1}}, {0: 4, 1: 1}),
        ({"to": {0: "-3", "*": "earliest"}}, {0: 7, 1: 0, 2: 0}),
        ({"to": "40ms", "partitions": 0}, {0: 6}),
        ({"to": at(45), "partitions": 0}, {0: 5}),
        ({"to": at(50), "partitions": 0}, {0: 5}),
        ({"to": timedelta(milliseconds=40), "partitions": 0}, {0: 6}),
        ({"to": timedelta(days=400), "partitions": [0, 1]}, {0: 2, 1: 0}),
        ({"shift_by": 2, "partitions": [0]}, {0: 7}),
        ({"shift_by": -3, "partitions": [0]}, {0: 2}),
        ({"shift_by": 0, "partitions": [0]}, {0: 5}),
    ],
    ids=str,
)
@pytest.mark.parametrize("dry_run", [True, False], ids=["dry run", "for real"])
def test_reset_moves_positions(
    topic: Topic, how: dict[str, Any], expected: dict[int, int], dry_run: bool
) -> None:
    group = topic.group("g")
    group.commit({0: 5})
    report = group.reset(**how, dry_run=dry_run)
    assert {row.partition: row.new for row in report} == expected
    assert [row.old for row in report] == [5 if row.partition == 0 else None for row in report]
    assert all(row.note == "" for row in report)
    assert (report.group, report.topic, report.dry_run) == ("g", "t", dry_run)
    after = {0: 5} if dry_run else {0: 5, **expected}
    assert group.positions() == topic.group("g").positions() == after


@pytest.mark.parametrize(
    ("how", "expected", "note"),
    [
        ({"to": 0, "partitions": 0}, 2, r"0 is outside of \[2, 10\]"),
        ({"to": 11, "partitions": 0}, 10, r"11 is outside of \[2, 10\]"),
        ({"to": {0: 99}}, 10, "99 is outside"),
        ({"to": {0: -1}}, 2, "-1 is outside"),
        ({"to": -1, "partitions": 0}, 2, "-1 is outside"),
        ({"shift_by": -4, "partitions": 0}, 2, "1 is outside"),
        ({"shift_by": 6, "partitions": 0}, 10, "11 is outside"),
        ({"to": at(91), "partitions": 0}, 10, "there is no record at or after this time"),
        ({"to": timedelta(0), "partitions": 0}, 10, "there is no record at or after"),
        ({"to": at(0), "partitions": 2}, 0, "there is no record at or after"),
    ],
    ids=str,
)
def test_reset_outside_the_log_is_clamped_with_a_warning(
    topic: Topic, how: dict[str, Any], expected: int, note: str
) -> None:
    group = topic.group("g")
    group.commit({0: 5})
    for dry_run in (True, False):
        with pytest.warns(UserWarning, match=note):
            (row,) = group.reset(**how, dry_run=dry_run)
        assert row.new == expected
        assert row.note
    assert group.positions()[row.partition] == expected


def test_reset_to_current_clamps_an_expired_position_to_the_log_start(topic: Topic) -> None:
    group = topic.group("g")
    group.commit({0: 1})
    with pytest.warns(UserWarning, match="1 is outside"):
        (row,) = group.reset("current", partitions=0)
    assert (row.old, row.new) == (1, 2)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({}, "either `to` or `shift_by`"),
        ({"to": "earliest", "shift_by": 1}, "either `to` or `shift_by`"),
        ({"shift_by": 1}, "partition 1 has no position in group 'g' to shift by 1"),
        ({"shift_by": 1.5, "partitions": 0}, "shift_by=1.5 is not"),
        ({"shift_by": True, "partitions": 0}, "shift_by=True is not"),
        ({"to": "beginning"}, "'beginning' is not a position"),
        ({"to": True}, "True is not a position"),
        ({"to": datetime(2023, 1, 1)}, "no time zone"),
        ({"to": timedelta(seconds=-1)}, "is negative"),
        ({"to": {3: 1}}, "there is no partition 3"),
        ({"to": {0: None}}, "None is not a position"),
        ({"to": {0: 1}, "partitions": 0}, "names the partitions"),
        ({"to": "latest", "partitions": 7}, "there is no partition 7"),
    ],
    ids=str,
)
def test_invalid_reset_is_refused(topic: Topic, how: dict[str, Any], complaint: str) -> None:
    group = topic.group("g")
    group.commit({0: 5})
    with pytest.raises(InvalidRequestError, match=complaint):
        group.reset(**how)
    assert group.positions() == {0: 5}


def test_reset_creates_a_missing_group(topic: Topic) -> None:
    topic.group("new").reset("earliest")
    assert topic.groups() == ["new"]


def test_reset_fences_earlier_readers(topic: Topic) -> None:
    reader, admin = topic.group("g"), topic.group("g")
    reader.commit({0: 5})
    admin.reset("earliest")
    with pytest.raises(CommitConflictError):
        reader.commit({0: 6})


# --- lag -----------------------------------------------------------------------------------------


def test_lag_in_records_bytes_and_seconds(topic: Topic, clock: Clock) -> None:
    group = topic.group("g")
    group.commit({0: 8, 1: 4, 2: 0})
    lag = group.lag()
    assert (lag.records, lag.seconds, lag.without_position) == (2, lag[0].seconds, ())
    assert dict(lag)[0].position == 8
    assert (lag[0].end_offset, lag[0].records) == (10, 2)
    assert lag[0].seconds == pytest.approx(0.020)  # the record at 80 ms, and it is 100 ms
    size = topic.segments()["size_bytes"][0].as_py()
    assert lag[0].bytes == pytest.approx(size * 2 / 10, abs=1)
    assert (lag[2].records, lag[2].bytes, lag[2].seconds) == (0, 0, 0.0)
    assert len(lag) == 3
    clock.tick(1000)
    assert group.lag().seconds == pytest.approx(1.020)
    table = lag.to_table()
    assert table["records"].to_pylist() == [2, 0, 0]
    assert table["position"].to_pylist() == [8, 4, 0]


@pytest.mark.parametrize("state", ["never", "deleted", "partly"])
def test_everything_is_unread_where_there_is_no_position(
    topic: Topic, clock: Clock, state: str
) -> None:
    """An alert on lag must not be green because nobody has committed yet."""
    group = topic.group("g")
    if state != "never":
        group.commit({0: 8})
    if state == "deleted":
        group.delete()
    lag = group.lag()
    assert (lag[1].position, lag[1].end_offset, lag[1].records) == (None, 4, 4)
    assert lag[1].bytes > 0
    first = topic.read(partition=1, columns=["timestamp"]).read_all()["timestamp"][0]
    assert lag[1].seconds == pytest.approx(clock() / 1000 - first.value / 1e6)
    assert (lag[2].position, lag[2].records) == (None, 0)
    read = 8 - topic.start_offsets()[0] if state == "partly" else 0
    assert lag.records == topic.count() - read
    assert lag.seconds >= lag[1].seconds
    assert lag.without_position == ((1, 2) if state == "partly" else (0, 1, 2))
    assert lag.to_table()["records"].to_pylist()[1] == 4
    assert "have no committed position" in lag._repr_html_()


def test_lag_looks_at_each_partition_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at all of them for each: there may be thousands."""
    topic = store.create_topic("many", partitions=50)
    topic.append(kafka(["k"] * 50, partition=ints(*range(50))))
    group = topic.group("g")
    group.commit(dict.fromkeys(range(50), 0))
    asked = 0
    for name in ("start_offsets", "end_offsets"):
        right = getattr(Snapshot, name).fget

        def counted(snapshot: Snapshot, right: Any = right) -> Any:
            nonlocal asked
            asked += 1
            return right(snapshot)

        monkeypatch.setattr(Snapshot, name, property(counted))
    assert group.lag().records == 50
    assert 0 < asked < 10


def test_removed_records_are_not_lag(topic: Topic) -> None:
    group = topic.group("g")
    group.commit({0: 0, 1: 99})
    lag = group.lag()
    assert (lag[0].position, lag[0].records) == (0, 8)  # the log starts at 2
    assert (lag[1].position, lag[1].records, lag[1].seconds) == (99, 0, 0.0)


def test_record_from_the_future_gives_no_negative_lag(topic: Topic) -> None:
    topic.append(kafka(["k"], partition=ints(2), timestamp=times(10_000)))
    group = topic.group("g")
    group.commit({2: 0})
    assert (group.lag()[2].records, group.lag()[2].seconds) == (1, 0.0)


def test_holes_of_a_compacted_topic_are_not_lag(store: Store, clock: Clock) -> None:
    topic = store.create_topic("c", config={"cleanup.policy": "compact"})
    keys = [str(n % 7) if n % 3 else f"own-{n}" for n in range(60)]
    topic.append(kafka(keys, timestamp=times(*range(60))))
    clock.tick(1000)
    topic.compact(force=True)
    topic.append(kafka(["0", "1"], timestamp=times(2000, 2001)))
    clock.tick(5000)
    group = topic.group("g")
    there = rows(topic.read(), "offset", "timestamp")
    assert len(there) < 45
    for position in range(63):
        group.positions()
        group.commit({0: position})
        unread = [(offset, moment) for offset, moment in there if offset >= position]
        lag = group.lag()[0]
        assert lag.records == len(unread)
        waited = (at(0) + timedelta(milliseconds=clock() - T0) - unread[0][1]) if unread else None
        assert lag.seconds == pytest.approx(waited.total_seconds() if waited else 0.0)


def test_description_has_kafkas_columns(topic: Topic, clock: Clock) -> None:
    group = topic.group("g")
    group.commit({0: 8}, metadata="m")
    description = group.describe()
    assert len(description) == 3
    first = next(iter(description))
    assert first[:6] == ("g", "t", 0, 8, 10, 2)
    assert first.committed_at == datetime.fromtimestamp(clock() / 1000, timezone.utc)
    table = description.to_table()
    assert table["current_offset"].to_pylist() == [8, None, None]
    assert table["log_end_offset"].to_pylist() == [10, 4, 0]
    assert table["lag"].to_pylist() == [2, 4, 0]
    assert "2 partitions have no committed position" in description._repr_html_()
    assert table["metadata"].to_pylist() == ["m", None, None]
    assert table["member"].to_pylist() == [None] * 3
