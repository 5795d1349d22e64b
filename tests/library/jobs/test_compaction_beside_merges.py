"""A compaction keeps its work when segments are merged while it runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pylogtable import RewriteReport, Topic
from pylogtable.engine import Compaction, Rewritten, Worker, run_job
from pylogtable.storage.memory import MemoryStore
from tests.builders import Clock, data_files, ints, kafka, make_store, rows
from tests.stores import CountingStore, FaultyStore

pytestmark = pytest.mark.records_in("commits", "files")

SEGMENT_BYTES = 5_000


class Meddler:
    """Runs `action` before every request of a topic that it opens, but not of the action itself."""

    def __init__(self, inner: MemoryStore, clock: Clock, *, only_data: bool = False) -> None:
        self._inner, self._clock = inner, clock
        self._only_data = only_data
        self.action: Callable[[], object] | None = None
        self.times = 0

    def topic(self) -> Topic:
        return make_store(FaultyStore(self._inner, self._before), self._clock).topic("t")

    def _before(self, verb: str, key: str) -> None:
        if self._only_data and "partition=" not in key:
            return
        action, self.action = self.action, None
        if action is not None:
            self.times += 1
            action()
            self.action = action


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def topic(inner: MemoryStore, clock: Clock) -> Topic:
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": -1,
        "segment.bytes": SEGMENT_BYTES,
    }
    topic = make_store(inner, clock).create_topic("t", partitions=2, config=config)
    for number in range(6):
        for partition in (0, 1):
            add(topic, ["a", "b", f"own-{number}"], partition, number)
    return topic


def add(topic: Topic, keys: list[str], partition: int, number: int = 0) -> None:
    values = [f"{number}"] * len(keys)
    topic.append(kafka(keys, values, partition=ints(*[partition] * len(keys))))


def newest(topic: Topic) -> dict[Any, Any]:
    """Offset and value of each key's newest record, by partition and key."""
    found = topic.read().read_all().to_pylist()
    return {(row["partition"], row["key"]): (row["offset"], row["value"]) for row in found}


def compact(meddler: Meddler, action: Callable[[], object]) -> RewriteReport:
    """Compact, with the action before every request since the units are planned."""

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        meddler.action = action
        return [worker(unit) for unit in units]

    return run_job(meddler.topic(), Compaction(force=True), run_units)


