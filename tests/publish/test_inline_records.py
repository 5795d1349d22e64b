"""Records in commits: published tables show them by files that the topic gets as well."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import Topic
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, make_store
from tests.publish.plain_delta import actions, check_table
from tests.publish.plain_iceberg import expected_rows, open_table, rows

ON = {"inline.max.bytes": 16384}
SCHEMA = {"id": pa.int64(), "name": pa.string()}


@pytest.fixture
def topic(objects: MemoryStore, clock: Clock) -> Topic:
    return make_store(objects, clock).create_topic("t", 2, SCHEMA, "id", config=ON)


def trickle(topic: Topic, appends: int) -> None:
    for _ in range(appends):
        topic.append(pa.table({"id": list(range(8)), "name": [str(n) for n in range(8)]}))


def inline_of(topic: Topic) -> int:
    return topic.describe().inline_segments


def test_a_publication_adds_one_file_for_all_small_appends(
    topic: Topic, objects: MemoryStore
) -> None:
    trickle(topic, 5)
    assert inline_of(topic) == 10
    (table,) = topic.publish().tables
    assert (table.steps, table.files_added, table.segments_sealed) == (1, 2, 10)
    assert inline_of(topic) == 0
    trickle(topic, 3)
    (table,) = topic.publish().tables
    assert (table.steps, table.files_added, table.files_removed) == (1, 2, 0)
    assert table.segments_sealed == 6
    first, second = check_table(topic, objects.below("t"))
    for entry in (first, second):
        assert {add["dataChange"] for add in actions(entry, "add")} == {True}
        assert not any("@" in add["path"] for add in actions(entry, "add"))
    # The topic has got the same files since: no file changes.
    (table,) = topic.publish().tables
    assert (table.files_added, table.files_removed, table.segments_sealed) == (0, 0, 0)
    assert topic.publish().tables[0].steps == 0
    assert topic.verify(data=True)


def test_a_second_format_uses_the_files_of_the_first(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t", 2, SCHEMA, "id", config=ON)
    trickle(topic, 4)
    delta, iceberg = topic.publish(["delta", "iceberg"]).tables
    assert (delta.segments_sealed, iceberg.segments_sealed) == (8, 0)
    assert (delta.files_added, iceberg.files_added) == (2, 2)
    trickle(topic, 2)
    (table,) = topic.publish(["iceberg"]).tables
    assert (table.files_added, table.files_removed, table.segments_sealed) == (2, 0, 4)
    schema, expected = expected_rows(topic, topic.version)
    assert rows(open_table(tmp_path / "t").scan().to_arrow(), schema) == expected


def test_versions_that_a_stream_has_to_see_in_between_are_shown(
    topic: Topic, objects: MemoryStore
) -> None:
    trickle(topic, 2)
    topic.publish()
    trickle(topic, 2)
    topic.delete_records({0: 3, 1: 1})
    trickle(topic, 1)
    (table,) = topic.publish().tables
    assert table.steps == 3
    assert len(check_table(topic, objects.below("t"))) == 4
    assert inline_of(topic) == 0


def test_records_that_a_merge_is_not_worth_are_published_by_maintain(topic: Topic) -> None:
    topic.alter(config={"publish.formats": "delta"})
    trickle(topic, 2)
    report = topic.maintain()
    assert report.merge is not None
    assert report.publication is not None
    assert report.merge.units == 0
    assert report.publication.tables[0].segments_sealed == 4
    assert topic.describe().published[0].lag_records == 0


def test_a_copy_of_several_is_made_again_if_one_of_them_changes(
    topic: Topic, objects: MemoryStore
) -> None:
    """The table has to show the version before the erase, by a copy that the topic never gets: one
    of its segments is another one by now, and the others are still in commits."""
    topic.publish()
    for first in (0, 100, 200):
        topic.append(pa.table({"id": list(range(first, first + 8)), "name": ["x"] * 8}))
    topic.erase(keys=[103])
    assert inline_of(topic) == 5
    (table,) = topic.publish().tables
    assert table.steps == 2
    assert len(check_table(topic, objects.below("t"))) == 3
    assert inline_of(topic) == 0
