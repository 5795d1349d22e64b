"""Staging bit by bit, and what a job asks of a topic before it begins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, SchemaMismatchError
from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import data_files, ints, kafka, rows


def test_rows_added_bit_by_bit_are_committed_in_order(store: Store) -> None:
    topic = store.create_topic("t", partitions=3)
    with plan_append(topic).begin() as staging:
        for first in range(0, 100, 10):
            table = kafka([f"k{n % 7}" for n in range(first, first + 10)])
            for batch in table.to_batches(max_chunksize=3):
                staging.add(batch)
        staged = staging.finish()
    assert topic.count() == 0
    assert plan_append(topic).commit([staged]).records == 100
    assert topic.verify(data=True)


def test_begin_staging_writes_the_same_files_as_stage(store: Store) -> None:
    one, other = store.create_topic("one", 3), store.create_topic("other", 3)
    table = kafka([f"k{n % 7}" for n in range(50)] + [None] * 50)
    with plan_append(one).begin(task=2) as staging:
        for batch in table.to_batches(max_chunksize=9):
            staging.add(batch)
        plan_append(one).commit([staging.finish()])
    plan_append(other).commit([plan_append(other).stage(table, task=2)])
    columns = ("partition", "offset", "key", "value")
    assert rows(one.read(), *columns) == rows(other.read(), *columns)


def test_flush_writes_what_waits_and_loses_nothing(store: Store) -> None:
    topic = store.create_topic("t")
    with plan_append(topic).begin() as staging:
        assert staging.waiting_bytes == 0
        for number in range(3):
            staging.add(kafka(["a"], [str(number)]).to_batches()[0])
            assert staging.waiting_bytes > 0
            staging.flush()
            assert staging.waiting_bytes == 0
        staged = staging.finish()
    assert len(staged.files) == 1
    plan_append(topic).commit([staged])
    assert rows(topic.read(), "value") == [b"0", b"1", b"2"]
    assert rows(topic.segments(), "row_groups") == [[0, 1, 2]]


def test_staging_no_rows_writes_no_files(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t")
    with plan_append(topic).begin() as staging:
        staging.add(pa.RecordBatch.from_pylist([], kafka([]).schema))
        assert staging.finish().files == ()
    assert data_files(objects) == []


@pytest.mark.parametrize("when", ["waiting", "flushed", "finished"])
def test_exception_removes_the_staged_files(store: Store, objects: MemoryStore, when: str) -> None:
    topic = store.create_topic("t", partitions=3)

    def fail() -> None:
        with plan_append(topic).begin() as staging:
            staging.add(kafka(["a", "b", "c"], partition=ints(0, 1, 2)).to_batches()[0])
            if when == "flushed":
                staging.flush()
            if when == "finished":
                assert len(staging.finish().files) == 3
            raise RuntimeError("the task failed")

    with pytest.raises(RuntimeError, match="the task failed"):
        fail()
    assert data_files(objects) == []
    assert topic.version == 0


def test_bad_row_removes_the_staged_files(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", partitions=2)

    def fail() -> None:
        with plan_append(topic).begin() as staging:
            staging.add(kafka(["a"]).to_batches()[0])
            staging.flush()
            staging.add(kafka(["a"], partition=ints(9)).to_batches()[0])
            staging.finish()

    with pytest.raises(InvalidRequestError, match="partition 9"):
        fail()
    assert data_files(objects) == []


def test_find_txn_gives_the_result_of_the_append(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    assert plan_append(topic).find_txn("job", 1) is None
    first = topic.append(kafka(["a", "b"]), txn=("job", 1))
    topic.append(kafka(["c"]), txn=("job", 3))
    found = plan_append(topic).find_txn("job", 1)
    assert found is not None
    assert found.repeated
    assert (found.version, found.offsets) == (first.version, first.offsets)
    assert plan_append(topic).find_txn("job", 4) is None
    assert plan_append(topic).find_txn("other", 1) is None
    with pytest.raises(InvalidRequestError, match="Numbers of an app id must grow"):
        plan_append(topic).find_txn("job", 2)


@pytest.mark.parametrize("txn", [("", 1), ("job", -1), ("job", True), ("job", 2**63)])
def test_find_txn_refuses_a_bad_txn(store: Store, txn: tuple[str, int]) -> None:
    with pytest.raises(InvalidRequestError, match="txn must be"):
        plan_append(store.create_topic("t")).find_txn(*txn)


def test_check_columns_raises_what_an_append_would_raise(store: Store) -> None:
    topic = store.create_topic("t", schema={"id": pa.int64(), "amount": pa.float64()}, key="id")
    plan_append(topic).check_columns(pa.schema({"amount": pa.float32(), "id": pa.int32()}))
    for wrong, why in (
        ({"id": pa.string()}, "column 'id' is string"),
        ({"amuont": pa.float64()}, "did you mean 'amount'"),
        ({"offset": pa.int64()}, "given by the log"),
        ({"partition": pa.string()}, "must be an integer"),
        ({"timestamp": pa.timestamp("us")}, "time zone"),
    ):
        with pytest.raises(SchemaMismatchError, match=why):
            plan_append(topic).check_columns(pa.schema(wrong))
        with pytest.raises(SchemaMismatchError, match=why):
            topic.append(pa.RecordBatch.from_pylist([{}], pa.schema(wrong)))


def test_check_columns_knows_columns_that_another_handle_added(store: Store) -> None:
    topic = store.create_topic("t", schema={"id": pa.int64()})
    store.topic("t").alter(add_columns={"note": pa.string()})
    plan_append(topic).check_columns(pa.schema({"note": pa.string()}))
