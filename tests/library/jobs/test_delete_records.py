"""`delete_records` moves the log start. Records below are gone at once; offsets continue."""

from __future__ import annotations

import pytest

from pylogtable import OffsetOutOfRangeError
from pylogtable.store import Store
from tests.builders import ints, kafka, limited, rows

pytestmark = pytest.mark.records_in("commits", "files")


@pytest.mark.parametrize("count", [0, 1, 15, 25])
def test_offsets_never_reset_when_everything_is_deleted(store: Store, count: int) -> None:
    topic = store.create_topic("t")
    for _ in range(count):
        topic.append(kafka(["a"]))
    assert topic.delete_records({0: None}) == {0: count}
    assert topic.start_offsets() == topic.end_offsets() == {0: count}
    assert topic.count() == 0
    assert rows(topic.read()) == []
    assert topic.segments().num_rows == 0
    version = topic.version
    assert topic.delete_records({0: None}) == {0: count}
    assert topic.version == version
    assert topic.append(kafka(["a"])).offsets == {0: (count, count + 1)}
    assert store.topic("t").start_offsets() == {0: count}
    assert topic.verify(data=True)


@pytest.mark.parametrize("start", range(11))
def test_log_start_can_cut_a_segment(store: Store, start: int) -> None:
    topic = store.create_topic("t")
    for _ in range(2):
        topic.append(kafka(["a"] * 5))
    assert topic.delete_records({0: start}) == {0: start}
    assert rows(topic.read(), "offset") == list(range(start, 10))
    assert topic.count() == 10 - start
    assert topic.segments().num_rows == (start < 5) + (start < 10)
    if start:
        with pytest.raises(OffsetOutOfRangeError):
            topic.read(start=start - 1)
    assert topic.verify(data=True)


def test_log_start_only_moves_forward(store: Store) -> None:
    topic = store.create_topic("t", partitions=3)
    topic.append(kafka(["a"] * 9, partition=ints(*range(3), *range(3), *range(3))))
    assert topic.delete_records({0: 2, 2: None}) == {0: 2, 2: 3}
    assert topic.delete_records({0: 1, 1: 1}) == {0: 2, 1: 1}
    assert topic.start_offsets() == {0: 2, 1: 1, 2: 3}


def test_earlier_version_still_has_deleted_records(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"] * 4))
    topic.delete_records({0: 3})
    assert rows(topic.read(version=1), "offset") == [0, 1, 2, 3]
    assert topic.count(version=1) == 4
    assert topic.count() == 1


def test_stale_handle_deletes_from_the_newest_version(store: Store) -> None:
    topic, stale = store.create_topic("t"), store.topic("t")
    topic.append(kafka(["a"] * 4))
    assert stale.delete_records({0: None}) == {0: 4}


def test_log_starts_survive_roots_and_leaves(store: Store) -> None:
    store = limited(store, tail_max=10)
    topic = store.create_topic("t")
    for _ in range(300):
        topic.append(kafka(["a", "b"]))
    topic.delete_records({0: 401})
    for _ in range(70):
        topic.append(kafka(["a"]))
    again = store.topic("t")
    assert again.start_offsets() == {0: 401}
    assert again.count() == 199 + 70
    assert rows(again.read(end=404), "offset") == [401, 402, 403]
    assert again.verify()
