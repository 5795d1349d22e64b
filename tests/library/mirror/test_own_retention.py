"""Copies that keep and remove records by their own settings."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pylogtable.errors import InvalidRequestError
from pylogtable.mirror import removing
from tests.builders import IN_FILES, fill, ints, kafka, rows
from tests.mirrors import Pair, check_has_all, check_sound

OWN = {"retention": "own"}


def test_it_keeps_what_its_source_has_removed() -> None:
    pair = Pair(config={"cleanup.policy": "compact,delete", "inline.max.bytes": 0})
    fill(pair.source)
    pair.mirror(**OWN)
    before = pair.copy.count()
    pair.source.erase(keys=["a"])
    pair.source.compact(force=True)
    pair.source.delete_records({0: 9})
    fill(pair.source, 1)
    report = pair.mirror()
    assert report.records_removed == 0
    assert pair.copy.start_offsets() == {0: 0}
    assert pair.copy.count() == before + 3
    check_has_all(pair.source, pair.copy)


def test_its_own_jobs_remove_records() -> None:
    pair = Pair()
    fill(pair.source)
    pair.mirror(**OWN, config={"cleanup.policy": "compact,delete"})
    pair.copy.compact(force=True)
    pair.copy.erase(keys=["b"])
    pair.copy.delete_records({0: 4})
    fill(pair.source, 1)
    pair.mirror()
    assert rows(pair.copy.read(), "key") == [b"c1", b"c2", b"a", b"c3", b"a", b"b", b"c0"]
    check_sound(pair.copy)


def test_records_that_were_removed_before_they_were_copied_are_an_error() -> None:
    pair = Pair()
    fill(pair.source, 1)
    pair.mirror(**OWN)
    fill(pair.source, 2)
    pair.source.delete_records({0: 7})
    version = pair.copy.version
    with pytest.raises(InvalidRequestError) as caught:
        pair.mirror()
    assert "offsets [3, 7) of partition 0" in str(caught.value)
    assert "allow_gaps=True" in str(caught.value)
    assert pair.copy.version == version
    pair.mirror(allow_gaps=True)
    assert rows(pair.copy.read(), "offset") == [0, 1, 2, 7, 8]
    check_has_all(pair.source, pair.copy)


def test_a_gap_up_to_the_end() -> None:
    pair = Pair()
    fill(pair.source, 1)
    pair.mirror(**OWN)
    fill(pair.source, 1)
    pair.source.delete_records({0: None})
    with pytest.raises(InvalidRequestError, match=r"\[3, 6\) of partition 0"):
        pair.mirror()
    pair.mirror(allow_gaps=True)
    assert pair.copy.end_offsets() == {0: 6}
    assert rows(pair.copy.read(), "offset") == [0, 1, 2]
    check_sound(pair.copy)
    fill(pair.source, 1)
    pair.mirror()
    assert rows(pair.copy.read(), "offset") == [0, 1, 2, 6, 7, 8]


def test_it_has_its_own_settings_and_the_columns_of_its_source() -> None:
    pair = Pair()
    pair.mirror(**OWN, config={"retention.ms": -1})
    pair.source.alter(config={"retention.ms": 1000}, add_columns={"n": pa.int32()}, partitions=2)
    pair.mirror()
    info = pair.copy.at().snapshot.info
    assert info.config == {**IN_FILES, "retention.ms": "-1", "inline.max.bytes": "0"}
    assert info.partitions == 2
    assert "n" in pair.copy.schema.names
    pair.copy.alter(config={"retention.ms": 5})
    pair.source.append(kafka(["a"]))
    pair.mirror()
    assert pair.copy.at().snapshot.info.config["retention.ms"] == "5"


def test_columns_of_the_source_are_not_altered_in_the_copy() -> None:
    pair = Pair()
    pair.mirror(**OWN)
    with pytest.raises(InvalidRequestError, match="decides its partitions and columns"):
        pair.copy.alter(partitions=4)
    with pytest.raises(InvalidRequestError, match="Alter the source"):
        pair.copy.alter(add_columns={"n": pa.int32()}, config={"retention.ms": 5})


def test_a_copy_that_follows_gets_its_own_retention() -> None:
    """Also if there is nothing to copy."""
    pair = Pair()
    fill(pair.source)
    pair.mirror()
    with pytest.raises(InvalidRequestError, match="retention is refused"):
        pair.copy.apply_retention()
    pair.mirror(**OWN)
    pair.copy.delete_records({0: 4})
    pair.copy.alter(config={"retention.ms": 5})
    pair.mirror()
    assert pair.copy.start_offsets() == {0: 4}


def test_a_mirror_that_is_overtaken_by_the_switch_removes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has planned to remove a record while the copy followed [MIR-4]."""
    pair = Pair()
    pair.source.append(kafka(["x", "y", "z"]))
    pair.mirror()
    pair.source.erase(keys=["x"])
    plan = removing.copy_tasks

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(removing, "copy_tasks", plan)
        pair.mirror(**OWN)
        return plan(*args)

    monkeypatch.setattr(removing, "copy_tasks", overtaken)
    report = pair.mirror()
    assert report.records_removed == 0
    assert pair.copy.count() == 3


