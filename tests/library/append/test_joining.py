"""Files that many tasks staged, joined before their commit."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable import AppendResult, InvalidRequestError, Topic
from pylogtable.engine import Join, Staged, plan_append
from pylogtable.store import Store
from tests.builders import data_files, limited, rows

pytestmark = pytest.mark.records_in("files")

SCHEMA = {"k": pa.string(), "v": pa.int64()}


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("t", 2, SCHEMA, key="k")


def batch(first: int, count: int = 50) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": [f"u{n % 7}" for n in numbers], "v": numbers})


def stage(topic: Topic, tasks: int) -> list[Staged]:
    return [plan_append(topic).stage(batch(100 * task), temporary=True) for task in range(tasks)]


def join(topic: Topic, staged: list[Staged]) -> AppendResult:
    """As an engine does it: units and results are sent between processes."""
    joiner, joins = plan_append(topic).plan_joins(staged)
    results = [pickle.loads(pickle.dumps(joiner(_sent(unit)))) for unit in joins]
    return plan_append(topic).commit([plan_append(topic).joined(staged, results)])


def _sent(unit: Join) -> Join:
    copy: Join = pickle.loads(pickle.dumps(unit))
    return copy


def test_files_of_many_tasks_become_one_sealed_segment_for_each_partition(topic: Topic) -> None:
    topic.append(batch(1000))
    result = join(topic, stage(topic, 4))
    assert (result.records, result.segments) == (200, 2)
    assert topic.segments()["shift"].to_pylist() == [0] * 4
    assert topic.segments()["hashed_over"].to_pylist() == [2] * 4
    for number in (0, 1):
        found = rows(topic.read(partition=number, start=result.offsets[number][0]), "v")
        assert found == sorted(found)
    assert topic.count() == 250
    assert len(data_files(topic._store)) == 4
    assert topic.verify(data=True)


def test_temporary_files_are_plain_and_joined_ones_are_not(topic: Topic) -> None:
    def chunk(path: str, column: int) -> pq.ColumnChunkMetaData:
        file = pa.BufferReader(topic._store.read(path))
        return pq.ParquetFile(file).metadata.row_group(0).column(column)

    staged = stage(topic, 1)
    temporary = chunk(staged[0].files[0].path, 2)
    assert "RLE_DICTIONARY" not in temporary.encodings
    assert temporary.compression == "UNCOMPRESSED"
    joiner, joins = plan_append(topic).plan_joins(staged)
    final = chunk(joiner(joins[0])[0].path, 2)
    assert "RLE_DICTIONARY" in final.encodings
    assert final.compression == "ZSTD"


def test_an_append_that_came_first_shifts_the_joined_files(topic: Topic) -> None:
    plan, staged = plan_append(topic), stage(topic, 3)
    joiner, joins = plan.plan_joins(staged)
    joined = plan.joined(staged, map(joiner, joins))
    topic.append(batch(1000))
    plan.commit([joined])
    assert sorted(rows(topic.read(), "v")) == sorted(
        [*range(50), *range(100, 150), *range(200, 250), *range(1000, 1050)]
    )
    assert topic.verify(data=True)


def test_large_partitions_are_joined_in_several_units(topic: Topic) -> None:
    staged = stage(topic, 3)
    topic = limited(topic, join_bytes=staged[0].files[0].size_bytes)
    _, joins = plan_append(topic).plan_joins(staged)
    assert [(unit.partition, len(unit.files)) for unit in joins] == [(0, 1)] * 3 + [(1, 1)] * 3
    result = join(topic, staged)
    assert (result.records, result.segments) == (150, 6)
    assert topic.segments()["shift"].to_pylist() == [0] * 6
    assert topic.verify(data=True)


def test_columns_and_times_that_changed_between_tasks_are_kept(topic: Topic) -> None:
    staged = stage(topic, 1)
    topic.alter(
        add_columns={"note": pa.string()}, config={"message.timestamp.type": "LogAppendTime"}
    )
    more = batch(100).append_column("note", pa.array(["new"] * 50))
    staged.append(plan_append(topic).stage(more, temporary=True))
    result = join(topic, staged)
    assert result.segments == 4  # files of two timestamp types are not joined
    found = topic.read(columns=["v", "note", "timestampType"]).read_all().sort_by("v")
    assert found["note"].to_pylist() == [None] * 50 + ["new"] * 50
    assert found["timestampType"].to_pylist() == [0] * 50 + [1] * 50
    assert topic.verify(data=True)


def test_results_that_are_missing_or_given_twice_are_refused(topic: Topic) -> None:
    plan, staged = plan_append(topic), stage(topic, 2)
    joiner, joins = plan.plan_joins(staged)
    results = [joiner(unit) for unit in joins]
    for wrong in (results[:1], [*results, results[0]]):
        with pytest.raises(InvalidRequestError, match="and the staged ones 100"):
            plan.joined(staged, wrong)
    assert plan.commit([plan.joined(staged, results)]).records == 100
    assert topic.verify(data=True)


def test_files_staged_for_another_topic_are_not_joined(store: Store, topic: Topic) -> None:
    other = store.create_topic("other", 2, SCHEMA, key="k")
    with pytest.raises(InvalidRequestError, match="staged for topic id"):
        plan_append(other).plan_joins(stage(topic, 1))


@pytest.mark.parametrize("results", [None, 7, [None], [("file",)]], ids=repr)
def test_what_no_joiner_returned_is_refused_and_removes_nothing(topic: Topic, results: Any) -> None:
    staged = stage(topic, 2)
    before = data_files(topic._store)
    with pytest.raises(InvalidRequestError, match=r"what the joiner returned .*map\(joiner"):
        plan_append(topic).joined(staged, results)
    assert data_files(topic._store) == before
