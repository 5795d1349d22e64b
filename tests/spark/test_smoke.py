"""Each main feature once, in a Connect session with `PYLOGTABLE_CONNECT=1`: `test_connect.py` runs
this file. The other files here have the same in a classic session, so there it is for deep runs.
Tests that take the same way to Spark as another one are for deep runs as well."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import Topic
from pyspark_pylogtable import LogTable, doctor, register
from tests.builders import rows
from tests.spark.conftest import CONNECT
from tests.spark.streams import copied, forget_last_commit, places, read_stream, run
from tests.spark.support import failure, in_order, inserts_some_columns, load
from tests.spark.writes import save

pytestmark = [] if CONNECT else [pytest.mark.deep]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic that Spark has created and appended to twice."""
    folder = tmp_path_factory.mktemp("smoke")
    for first in (0, 20):
        df = spark.range(first, first + 20, 1, 2).selectExpr(
            "concat('user-', id % 5) AS user", "id AS number", "id * 0.5D AS half"
        )
        save(df, folder / "events", key="user", partitions=3)
    return folder


@pytest.fixture
def topic(folder: Path) -> Topic:
    return pylogtable.open_topic(folder / "events")


def test_session_is_of_the_requested_kind(spark: SparkSession) -> None:
    assert (".connect." in type(spark).__module__) == CONNECT


def test_doctor_finds_nothing_wrong(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the report: tests/spark/test_doctor.py."""
    report = doctor(spark, str(tmp_path))
    assert {check.status for check in report.checks} == {"ok"}, str(report)
    assert {"client: put-if-absent", "workers: put-if-absent", "native read"} <= {
        check.name.replace("driver", "client") for check in report.checks
    }
    assert ("Connect" in report.checks[0].detail) == CONNECT
    assert list(tmp_path.iterdir()) == []


def test_rows_are_written_and_read(spark: SparkSession, folder: Path, topic: Topic) -> None:
    found = in_order(load(spark, folder / "events"))
    columns = ("partition", "offset", "user", "number", "half")
    assert [tuple(row[name] for name in columns) for row in found] == rows(topic.read(), *columns)
    assert (topic.version, topic.count()) == (2, 40)


@pytest.mark.deep
def test_a_range_of_offsets_is_read(spark: SparkSession, folder: Path, topic: Topic) -> None:
    starts = {str(number): min(2, end) for number, end in topic.end_offsets().items()}
    start = json.dumps({"events": starts})
    found = load(spark, folder / "events", startingOffsets=start).select("partition", "offset")
    wanted = [row for row in rows(topic.read(), "partition", "offset") if row[1] >= 2]
    assert [tuple(row) for row in in_order(found)] == wanted


@pytest.mark.deep
def test_user_schema_chooses_columns(spark: SparkSession, folder: Path) -> None:
    reader = spark.read.format("pylogtable").schema("number long, offset long")
    found = reader.load(str(folder / "events"))
    assert found.columns == ["number", "offset"]
    assert sorted(row.number for row in found.collect()) == list(range(40))


def test_the_latest_record_of_each_key(spark: SparkSession, folder: Path) -> None:
    found = load(spark, folder / "events", view="latest")
    assert sorted(row.number for row in found.collect()) == [35, 36, 37, 38, 39]


@inserts_some_columns
def test_sql_reads_and_inserts(spark: SparkSession, tmp_path: Path) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t", schema={"a": pa.int64(), "b": pa.string()})
    topic.append(pa.table({"a": [1], "b": ["x"]}))
    spark.sql(
        f"CREATE TEMPORARY VIEW smoke USING pylogtable OPTIONS (path '{tmp_path}/t')"
    ).collect()
    spark.sql("INSERT INTO smoke (a) SELECT a + 1 FROM smoke").collect()
    assert rows(topic.read(), "a", "b") == [(1, "x"), (2, None)]
    assert [tuple(row) for row in spark.sql("SELECT a, b FROM smoke").collect()] == [(1, "x")]


@pytest.mark.deep
def test_register_is_harmless(spark: SparkSession, folder: Path) -> None:
    register(spark)
    register(spark)
    assert load(spark, folder / "events").count() == 40


def test_error_messages_reach_the_user(spark: SparkSession, folder: Path) -> None:
    df = spark.createDataFrame([("x", 1)], "user string, nummer long")
    said = failure(lambda: save(df, folder / "events"))
    assert "the topic has no column 'nummer'; did you mean 'number'?" in said
    said = failure(lambda: load(spark, folder / "events", startingOfsets="earliest").collect())
    assert "startingOffsets" in said


@pytest.mark.parametrize(
    "inline_bytes",
    [pytest.param(0, id="in files", marks=pytest.mark.deep), pytest.param(16384, id="in commits")],
)
def test_log_table_reads_appends_and_describes(
    spark: SparkSession, tmp_path: Path, inline_bytes: int
) -> None:
    config = {"inline.max.bytes": inline_bytes}
    topic = pylogtable.open(tmp_path).create_topic("t", 2, {"id": pa.int64()}, "id", config=config)
    table = LogTable.for_path(spark, tmp_path / "t")
    result = table.append(spark.range(0, 50, 1, 3), txn=("job", 1))
    assert (result.records, result.version) == (50, 1)
    assert table.append(spark.range(0, 50, 1, 3), txn=("job", 1)).repeated
    columns = ("partition", "offset", "id")
    found = in_order(table.to_df(columns=columns))
    assert [tuple(row) for row in found] == rows(topic.read(), *columns)
    assert [row.operation for row in table.history().collect()] == ["append", "create"]
    table.create_view("by_log_table")
    assert spark.sql("SELECT count(*) AS n FROM by_log_table").collect()[0].n == 50


def test_a_stream_copies_a_topic_once(
    spark: SparkSession, folder: Path, topic: Topic, tmp_path: Path
) -> None:
    df = read_stream(spark, folder / "events", startingOffsets="earliest")
    copy = df.selectExpr("user", "number", "partition AS was_in", "offset AS was_at")
    for _ in range(2):
        run(copy, tmp_path / "checkpoint", tmp_path / "copy", key="user", partitions=2)
        forget_last_commit(tmp_path / "checkpoint")
    assert copied(pylogtable.open_topic(tmp_path / "copy")) == places(topic)