def test_a_copy_with_its_own_retention_cannot_follow_again() -> None:
    pair = Pair()
    fill(pair.source, 1)
    pair.mirror(**OWN)
    fill(pair.source, 1)
    version = pair.copy.version
    with pytest.raises(InvalidRequestError) as caught:
        pair.mirror(retention="source")
    assert "removes records by its own settings" in str(caught.value)
    assert "retention='own'" in str(caught.value)
    assert pair.copy.version == version


def test_settings_are_for_copies_with_their_own_retention() -> None:
    pair = Pair()
    for options in ({}, {"retention": "source"}):
        with pytest.raises(InvalidRequestError, match=r"`config` \(retention\.ms\) is for copies"):
            pair.mirror(config={"retention.ms": 5}, **options)
    with pytest.raises(InvalidRequestError, match=r"unknown topic config"):
        pair.mirror(config={"retention.mss": 5}, **OWN)
    assert pair.target.topics() == []


def test_settings_of_a_copy_that_is_there() -> None:
    pair = Pair()
    pair.mirror(**OWN, config={"retention.ms": 5})
    pair.mirror(**OWN, config={"retention.ms": "5"})  # as a schedule repeats it
    with pytest.raises(InvalidRequestError) as caught:
        pair.mirror(**OWN, config={"retention.ms": 6})
    assert "retention.ms=5, not 6" in str(caught.value)
    assert "alter" in str(caught.value)


def test_columns_that_do_not_go_with_its_settings() -> None:
    """A compacted topic cannot lose columns: records would become tombstones [META-8]."""
    pair = Pair()
    pair.mirror(**OWN, config={"cleanup.policy": "compact"})
    pair.source.alter(add_columns={"n": pa.int32()})
    fill(pair.source, 1)
    pair.mirror()
    pair.source.alter(drop_columns=["n"])
    with pytest.raises(InvalidRequestError) as caught:
        pair.mirror()
    assert "cleanup.policy compact" in str(caught.value)
    assert "Alter the copy" in str(caught.value)
    pair.copy.alter(config={"cleanup.policy": "delete"})
    pair.mirror()
    check_has_all(pair.source, pair.copy)


def test_gaps_are_all_named_and_reported() -> None:
    pair = Pair(partitions=3)
    pair.mirror(retention="own")
    for number in range(3):
        pair.source.append(kafka(["a", "b"], partition=ints(number, number)))
    pair.source.delete_records({0: None, 2: 1})
    expected = r"\[0, 2\) of partition 0, \[0, 1\) of partition 2"
    with pytest.raises(InvalidRequestError, match=expected):
        pair.mirror()
    report = pair.mirror(allow_gaps=True)
    assert report.gaps == {0: (0, 2), 2: (0, 1)}
    assert "gap 0:[0,2), gap 2:[0,1)" in str(report)
    assert pair.mirror().gaps == {}
