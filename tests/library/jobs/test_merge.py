"""Merging: the same records at the same offsets in fewer, sealed files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import Store, Topic
from pylogtable.engine import Merge, Rewritten, Worker, plan_append, run_job
from pylogtable.storage.memory import MemoryStore
from tests.builders import data_files, ints, kafka, limited

pytestmark = pytest.mark.records_in("commits", "files")


def all_rows(topic: Topic) -> list[dict[str, Any]]:
    return topic.read(columns=[*topic.schema.names, "timestampType"]).read_all().to_pylist()


def test_small_segments_become_one(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    for number in range(10):
        topic.append(kafka([str(number), str(number + 1)]))
    before = all_rows(topic)
    report = topic.merge()
    assert all_rows(topic) == before
    assert topic.at().partitions()["segments"].to_pylist() == [1, 1]
    assert report.segments_out == 2
    assert report.records_removed == 0
    assert topic.verify(data=True)
    assert topic.merge().units == 0


@pytest.mark.records_in("files")
def test_a_shifted_segment_is_sealed(store: Store) -> None:
    topic = store.create_topic("t")
    parts = [plan_append(topic).stage(kafka(["a"] * 3)) for _ in range(2)]
    plan_append(topic).commit(parts)
    assert topic.segments()["shift"].to_pylist() == [0, 3]
    before = all_rows(topic)
    topic.merge()
    assert topic.segments()["shift"].to_pylist() == [0]
    assert all_rows(topic) == before


def test_large_sealed_segments_are_not_rewritten(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", config={"segment.bytes": 1000})
    for _ in range(3):
        topic.append(kafka([f"{n:0100d}" for n in range(20)]))
    before = data_files(objects)
    assert topic.merge().units == 0
    assert data_files(objects) == before


@pytest.mark.records_in("files")
def test_units_keep_to_the_size_of_a_segment(store: Store) -> None:
    topic = store.create_topic("t")
    for _ in range(10):
        topic.append(kafka(["k"] * 5))
    size = topic.segments()["size_bytes"].to_pylist()[0]
    topic.alter(config={"segment.bytes": 3 * size})
    units = Merge().plan(topic._maintained)
    assert [len(unit.inputs) for unit in units] == [3, 3, 3]
    topic.merge()
    assert topic.verify(data=True)


@pytest.mark.records_in("files")
def test_tombstones_with_different_horizons_are_kept_apart(store: Store, clock: object) -> None:
    topic = store.create_topic("t", config={"cleanup.policy": "compact"})
    topic.append(kafka(["a"], [None]))
    topic.compact()
    topic.append(kafka(["b"], [None]))
    assert topic.merge().units == 0


def test_timestamps_of_different_types_are_kept_apart(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    topic.alter(config={"message.timestamp.type": "LogAppendTime"})
    topic.append(kafka(["b"]))
    topic.append(kafka(["c"]))
    before = all_rows(topic)
    topic.merge()
    assert all_rows(topic) == before
    assert len(topic.segments()) == 2


def test_old_files_get_new_columns(store: Store) -> None:
    topic = store.create_topic("t", schema={"n": pa.int32()})
    topic.append(pa.table({"n": pa.array([1], pa.int32())}))
    topic.alter(add_columns={"s": pa.string()}, widen_columns={"n": pa.int64()})
    topic.append(pa.table({"n": [2**40], "s": ["x"]}))
    before = all_rows(topic)
    topic.merge()
    assert all_rows(topic) == before
    assert len(topic.segments()) == 1
    assert topic.verify(data=True)


def stored(objects: MemoryStore, topic: Topic) -> list[int]:
    """The offsets in the live files, as a reader without the manifest sees them."""
    paths = topic.segments()["path"].to_pylist()
    files = [pq.read_table(pa.BufferReader(objects.read(f"t/{path}"))) for path in paths]
    return [offset for file in files for offset in file["offset"].to_pylist()]


@pytest.mark.records_in("files")
@pytest.mark.parametrize("group_rows", [7, 1000])
def test_records_below_the_log_start_are_dropped_from_large_files_too(
    store: Store, objects: MemoryStore, group_rows: int
) -> None:
    store = limited(store, row_group_rows=group_rows)
    topic = store.create_topic("t")
    topic.append(kafka([f"{n:0100d}" for n in range(20)]))
    topic.alter(config={"segment.bytes": 1000})
    topic.delete_records({0: 13})
    before = all_rows(topic)
    assert stored(objects, topic) == list(range(20))
    report = topic.merge()
    assert (report.records_in, report.records_removed) == (20, 13)
    assert stored(objects, topic) == list(range(13, 20))
    assert all_rows(topic) == before
    assert topic.count() == 7
    assert topic.start_offsets() == {0: 13}
    assert topic.verify(data=True)
    assert topic.merge().units == 0


def test_segment_without_records_keeps_its_range(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", config={"cleanup.policy": "compact,delete"})
    topic.append(kafka(["a", "b", "b"]))
    topic.append(kafka(["b"]))
    topic.compact()
    topic.delete_records({0: 1})  # of the first file only offset 0 is left, and it claims [0, 4)
    topic.merge()
    assert stored(objects, topic) == [3]
    assert topic.append(kafka(["c"])).offsets == {0: (4, 5)}
    assert topic.verify(data=True)


def test_compaction_drops_records_below_the_log_start_too(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", config={"cleanup.policy": "compact,delete"})
    topic.append(kafka(["a", "b", "c"]))
    topic.delete_records({0: 1})
    topic.compact()
    assert stored(objects, topic) == [1, 2]
    assert topic.merge().units == 0
    assert topic.verify(data=True)


@pytest.mark.records_in("files")
@pytest.mark.parametrize(("further", "lands"), [(3, True), (4, False)])
def test_log_start_may_move_while_a_merge_runs(
    store: Store, objects: MemoryStore, further: int, lands: bool
) -> None:
    """Inside the first input it does no harm: what it leaves below it is cut by the next merge."""
    topic = store.create_topic("t")
    for _ in range(2):
        topic.append(kafka([f"{n:0100d}" for n in range(4)]))
    topic.alter(config={"segment.bytes": 1000})
    topic.delete_records({0: 1})

    def run_units(worker: Worker, units: Sequence[Any]) -> list[Rewritten]:
        rewritten = [worker(unit) for unit in units]
        store.topic("t").delete_records({0: further})
        return rewritten

    before = [row for row in all_rows(topic) if row["offset"] >= further]
    report = run_job(topic, Merge(), run_units)
    assert (report.units, report.skipped) == (int(lands), int(not lands))
    assert stored(objects, topic) == list(range(1 if lands else 4, 8))
    assert topic.verify(data=True)
    topic.merge()
    assert stored(objects, topic) == list(range(further, 8))
    assert all_rows(topic) == before
    assert topic.verify(data=True)


@pytest.mark.parametrize("cut", [1, 3])
def test_merge_does_not_move_a_log_start_inside_a_segment(store: Store, cut: int) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", "b"], partition=ints(0, 0)))
    topic.append(kafka(["c", "d"], partition=ints(0, 0)))
    topic.delete_records({0: cut})
    before = all_rows(topic)
    topic.merge()
    assert all_rows(topic) == before
    assert topic.start_offsets() == {0: cut}
    assert topic.verify(data=True)
