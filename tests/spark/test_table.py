"""`LogTable`: appends in one commit of few segments, views for SQL, metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import pylogtable
from pylogtable import (
    AppendResult,
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    SchemaMismatchError,
    SegmentGoneError,
    StorageError,
    Store,
    Topic,
    TopicNotFoundError,
)
from pylogtable.engine import AppendPlan, plan_append
from pyspark_pylogtable import LogTable
from tests.builders import IN_FILES, kafka, limited, rows, until_all_is_past
from tests.spark.faults import is_commit, store_with, unknown_commit, unsent_commit
from tests.spark.support import failure
from tests.spark.writes import data_files

SCHEMA = {"k": pa.string(), "v": pa.int64()}


@pytest.fixture
def topic(logs: Store) -> Topic:
    return logs.create_topic("t", 3, SCHEMA, key="k", config=IN_FILES)


@pytest.fixture
def table(spark: SparkSession, topic: Topic) -> LogTable:
    return LogTable.for_path(spark, topic.url)


def keyed(spark: SparkSession, count: int = 3000, first: int = 0) -> DataFrame:
    """Rows of five tasks; `v` numbers them in order."""
    numbers = spark.range(first, first + count, 1, 5)
    return numbers.selectExpr("concat('u', id % 97) AS k", "id AS v")


def by_partition(topic: Topic, column: str = "v") -> dict[int, list[Any]]:
    return {
        number: rows(topic.read(partition=number), column)
        for number in range(topic.at().partition_count)
    }


# --- appending -------------------------------------------------------------------------------


def test_append_is_one_commit_with_one_sealed_segment_per_partition(
    spark: SparkSession, table: LogTable, logs: Store
) -> None:
    result = table.append(keyed(spark))
    topic = table.topic
    assert isinstance(result, AppendResult)
    assert (result.version, result.records, result.segments, result.repeated) == (1, 3000, 3, False)
    assert result.offsets == {number: (0, end) for number, end in topic.end_offsets().items()}
    segments = topic.segments()
    assert segments["partition"].to_pylist() == [0, 1, 2]
    assert segments["shift"].to_pylist() == [0, 0, 0]
    assert segments["hashed_over"].to_pylist() == [3, 3, 3]
    assert result.size_bytes == sum(segments["size_bytes"].to_pylist())
    # Each row is in the library's partition, and in order.
    other = logs.create_topic("other", 3, SCHEMA, key="k")
    other.append(pa.table({"k": [f"u{n % 97}" for n in range(3000)], "v": range(3000)}))
    assert by_partition(topic) == by_partition(other)

    again = table.append(keyed(spark, 500, first=3000))
    assert again.offsets == {
        number: (start, topic.end_offsets()[number])
        for number, (_, start) in result.offsets.items()
    }
    assert topic.segments()["shift"].to_pylist() == [0] * 6
    assert all(found == sorted(found) for found in by_partition(topic).values())
    assert topic.history()["operation"].to_pylist() == ["append", "append", "create"]
    assert topic.verify(data=True)


def test_rows_without_a_key_and_rows_that_name_their_partition(
    spark: SparkSession, table: LogTable
) -> None:
    df = keyed(spark).select(
        F.when(F.col("v") % 3 > 0, F.col("k")).alias("k"),
        "v",
        F.when(F.col("v") % 5 == 0, F.lit(1)).alias("partition"),
    )
    result = table.append(df)
    topic = table.topic
    assert (result.version, result.records, result.segments) == (1, 3000, 3)
    found = by_partition(topic)
    assert set(range(0, 3000, 5)) <= set(found[1])
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert topic.segments()["shift"].to_pylist() == [0, 0, 0]
    # Only partitions that got a keyed row which its key would have sent elsewhere.
    assert topic.segments()["hashed_over"].to_pylist() == [3, None, 3]
    assert topic.verify(data=True)


def test_small_appends_without_keys_take_turns(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("keyless", 3, {"v": pa.int64()})
    table = LogTable.for_path(spark, topic.url)
    df = spark.range(10).coalesce(1).selectExpr("id AS v")
    taken = [list(table.append(df).offsets) for _ in range(3)]
    assert sorted(taken) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("joined_by", "missing"),
    [("driver", ""), ("executors", ""), ("executors", "repartitionById")],
    ids=["driver", "executors", "executors of 4.0"],
)
def test_large_append_is_joined_in_order(
    spark: SparkSession,
    table: LogTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    joined_by: str,
    missing: str,
) -> None:
    """Tasks 0 to 3 stage files, the fourth has few rows and sends them."""
    if joined_by == "executors":
        table = LogTable(spark, table.topic.url, limited(table.topic, driver_bytes=0))
    df = spark.range(0, 40_000, 1, 4).union(spark.range(40_000, 40_100, 1, 1))
    df = df.selectExpr("concat('u', id % 97) AS k", "id AS v")
    for home in type(df).__mro__:
        if missing in vars(home):
            monkeypatch.delattr(home, missing)
    first = table.topic.append(pa.table({"k": ["u0"], "v": [-1]}))
    result = table.append(df)
    assert (result.version, result.records, result.segments) == (2, 40_100, 3)
    segments = table.topic.segments()
    assert segments["shift"].to_pylist() == [0] * 4
    assert segments["hashed_over"].to_pylist() == [3] * 4
    found = by_partition(table.topic)
    assert sorted(v for numbers in found.values() for v in numbers) == [*range(-1, 40_100)]
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert len(data_files(tmp_path)) == first.segments + result.segments
    assert table.topic.verify(data=True)


def test_append_that_cannot_be_joined_leaves_no_file(
    spark: SparkSession, table: LogTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        assert data_files(tmp_path)
        raise StorageError("the disk is full")

    monkeypatch.setattr(AppendPlan, "joined", refuse)
    with pytest.raises(StorageError, match="the disk is full"):
        table.append(keyed(spark, 100_000))
    assert (table.topic.version, data_files(tmp_path)) == (0, [])


def test_a_repeated_txn_appends_nothing_and_writes_no_file(
    spark: SparkSession, table: LogTable, tmp_path: Path
) -> None:
    first = table.append(keyed(spark, 50), txn=("job", 1))
    before = data_files(tmp_path)
    again = table.append(keyed(spark, 60), txn=("job", 1))
    assert (first.repeated, again.repeated) == (False, True)
    assert (again.version, again.offsets, again.records) == (1, first.offsets, 50)
    assert (data_files(tmp_path), table.topic.version) == (before, 1)
    with pytest.raises(InvalidRequestError, match="never applied"):
        table.append(keyed(spark), txn=("job", 0))


def test_an_append_is_refused_if_the_log_has_moved_on(
    spark: SparkSession, table: LogTable, tmp_path: Path
) -> None:
    table.append(keyed(spark, 50), txn=("job", 1), expected_last=None)
    before = data_files(tmp_path)
    with pytest.raises(CommitConflictError, match="is 1 in version 1, and expected_last is None"):
        table.append(keyed(spark, 60), txn=("job", 2), expected_last=None)
    assert data_files(tmp_path) == before
    assert table.append(keyed(spark, 50), txn=("job", 1), expected_last=None).repeated
    table.append(keyed(spark, 60), txn=("job", 2), expected_last=1, note=[7])
    assert table.topic.count() == 110
    assert table.history(1).select("notes").collect() == [({"job": "[7]"},)]


def test_an_append_is_refused_if_another_one_lands_just_before_its_commit(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    late: list[AppendResult] = []

    def commit_first(verb: str, key: str) -> None:
        if is_commit("t", verb, key) and not late:
            late.append(topic.append(pa.table({"k": ["u0"], "v": [0]}), txn=("job", 1)))

    table = LogTable(spark, topic.url, store_with(tmp_path / "logs", commit_first).topic("t"))
    with pytest.raises(CommitConflictError, match="another append has landed since"):
        table.append(keyed(spark, 50), txn=("job", 2), expected_last=None)
    assert (topic.count(), len(data_files(tmp_path))) == (1, len(topic.segments()))


def test_txn_that_another_writer_committed_first_leaves_no_file(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    other: list[AppendResult] = []
    files: list[list[str]] = []

    def commit_first(verb: str, key: str) -> None:
        if is_commit("t", verb, key) and not other:
            staged = data_files(tmp_path)
            other.append(topic.append(pa.table({"k": ["u0"], "v": [0]}), txn=("job", 1)))
            files.append([name for name in data_files(tmp_path) if name not in staged])

    table = LogTable(spark, topic.url, store_with(tmp_path / "logs", commit_first).topic("t"))
    result = table.append(keyed(spark, 50), txn=("job", 1))
    assert (result.repeated, result.offsets) == (True, other[0].offsets)
    assert data_files(tmp_path) == files[0]


def test_no_rows(spark: SparkSession, table: LogTable) -> None:
    nothing = keyed(spark).where("v < 0")
    result = table.append(nothing)
    assert (result.version, result.records, result.offsets) == (0, 0, {})
    remembered = table.append(nothing, txn=("job", 1))
    assert (remembered.version, remembered.records) == (1, 0)
    assert table.append(keyed(spark), txn=("job", 1)).repeated


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["k", "v AS w"], "the topic has no column 'w'"),
        (["k", "CAST(v AS string) AS v"], "column 'v' is string"),
        (["k", "v", "v AS offset"], "'offset' is given by the log"),
        (["k", "v", "'x' AS partition"], "must be an integer"),
        (["k", "v", "INTERVAL 1 MONTH AS i"], "cannot be written"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_written(
    spark: SparkSession, table: LogTable, tmp_path: Path, columns: list[str], message: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=message):
        table.append(keyed(spark).selectExpr(*columns))
    assert data_files(tmp_path) == []
    assert table.topic.version == 0


def test_topic_column_must_name_the_topic(
    spark: SparkSession, table: LogTable, tmp_path: Path
) -> None:
    named = keyed(spark, 20).selectExpr(f"if(v = 19, 'other', '{table.topic.name}') AS topic", "*")
    with pytest.raises(InvalidRequestError, match="a column 'topic' with 'other'"):
        table.append(named)
    many = spark.range(0, 40_000, 1, 1).selectExpr("'other' AS topic", "string(id) AS k", "id AS v")
    assert "a column 'topic' with 'other'" in failure(lambda: table.append(many))
    assert (table.topic.version, data_files(tmp_path)) == (0, [])
    table.append(named.where("v < 19"))
    assert table.topic.count() == 19


def test_unusual_column_names(spark: SparkSession, logs: Store) -> None:
    names = ["a.b", "c d", "t`i", "UPPER", "x,;{}()="]
    topic = logs.create_topic("odd", 2, dict.fromkeys(names, pa.int64()), key="c d")
    table = LogTable.for_path(spark, topic.url)
    table.append(spark.range(9).select(*(F.col("id").alias(name) for name in names)))
    assert sorted(rows(topic.read(), *names)) == [(n,) * len(names) for n in range(9)]


def test_failed_task_leaves_no_visible_record(spark: SparkSession, table: LogTable) -> None:
    df = keyed(spark).withColumn("v", F.expr("IF(v = 2999, raise_error('boom'), v)"))
    assert "boom" in failure(lambda: table.append(df))
    assert (table.topic.version, table.topic.count()) == (0, 0)
    wrong = keyed(spark).withColumn("partition", F.lit(7))
    with pytest.raises(InvalidRequestError, match="partition 7 is out of range"):
        table.append(wrong)
    assert table.append(keyed(spark)).records == 3000


def test_task_that_fails_while_writing_removes_its_files(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", 1, {"k": pa.string()}, "k", {"cleanup.policy": "compact"})
    table = LogTable.for_path(spark, topic.url)
    df = spark.range(0, 100_000, 1, 1).selectExpr("IF(id = 99999, NULL, CAST(id AS string)) AS k")
    assert "cannot accept a record without a key" in failure(lambda: table.append(df))
    assert (topic.version, data_files(tmp_path)) == (0, [])


@pytest.mark.parametrize("outcome", ["not sent", "refused", "unknown"])
def test_files_are_removed_only_if_no_commit_can_name_them(
    spark: SparkSession, topic: Topic, tmp_path: Path, outcome: str
) -> None:
    staged: list[int] = []

    def count() -> None:
        staged.append(len(data_files(tmp_path)))

    fault = {
        "not sent": unsent_commit(before_put=count),
        "refused": unsent_commit(error=StorageError("access denied"), before_put=count),
        "unknown": unknown_commit(landed=False, before_put=count),
    }[outcome]
    table = LogTable(spark, topic.url, store_with(tmp_path / "logs", fault).topic("t"))
    with pytest.raises(CommitUnknownError if outcome == "unknown" else StorageError):
        table.append(keyed(spark))
    assert staged == [3]
    assert len(data_files(tmp_path)) == (0 if outcome == "not sent" else 3)


def test_kafka_shaped_topic(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("kafka", 2)
    table = LogTable.for_path(spark, topic.url)
    with pytest.raises(SchemaMismatchError, match="Required attribute 'value' not found"):
        table.append(spark.range(3).selectExpr("CAST(id AS string) AS key"))
    text = spark.range(20).selectExpr("CAST(id AS string) AS key", "concat('v', id) AS value")
    assert table.append(text).segments == 2
    found = {bytes(row.key): bytes(row.value) for row in table.to_df().collect()}
    assert found == {str(n).encode(): f"v{n}".encode() for n in range(20)}


# --- metadata --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    """A topic with some history."""
    store = pylogtable.open(tmp_path_factory.mktemp("known"))
    topic = store.create_topic("known", 3)
    topic.append(kafka([f"u{n}" for n in range(30)]))
    plan_append(topic).commit(
        [plan_append(topic).stage(kafka(["a", "b", "c"])) for _ in range(2)], txn=("job", 7)
    )
    topic.delete_records({0: 2})
    topic.alter(config={"retention.ms": 1000})
    return topic


def check_same(df: DataFrame, table: pa.Table) -> None:
    assert df.columns == table.column_names
    expected = from_arrow_schema(table.schema)
    assert [field.dataType for field in df.schema] == [field.dataType for field in expected]
    assert df.toArrow().cast(table.schema).to_pylist() == table.to_pylist()


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_segments_partitions_and_history_of_a_topic(
    spark: SparkSession, known: Topic, zone: str
) -> None:
    table = LogTable.for_path(spark, known.url)
    check_same(table.history(), known.history())
    check_same(table.segments(), known.segments())
    check_same(table.partitions(), known.at().partitions())
    check_same(table.describe(), known.describe().to_table())
    if zone == "UTC":
        check_same(table.history(limit=2), known.history(2))
        check_same(table.segments(1), known.segments(1))
        check_same(table.partitions(1), known.at(1).partitions())
        starts, ends = known.start_offsets(), known.end_offsets()
        offsets = {row.partition: row for row in table.offsets().collect()}
        assert {n: row.start_offset for n, row in offsets.items()} == starts
        assert {n: row.end_offset for n, row in offsets.items()} == ends
        assert starts[0] == 2
        assert table.offsets(0).agg({"end_offset": "max"}).first()[0] == 0
        assert table.describe().first().config["retention.ms"] == "1000"


def test_metadata_views_without_rows(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t")
    table = LogTable.for_path(spark, topic.url)
    check_same(table.segments(), topic.segments())
    check_same(table.history(limit=0), topic.history(0))


def test_version_that_vacuum_removed_is_named_at_once(spark: SparkSession, table: LogTable) -> None:
    for _ in range(2):
        table.append(keyed(spark, 30))
    table.merge()
    assert table.to_df(version=2).count() == 60
    until_all_is_past(table.topic)
    table.topic.vacuum(dry_run=False, retention_ms=0, force=True)
    with pytest.raises(
        SegmentGoneError, match=r"A vacuum has removed it: .* or version 5 or later"
    ):
        table.to_df(version=2)
    assert table.to_df().count() == 60


def test_methods_of_a_deleted_topic_say_so(
    spark: SparkSession, table: LogTable, logs: Store
) -> None:
    table.append(keyed(spark, 30))
    logs.delete_topic("t")
    for method in (
        table.to_df,
        table.describe,
        table.history,
        table.merge,
        lambda: table.create_view("gone"),
        lambda: table.append(keyed(spark, 3)),
    ):
        with pytest.raises(TopicNotFoundError, match="has been deleted"):
            method()


def test_missing_topic_is_refused(spark: SparkSession, logs: Store, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFoundError, match=r"there is no topic at .*nope"):
        LogTable.for_path(spark, tmp_path / "logs" / "nope")


def test_repr_and_html(spark: SparkSession, logs: Store) -> None:
    name = "<script>alert(1)</script>"
    topic = logs.create_topic("t", 1, {name: pa.int32()}, key=name)
    table = LogTable.for_path(spark, topic.url)
    assert repr(table) == f"<LogTable 't' at {topic.url}>"
    html = table._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2
    assert "topic t" in html


def test_a_view_for_sql(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", 2, SCHEMA, key="k")
    topic.append(pa.table({"k": [f"u{n}" for n in range(50)], "v": range(50)}))
    table = LogTable.for_path(spark, topic.url)
    query = "SELECT v, offset FROM native_view WHERE partition = 1 AND offset BETWEEN 3 AND 6"
    try:
        table.create_view("native_view")
        expected = rows(topic.read(1, 3, 7), "v", "offset")
        assert sorted(map(tuple, spark.sql(query).collect())) == sorted(expected)
        topic.append(pa.table({"k": ["x"], "v": [50]}))
        assert spark.table("native_view").count() == 50
        table.create_view("native_view")
        assert spark.table("native_view").count() == 51
        table.create_view("native_view", 3, 5, ["v"], 1, partitions=1)
        assert spark.table("native_view").columns == ["v"]
        found = [row.v for row in spark.table("native_view").collect()]
        assert sorted(found) == sorted(rows(topic.read(1, 3, 5), "v"))
    finally:
        spark.catalog.dropTempView("native_view")
