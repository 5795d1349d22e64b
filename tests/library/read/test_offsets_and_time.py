"""Start and end offsets, counts, and the first offset at or after a time."""

from __future__ import annotations

import random

import pytest

from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import T0, at, ints, kafka, limited, make_holes, make_store, rows, times
from tests.stores import CountingStore

pytestmark = pytest.mark.records_in("commits", "files")


def test_first_offset_at_or_after_a_time_if_timestamps_go_back(store: Store) -> None:
    """Timestamps t, t+1, t. An empty log has no match."""
    topic = store.create_topic("t", partitions=2)
    assert topic.offsets_for_time(at(0)) == {0: None, 1: None}
    topic.append(kafka(["a"] * 3, timestamp=times(0, 1, 0), partition=ints(0, 0, 0)))
    assert topic.offsets_for_time(at(1)) == {0: 1, 1: None}
    assert topic.offsets_for_time(at(0)) == {0: 0, 1: None}
    assert topic.offsets_for_time(at(2)) == {0: None, 1: None}
    assert topic.start_offsets() == {0: 0, 1: 0}
    assert topic.end_offsets() == {0: 3, 1: 0}


def test_time_can_be_milliseconds_or_datetime_with_microseconds(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"] * 2, timestamp=times(0.001, 1.5)))
    assert topic.offsets_for_time(T0) == topic.offsets_for_time(at(0)) == {0: 0}
    assert topic.offsets_for_time(at(0.002)) == {0: 1}
    assert topic.offsets_for_time(T0 + 1) == {0: 1}
    assert topic.offsets_for_time(T0 + 2) == {0: None}


def test_match_below_the_log_start_is_skipped(store: Store) -> None:
    """Kafka returns null here; we search the next segment."""
    topic = store.create_topic("t")
    topic.append(kafka(["a"] * 3, timestamp=times(50, 1, 1)))
    topic.append(kafka(["a"] * 2, timestamp=times(2, 60)))
    assert topic.offsets_for_time(at(40)) == {0: 0}
    topic.delete_records({0: 1})
    assert topic.offsets_for_time(at(40)) == {0: 4}
    assert topic.offsets_for_time(at(0)) == {0: 1}


@pytest.mark.parametrize("group_rows", [2, 1000])
def test_time_lookups_agree_with_a_scan(store: Store, group_rows: int) -> None:
    store = limited(store, row_group_rows=group_rows)
    chance = random.Random(3)
    topic = store.create_topic("t")
    stamps: list[int] = []
    for _ in range(6):
        batch = [chance.randrange(100) for _ in range(9)]
        stamps += batch
        topic.append(kafka(["a"] * 9, timestamp=times(*batch)))
    topic.delete_records({0: 13})
    for when in range(-1, 102):
        expected = next((n for n in range(13, 54) if stamps[n] >= when), None)
        assert topic.offsets_for_time(at(when)) == {0: expected}


def test_time_lookup_opens_one_file_and_reads_one_row_group() -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured, limits=Limits(row_group_rows=20_000)).create_topic("t")
    chance = random.Random(1)
    for part in range(3):
        stamps = sorted(chance.randrange(10**6) + part * 10**6 for _ in range(80_000))
        topic.append(kafka([b"k"] * 80_000, [b""] * 80_000, timestamp=times(*stamps)))
    measured.reset()
    found = topic.offsets_for_time(at(1_500_000))[0]
    assert found is not None
    assert 110_000 < found < 130_000
    assert len(measured.opened) == 1
    (read,) = measured.bytes_read.values()
    assert read < rows(topic.segments(), "size_bytes")[1]
    measured.reset()
    assert topic.offsets_for_time(at(10**8)) == {0: None}
    assert measured.opened == []


def test_offsets_and_times_of_an_older_version(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"], timestamp=times(5)))
    topic.append(kafka(["a"], timestamp=times(9)))
    assert topic.offsets_for_time(at(6), version=1) == {0: None}
    assert topic.offsets_for_time(at(6)) == {0: 1}


@pytest.mark.parametrize("dense", [True, False])
def test_count_opens_a_file_only_if_the_log_start_cuts_a_compacted_segment(dense: bool) -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured).create_topic("t")
    topic.append(kafka(["a"] * 20))
    kept = list(range(20)) if dense else [1, 4, 9, 16]
    if not dense:
        make_holes(topic, kept, row_group_rows=2)
    measured.reset()
    assert topic.count() == len(kept)
    assert measured.opened == []
    for start in (3, 4, 5, 9, 10, 17, 20):
        topic.delete_records({0: start})
        measured.reset()
        assert topic.count() == len([n for n in kept if n >= start])
        assert bool(measured.opened) == (not dense and start < 20)
        assert topic.verify(data=True)
