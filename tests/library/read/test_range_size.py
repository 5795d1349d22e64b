"""How many records and bytes a range of offsets has. Holes do not count."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pylogtable import OffsetOutOfRangeError, Topic, View
from pylogtable.format.partition_state import LeafRun
from pylogtable.limits import Limits
from pylogtable.log.manifest import Manifest
from pylogtable.runtime import Runtime
from pylogtable.storage.memory import MemoryStore
from tests.builders import IN_FILES, Clock, kafka, make_store, rows
from tests.stores import CountingStore

Fold = Callable[[MemoryStore], View]


def compacted(objects: MemoryStore, commits: int = 5, size: int = 40) -> Topic:
    """One partition; key n % 7 and unique keys in turn, so that compaction leaves holes."""
    clock = Clock()
    topic = make_store(objects, clock).create_topic("t", config={"cleanup.policy": "compact"})
    for commit in range(commits):
        at = np.arange(commit * size, (commit + 1) * size)
        keys = [str(n % 7) if n % 3 else f"own-{n}" for n in at]
        topic.append(kafka(keys, [b"x" * 20] * size))
        clock.tick()
    topic.compact(force=True)
    for _ in range(3):
        topic.append(kafka([str(n) for n in range(8)], [b"y"] * 8))
    return topic


def offsets_of(topic: Topic) -> list[int]:
    return rows(topic.read(), "offset")


@pytest.mark.parametrize("in_leaves", [False, True], ids=["in the tail", "in leaves"])
def test_range_sizes_and_offset_after_records_agree_with_a_read(in_leaves: bool) -> None:
    objects = MemoryStore()
    topic = compacted(objects)
    view = fold(objects) if in_leaves else topic.at()
    there = np.array(offsets_of(topic))
    end = view.end_offsets[0]
    assert len(there) < end
    for start in range(0, end, 7):
        for stop in range(start, end + 1, 11):
            expected = int(np.sum((there >= start) & (there < stop)))
            assert view.range_sizes({0: (start, stop)})[0].records == expected
            # Two segments at most are cut, and only of these the records are estimated.
            estimate = view.range_sizes({0: (start, stop)}, exact=False)[0].records
            assert abs(estimate - expected) <= min(stop - start, 2 * 40)
        later = there[there >= start]
        for wanted in (0, 1, 2, 5, 30, len(later), len(later) + 1):
            reached = view.offset_after_records(0, start, wanted)
            if wanted == 0:
                assert reached == start
            elif wanted <= len(later):
                assert reached == later[wanted - 1] + 1
            else:
                assert reached == end


def test_range_sizes_of_a_partition_without_holes() -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t", config=IN_FILES)
    for _ in range(20):
        topic.append(kafka([b"k"] * 10, [b"v"] * 10))
    topic.delete_records({0: 15})
    view = fold(objects)
    assert view.range_sizes() == {0: (185, view.range_sizes()[0].bytes)}
    total = sum(view.segments()["size_bytes"].to_pylist())
    assert 0.8 * total < view.range_sizes()[0].bytes < total
    assert view.offset_after_records(0, 15, 100) == 115
    assert view.offset_after_records(0, 100, 1000) == 200
    assert view.offset_after_records(0, 100, 1000, end=150) == 150


def test_bytes_are_split_evenly_over_records() -> None:
    topic = make_store().create_topic("t")
    topic.append(kafka([b"k"] * 10, [b"v"] * 10))
    size = topic.segments()["size_bytes"][0].as_py()
    assert topic.at().range_sizes({0: (0, 10)})[0] == (10, size)
    assert topic.at().range_sizes({0: (5, 10)})[0] == (5, round(size / 2))


@pytest.mark.parametrize("in_leaves", [False, True], ids=["in the tail", "in leaves"])
def test_offset_after_bytes_takes_whole_row_groups_up_to_the_limit(in_leaves: bool) -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t", config=IN_FILES)
    for count in (1, 50, 3, 20):
        topic.append(kafka([b"k"] * count, [b"v" * count] * count))
    view = fold(objects) if in_leaves else topic.at()
    sizes = view.segments()["size_bytes"].to_pylist()
    ends = view.segments()["end_offset"].to_pylist()
    for number in range(4):
        together = sum(sizes[: number + 1])
        assert view.offset_after_bytes(0, 0, together) == ends[number]
        assert view.offset_after_bytes(0, 0, together + 1) == ends[number]
    assert view.offset_after_bytes(0, 0, sum(sizes) * 2, end=60) == 60
    assert view.offset_after_bytes(0, 1, sizes[1] // 2) == 26  # half of the 50 records
    half = (sizes[1] + 1) // 2  # a size may be odd
    assert view.offset_after_bytes(0, 26, half + sizes[2]) == 54
    assert view.offset_after_bytes(0, 26, 0) == 27
    assert view.offset_after_bytes(0, 74, 5) == 74


@pytest.mark.parametrize("in_leaves", [False, True], ids=["in the tail", "in leaves"])
def test_offset_after_bytes_always_advances_over_holes(in_leaves: bool) -> None:
    objects = MemoryStore()
    topic = compacted(objects)
    view = fold(objects) if in_leaves else topic.at()
    end = view.end_offsets[0]
    for size in (0, 100, 1500, 10**9):
        at, steps = 0, 0
        while at < end:
            after = view.offset_after_bytes(0, at, size)
            assert after > at
            at, steps = after, steps + 1
        assert steps == 1 if size == 10**9 else steps > 1


@pytest.mark.parametrize("in_leaves", [False, True], ids=["in the tail", "in leaves"])
def test_an_estimate_is_exact_for_whole_segments_and_reads_no_file(in_leaves: bool) -> None:
    objects = MemoryStore()
    topic = compacted(objects)
    if in_leaves:
        fold(objects)
    counting = CountingStore(objects)
    view = make_store(counting).topic("t").at()
    segments = view.segments()
    ends = segments["end_offset"].to_pylist()
    view.range_sizes()  # the leaves are there
    counting.reset()
    estimates = [view.range_sizes({0: (0, end)}, exact=False)[0] for end in ends]
    cut = view.range_sizes({0: (1, ends[0] - 1)}, exact=False)[0]
    assert counting.counts == {}
    assert estimates == [topic.at().range_sizes({0: (0, end)})[0] for end in ends]
    assert 0 < cut.records < segments["records"][0].as_py()
    assert 0 < cut.bytes < segments["size_bytes"][0].as_py()


def test_range_sizes_of_an_empty_partition() -> None:
    view = make_store().create_topic("t").at()
    assert view.range_sizes() == {0: (0, 0)}
    assert view.offset_after_records(0, 0, 10) == 0


def test_offsets_outside_the_log_are_refused() -> None:
    view = make_store().create_topic("t").at()
    with pytest.raises(OffsetOutOfRangeError):
        view.range_sizes({0: (0, 1)})


def fold(objects: MemoryStore) -> View:
    """Reopens the topic with every entry in a leaf."""
    manifest = Manifest(objects.below("t").with_limits(Limits(tail_max=0)))
    snapshot = manifest.load()
    assert snapshot is not None
    manifest.write_root(snapshot, Runtime().new_id)
    view = make_store(objects).topic("t").at()
    assert all(isinstance(tile, LeafRun) for tile in view.snapshot.partitions[0].tiles)
    return view
