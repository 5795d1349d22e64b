"""The stream sink with the calls that Spark makes: tasks stage, a commit has a batch number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import Row

import pylogtable
from pylogtable import (
    CommitUnknownError,
    InvalidRequestError,
    LogTableError,
    SchemaMismatchError,
    Store,
    Topic,
)
from pylogtable.engine import plan_append
from pylogtable.runtime import Runtime
from pylogtable.storage.base import Created
from pylogtable.storage.open import open_store
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.stream.sink import StreamWriter, batches_of_rows
from pyspark_pylogtable.tasks.staging import Written, stage_rows
from tests.builders import IN_FILES, kafka, rows
from tests.spark.faults import (
    DriverFaults,
    is_commit,
    on_store,
    store_with,
    unknown_commit,
    unsent_commit,
)
from tests.spark.writes import data_files, travelled, write
from tests.stores import Fault


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return pylogtable.open(tmp_path / "logs").create_topic("t", 2)


@contextmanager
def task_of(query: str | None, partition: int = 0) -> Iterator[None]:
    """Run code as in a task on an executor."""
    task = TaskContext._getOrCreate()
    task._partitionId = partition
    task._localProperties = {"sql.streaming.queryId": query} if query else {}
    try:
        yield
    finally:
        TaskContext._taskContext = None


class Sink:
    """A query that writes to `path`; a batch is one table for each task."""

    def __init__(self, path: str | os.PathLike[str], query: str | None = "q1", **options: Any):
        self.given = {"path": os.fspath(path), **{name: str(v) for name, v in options.items()}}
        self.query = query

    def writer(self, schema: pa.Schema) -> StreamWriter:
        return travelled(
            DefaultSource(self.given).streamWriter(spark_schema(schema), overwrite=False)
        )

    def stage(self, *tasks: pa.Table) -> list[Written]:
        messages = []
        for number, table in enumerate(tasks):
            writer = self.writer(table.schema)
            with task_of(self.query, number):
                # What the writer does if Spark passes Arrow batches.
                batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
                messages.append(travelled(stage_rows(writer._write, iter(batches))))
        return messages

    def batch(self, number: int, *tasks: pa.Table) -> None:
        messages = self.stage(*tasks)
        self.writer(tasks[0].schema).commit([*messages], number)


def values(topic: Topic) -> list[bytes]:
    return sorted(rows(topic.read(), "key"))


def test_a_batch_is_one_commit_with_the_query_and_its_number(topic: Topic) -> None:
    Sink(topic.url).batch(7, kafka(["a", "b"]), kafka(["c"]))
    assert values(topic) == [b"a", b"b", b"c"]
    assert topic.version == 1
    found = plan_append(topic).find_txn("q1", 7)
    assert found is not None
    assert found.origin == "q1"


def test_repeated_batch_is_recognised_and_its_files_are_removed(
    topic: Topic, tmp_path: Path
) -> None:
    sink = Sink(topic.url)
    for number in range(3):
        sink.batch(number, kafka([str(number)]))
    files = data_files(tmp_path)
    sink.batch(2, kafka(["2"]))
    assert values(topic) == [b"0", b"1", b"2"]
    assert data_files(tmp_path) == files
    # Numbers may be skipped: batches without rows make no commit.
    sink.batch(9, kafka(["9"]))
    assert topic.count() == 4


def test_a_stale_run_and_its_successor_append_a_batch_once(topic: Topic) -> None:
    """Both stage the batch, and both commit it."""
    sink = Sink(topic.url)
    table = kafka(["a", "b"])
    zombie, successor = sink.stage(table), sink.stage(table)
    sink.writer(table.schema).commit([*successor], 0)
    sink.writer(table.schema).commit([*zombie], 0)
    assert values(topic) == [b"a", b"b"]
    assert topic.verify(data=True)


def test_only_the_speculative_task_that_spark_chooses_is_committed(
    topic: Topic, tmp_path: Path
) -> None:
    """Spark passes one message for each task. Vacuum removes the files of the other attempt."""
    topic.alter(config=IN_FILES)
    sink = Sink(topic.url)
    first, _ = sink.stage(kafka(["a", "b"]), kafka(["c"]))
    _, speculative = sink.stage(kafka([]), kafka(["c"]))
    sink.writer(kafka([]).schema).commit([first, speculative], 0)
    assert values(topic) == [b"a", b"b", b"c"]
    assert topic.verify(data=True)
    assert len(data_files(tmp_path)) == topic.segments().num_rows + 1


def test_each_query_has_its_own_txns(topic: Topic) -> None:
    Sink(topic.url, "q1").batch(0, kafka(["a"]))
    Sink(topic.url, "q2").batch(0, kafka(["b"]))
    assert values(topic) == [b"a", b"b"]


def test_txn_app_id_of_another_query_is_refused(topic: Topic, tmp_path: Path) -> None:
    Sink(topic.url, "q1", txnAppId="etl").batch(0, kafka(["a"]))
    files = data_files(tmp_path)
    other = Sink(topic.url, "q2", txnAppId="etl")
    with pytest.raises(InvalidRequestError) as caught:
        other.batch(0, kafka(["b"]))
    for words in (
        "[TXN_OF_ANOTHER_QUERY] batch 0 under txnAppId 'etl' was written to topic 't'",
        "by the streaming query q1. This is the query q2",
        "Nothing was written",
    ):
        assert words in str(caught.value)
    assert data_files(tmp_path) == files
    assert values(topic) == [b"a"]


def test_batch_number_that_goes_back_is_refused(topic: Topic) -> None:
    sink = Sink(topic.url, txnAppId="etl")
    sink.batch(5, kafka(["a"]))
    with pytest.raises(InvalidRequestError, match="txn 3 of app id 'etl' was never applied"):
        sink.batch(3, kafka(["b"]))
    assert topic.count() == 1


@pytest.mark.parametrize("query", ["q1", "q2"])
def test_foreach_batch_write_knows_its_query(topic: Topic, query: str) -> None:
    """For staged rows, and for a repeat that is noticed when the write is planned."""

    def each() -> None:
        write(topic.url, [kafka(["a"])], txnAppId="each", txnVersion=0)

    with task_of("q1"):
        each()
    with task_of(query):
        if query == "q1":
            each()
        else:
            with pytest.raises(InvalidRequestError, match="TXN_OF_ANOTHER_QUERY"):
                each()
    assert topic.count() == 1


def test_a_batch_without_rows_makes_no_commit(topic: Topic) -> None:
    Sink(topic.url).batch(0, kafka([]), kafka([]))
    assert topic.version == 0


def test_query_without_an_id_needs_a_txn_app_id(topic: Topic) -> None:
    with pytest.raises(InvalidRequestError, match="did not pass the id of this query"):
        Sink(topic.url, None).batch(0, kafka(["a"]))
    Sink(topic.url, None, txnAppId="etl").batch(0, kafka(["a"]))
    assert topic.count() == 1


@pytest.mark.parametrize("landed", [True, False])
def test_after_an_unknown_commit_no_file_is_removed_and_a_repeat_settles_it(
    topic: Topic, tmp_path: Path, landed: bool
) -> None:
    sink, table = Sink(topic.url), kafka(["a", "b"])
    messages = sink.stage(table)
    files = data_files(tmp_path)
    faulty = store_with(tmp_path / "logs", unknown_commit(landed=landed))
    with pytest.raises(CommitUnknownError):
        on_store(sink.writer(table.schema), faulty).commit([*messages], 0)
    sink.writer(table.schema).abort([*messages], 0)
    assert data_files(tmp_path) == files
    sink.batch(0, table)
    assert values(topic) == [b"a", b"b"]
    assert topic.verify(data=True)


@pytest.mark.parametrize("lands_before", [0, 1, 2])
def test_late_batch_of_a_dead_driver_is_appended_once(
    topic: Topic, tmp_path: Path, lands_before: int
) -> None:
    """A query that goes on from its checkpoint runs the batch again under its number. So the sink
    needs not be told what was last: a late batch is a repeat, or its version is taken."""
    sink = Sink(topic.url)
    sink.batch(0, kafka(["0"]))
    objects = DriverFaults(
        open_store(tmp_path / "logs", None),
        lambda verb, key: Fault.LATE if is_commit("t", verb, key) else None,
    )
    dead = on_store(sink.writer(kafka([]).schema), Store(objects, Runtime(patience_seconds=0)))
    # Batch 1 had no rows, and made no commit.
    with pytest.raises(CommitUnknownError):
        dead.commit([*sink.stage(kafka(["2"]))], 2)
    late: list[Created] = []
    for number in (2, 3):
        if number - 2 == lands_before:
            late += objects.land()
        sink.batch(number, kafka([str(number)]))
    late += objects.land()
    assert late[0] is (Created.YES if lands_before == 0 else Created.EXISTS)
    assert values(topic) == [b"0", b"2", b"3"]
    assert topic.verify(data=True)


def test_batch_with_a_failed_task_leaves_no_file(topic: Topic, tmp_path: Path) -> None:
    sink = Sink(topic.url)
    (message,) = sink.stage(kafka(["a"]))
    sink.writer(kafka([]).schema).abort([message, None], 0)
    assert data_files(tmp_path) == []
    assert topic.version == 0


def test_repeat_finishes_a_batch_that_failed_after_some_topics(
    tmp_path: Path,
) -> None:
    store: Store = pylogtable.open(tmp_path / "logs")
    topics = [store.create_topic(name) for name in ("a", "b", "c")]
    table = kafka(["x", "y", "z"], topic=pa.array(["a", "b", "c"]))
    sink = Sink(tmp_path / "logs")
    messages = sink.stage(table)
    faulty = store_with(tmp_path / "logs", unsent_commit("b"))
    with pytest.raises(LogTableError, match="topic 'b' was not written; already written: a"):
        on_store(sink.writer(table.schema), faulty).commit([*messages], 0)
    sink.batch(0, table)
    assert [topic.count() for topic in topics] == [1, 1, 1]


def test_sink_refuses_invalid_writes(topic: Topic, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"txnVersion is the batch's own number"):
        Sink(topic.url, txnVersion=1).batch(0, kafka(["a"]))
    with pytest.raises(pylogtable.TopicNotFoundError, match="create it with"):
        Sink(tmp_path / "logs" / "missing").batch(0, kafka(["a"]))
    with pytest.raises(pylogtable.SchemaMismatchError, match="wrong"):
        Sink(topic.url).batch(0, kafka(["a"], wrong=pa.array([1])))
    assert topic.version == 0


def test_complete_mode_is_refused_with_the_reason(topic: Topic) -> None:
    source = DefaultSource({"path": topic.url})
    with pytest.raises(InvalidRequestError, match="output mode complete writes the whole result"):
        source.streamWriter(spark_schema(kafka([]).schema), overwrite=True)


def test_rows_are_converted_to_the_arrow_that_newer_sparks_pass() -> None:
    """Spark 4.0 has no Arrow writer for streams."""
    from datetime import datetime, timezone
    from decimal import Decimal

    schema = pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "blob": pa.binary(),
            "at": pa.timestamp("us", tz="UTC"),
            "amount": pa.decimal128(10, 2),
            "tags": pa.list_(pa.string()),
            "place": pa.struct({"x": pa.float64()}),
        }
    )
    when = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    given = [
        Row(
            id=number,
            name=f"n{number}",
            blob=bytearray(b"b"),
            at=when,
            amount=Decimal("1.50"),
            tags=["a", None],
            place=Row(x=0.5),
        )
        for number in range(10_001)
    ] + [Row(id=None, name=None, blob=None, at=None, amount=None, tags=None, place=None)]
    batches = list(batches_of_rows(iter(given), spark_schema(schema)))
    assert [batch.num_rows for batch in batches] == [10_000, 2]
    assert [field.type for field in batches[0].schema] == [field.type for field in schema]
    first = batches[0].slice(0, 1).to_pylist()[0]
    assert first["at"] == when
    assert (first["blob"], first["tags"], first["place"]) == (b"b", ["a", None], {"x": 0.5})
    assert set(batches[1].to_pylist()[1].values()) == {None}


def test_merge_schema_is_advised_only_where_it_would_help(tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path / "logs").create_topic("t", 1, {"note": pa.string()})
    for name, is_advised in (("other", True), ("Note", False)):
        with pytest.raises(SchemaMismatchError, match=f"no column '{name}'") as refused:
            Sink(topic.url).writer(pa.schema({name: pa.string()}))
        assert ("mergeSchema" in str(refused.value)) == is_advised
