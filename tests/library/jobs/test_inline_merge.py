"""Records in commits become files: always by a merge, and by `maintain` when they are worth it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable import Store, Topic
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from tests.builders import data_files, ints, kafka, limited, rows

ON = {"inline.max.bytes": 16384}


def inline_of(topic: Topic) -> int:
    return topic.describe().inline_segments


def trickle(topic: Topic, appends: int, first: int = 0) -> None:
    for number in range(first, first + appends):
        topic.append(kafka([f"{number}", f"{number}"], partition=ints(0, 1)))


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", 2, config=ON)


def test_a_merge_makes_one_file_of_all_neighbours(topic: Topic, objects: MemoryStore) -> None:
    trickle(topic, 5)
    before = rows(topic.read())
    assert data_files(objects) == []
    report = topic.merge()
    assert (report.segments_in, report.segments_out, report.records_removed) == (10, 2, 0)
    assert len(data_files(objects)) == 2
    assert rows(topic.read()) == before
    assert inline_of(topic) == 0
    assert topic.verify(data=True)
    assert topic.merge().units == 0


def test_a_merge_takes_a_single_one_too(topic: Topic, objects: MemoryStore) -> None:
    trickle(topic, 1)
    assert topic.merge().segments_in == 2
    assert (inline_of(topic), len(data_files(objects))) == (0, 2)
    # Small files and records in commits become one file.
    trickle(topic, 1, first=1)
    assert topic.merge().segments_out == 2
    assert topic.segments().num_rows == 2
    assert topic.verify(data=True)


def test_a_merge_drops_what_is_below_the_log_start(topic: Topic) -> None:
    topic.append(kafka(["a", "b", "c"], partition=ints(0, 0, 0)))
    topic.delete_records({0: 2})
    assert topic.merge().records_removed == 2
    assert rows(topic.read(), "offset", "key") == [(2, b"c")]


def test_maintain_waits_until_there_are_many(topic: Topic, objects: MemoryStore) -> None:
    topic = limited(topic, worth_segments=12)
    trickle(topic, 5)
    for dry_run in (True, False):
        planned = topic.maintain(dry_run=dry_run).merge
        assert planned is not None
        assert (planned.units, planned.segments_in) == (0, 0)
    assert inline_of(topic) == 10
    trickle(topic, 1, first=5)
    planned = topic.maintain(dry_run=True).merge
    assert planned is not None
    assert (planned.units, planned.segments_in, planned.records_in) == (2, 12, 12)
    assert inline_of(topic) == 12
    topic.maintain()
    assert (inline_of(topic), len(data_files(objects))) == (0, 2)
    assert topic.verify(data=True)


def test_maintain_waits_until_a_partition_has_many_bytes(topic: Topic) -> None:
    trickle(topic, 3)
    topic.append(
        kafka([f"large {number:0100d}" for number in range(50)], partition=ints(*[1] * 50))
    )
    sizes = dict.fromkeys((0, 1), 0)
    for number, size in rows(topic.segments(), "partition", "size_bytes"):
        sizes[number] += size
    assert sizes[0] < sizes[1]
    topic = limited(topic, worth_bytes=sizes[1])
    report = topic.maintain().merge
    assert report is not None
    assert report.partitions == (1,)
    assert inline_of(topic) == 3


def test_files_beside_records_in_commits_are_merged_without_them(topic: Topic) -> None:
    topic.alter(config={"inline.max.bytes": 0})
    trickle(topic, 3)
    topic.alter(config=ON)
    trickle(topic, 2, first=3)
    report = topic.maintain().merge
    assert report is not None
    assert (report.segments_in, report.segments_out) == (6, 2)
    assert inline_of(topic) == 4
    assert rows(topic.read(), "offset") == [*range(5)] * 2


def test_the_bounds_are_those_of_the_advice() -> None:
    """format_spec/advice.md and the docstrings name them."""
    assert (Limits().worth_bytes, Limits().worth_segments) == (1 << 20, 256)


def test_describe_counts_what_is_in_commits(topic: Topic) -> None:
    assert "in commits" not in topic.describe()._repr_html_()
    trickle(topic, 3)
    found = topic.describe()
    assert (found.inline_segments, found.inline_records) == (6, 6)
    assert "6 records in 6 segments" in found._repr_html_()
    topic.append(pa.table({"key": pa.array([b"k"]), "value": pa.array([b"v" * 10])}))
    assert topic.describe().inline_records == 7