def test_a_merge_after_every_step_lets_compaction_finish(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    before = newest(topic)
    merges: list[RewriteReport] = []
    meddler = Meddler(inner, clock)
    report = compact(meddler, lambda: merges.append(topic.merge()))
    assert meddler.times > 15
    assert sum(merge.units for merge in merges) >= 2
    assert (report.units, report.skipped) == (2, 0)
    assert report.records_removed == 2 * 10
    assert newest(topic) == before
    assert topic.count() == len(before)
    assert topic.verify(data=True)
    assert [p.clean_end for p in topic.at().snapshot.partitions] == [18, 18]


def test_appends_and_merges_after_every_step_let_compaction_finish(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    """Each merge joins new records to what the compaction covers, until the segment is too large to
    be merged again. (With an append before every look at the log, nobody would see its end.)"""
    added = 0

    def append_and_merge() -> None:
        nonlocal added
        added += 1
        large = random.Random(added).randbytes(300)  # does not compress
        topic.append(kafka(["a", f"new-{added}"], [large] * 2, partition=ints(0, 0)))
        topic.append(kafka(["b"], [large], partition=ints(1)))
        topic.merge()
        assert added < 100

    report = compact(Meddler(inner, clock, only_data=True), append_and_merge)
    assert added > 10
    assert (report.units, report.skipped) == (2, 0)
    assert report.records_removed == 2 * 10
    keys = {key for _, key in newest(topic)}
    assert keys == {
        *(b"a", b"b"),
        *(f"own-{n}".encode() for n in range(6)),
        *(f"new-{n}".encode() for n in range(1, added + 1)),
    }
    assert topic.count() == 2 * 8 + 2 * added + added
    assert topic.verify(data=True)
    assert topic.compact(force=True).records_removed > 0
    assert topic.verify(data=True)


def test_merged_segments_are_not_read_again_for_their_keys(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    """The survivors stay. Only what is outside of the rewritten ranges is copied."""
    topic.alter(config={"segment.bytes": None})  # a merge leaves one segment in each partition
    add(topic, ["only-1", "only-2"], 0)
    add(topic, ["a"], 0)
    counting = CountingStore(inner)
    other = make_store(counting, clock).topic("t")
    merged_paths: list[str] = []

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        topic.merge()
        merged_paths.extend(topic.segments()["path"].to_pylist())
        counting.reset()
        return done

    report = run_job(other, Compaction(force=True), run_units)
    assert (report.units, report.skipped) == (2, 0)
    # Of each partition, the one merged segment that reaches beyond what was rewritten.
    assert len(counting.opened) == 2
    assert {path.removeprefix("t/") for path in counting.opened} <= set(merged_paths)
    assert topic.verify(data=True)


def test_tombstones_get_their_horizon_in_merged_segments_too(
    inner: MemoryStore, clock: Clock
) -> None:
    config = {"cleanup.policy": "compact", "delete.retention.ms": 1000}
    topic = make_store(inner, clock).create_topic("t", config=config)
    topic.append(kafka(["x", "y"]))
    topic.append(kafka(["gone"], [None]))
    topic.append(kafka(["lost"], [None]))

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        topic.append(kafka(["late"], [None]))
        topic.merge()
        return done

    report = run_job(topic, Compaction(force=True), run_units)
    assert (report.units, report.skipped) == (1, 0)
    horizons = rows(topic.segments(), "base_offset", "tombstones", "delete_horizon_ms")
    assert horizons == [(0, 2, clock() + 1000), (4, 1, None)]
    assert topic.verify(data=True)
    assert rows(topic.read(), "offset") == [0, 1, 2, 3, 4]


def test_a_segment_that_keeps_its_file_gets_its_horizon_after_a_merge(
    inner: MemoryStore, clock: Clock
) -> None:
    config = {"cleanup.policy": "compact", "delete.retention.ms": 1000}
    topic = make_store(inner, clock).create_topic("t", config=config)
    topic.append(kafka(["x", "y"]))
    topic.append(kafka(["gone"], [None]))
    files: list[str] = []

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        topic.merge()
        files.extend(data_files(inner))
        return done

    report = run_job(topic, Compaction(force=True), run_units)
    assert (report.units, report.skipped) == (1, 0)
    assert rows(topic.segments(), "base_offset", "delete_horizon_ms") == [(0, clock() + 1000)]
    assert data_files(inner) == files
    assert topic.verify(data=True)


def test_work_is_dropped_if_another_compaction_was_faster(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    before = newest(topic)

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        topic.compact(force=True)
        topic.merge()
        return done

    report = run_job(topic, Compaction(force=True), run_units)
    assert (report.units, report.skipped) == (0, 2)
    assert newest(topic) == before


def test_work_is_dropped_if_records_were_deleted(
    topic: Topic, inner: MemoryStore, clock: Clock
) -> None:
    files: list[str] = []

    def run_units(worker: Worker, units: Any) -> list[Rewritten]:
        done = [worker(unit) for unit in units]
        files.extend(path for r in done for path in (s.path for s in r.new_segments))
        topic.delete_records({0: 4})
        topic.merge()
        return done

    report = run_job(topic, Compaction(force=True), run_units)
    assert (report.units, report.skipped) == (1, 1)
    assert topic.start_offsets()[0] == 4
    assert topic.verify(data=True)
    left = data_files(inner)
    assert not [path for path in files if "partition=0/" in path and f"t/{path}" in left]
