"""Renamed and dropped columns in Spark: both ways to read, writes, and streams that are running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pylogtable import Store, Topic
from pyspark_pylogtable import LogTable
from tests.builders import rows, topic_of_older_writer
from tests.spark.streams import EARLIEST, read_stream, run, start, until
from tests.spark.support import failure, in_order, load, without_spark
from tests.spark.test_native import check_same, entry, natively, plan_of, stage_thrice

pytestmark = pytest.mark.records_in("files")

SCHEMA = {"id": pa.int64(), "a": pa.string(), "b": pa.string(), "note": pa.string()}


@pytest.fixture
def topic(logs: Store) -> Topic:
    """Version 2 has other names than version 1, and a new column under a dropped name. Some files
    are shifted."""
    made = logs.create_topic("t", 1, SCHEMA, key="id")
    first = pa.table({name: pa.array(["p", "q", "r"]) for name in ("a", "b", "note")})
    made.append(first.append_column("id", pa.array([1, 2, 3])))
    made.alter(
        rename_columns={"a": "b", "b": "a word"},
        drop_columns=["note"],
        add_columns={"note": pa.int64()},
    )
    second = {"id": [4, 5, 6], "b": ["x", "y", "z"], "a word": ["s", "t", "u"], "note": [7, 8, 9]}
    stage_thrice(made, pa.table(second))
    return made


def test_both_ways_to_read_show_the_new_names(spark: SparkSession, topic: Topic) -> None:
    expected = without_spark(topic.url)
    assert expected.column_names[3:] == ["id", "b", "a word", "note"]
    assert expected["b"].to_pylist() == rows(topic.read(), "b")
    assert expected["note"].to_pylist()[:4] == [None, None, None, 7]
    check_same(natively(spark, topic), expected)
    check_same(load(spark, topic.url), expected)
    some = load(spark, topic.url, columns='["offset", "a word"]')
    assert [row["a word"] for row in some.collect()] == expected["a word"].to_pylist()
    chosen = spark.read.format("pylogtable").schema("b string, note long").load(topic.url)
    assert [row.note for row in chosen.collect()] == expected["note"].to_pylist()


def test_older_versions_have_their_columns(spark: SparkSession, topic: Topic) -> None:
    expected = without_spark(topic.url, versionAsOf=1)
    assert expected.column_names[3:] == list(SCHEMA)
    assert expected["note"].to_pylist() == ["p", "q", "r"]
    check_same(natively(spark, topic, version=1), expected)


def test_filters_on_renamed_columns_reach_the_files(spark: SparkSession, topic: Topic) -> None:
    df = natively(spark, topic, end=3).where("`a word` = 'q' AND b > 'a'").select("offset", "note")
    assert [(row.offset, row.note) for row in df.collect()] == [(1, None)]
    (pushed,) = entry(plan_of(df), "PushedFilters")
    assert "EqualTo(b,q)" in pushed
    assert "GreaterThan(a,a)" in pushed
    assert "note:" not in entry(plan_of(df), "ReadSchema")[0]
    LogTable.for_path(spark, topic.url).create_view("renamed")
    found = spark.sql("SELECT `a word` FROM renamed WHERE b = 'x'").collect()
    assert [row[0] for row in found] == ["s"]
    spark.catalog.dropTempView("renamed")


def test_the_newest_records_of_keys_have_the_new_names(spark: SparkSession, topic: Topic) -> None:
    newest = in_order(LogTable.for_path(spark, topic.url).to_df(view="latest"))
    assert [(row.id, row.b) for row in newest] == rows(topic.latest(), "id", "b")


def test_names_in_files_that_differ_in_case_are_read_by_python(
    spark: SparkSession, logs: Store
) -> None:
    topic = topic_of_older_writer(logs, "cases", {"x": pa.string(), "X": pa.string()})
    topic.append(pa.table({"x": ["small"], "X": ["large"]}))
    topic.alter(drop_columns=["X"])
    with pytest.warns(UserWarning, match="names in the files differ in case only"):
        df = natively(spark, topic, columns=["x"])
    assert [row.x for row in df.collect()] == ["small"]


def test_a_dataframe_is_written_by_the_new_names(spark: SparkSession, topic: Topic) -> None:
    before = topic.end_offsets()[0]
    row = {"id": [10], "b": ["new"], "note": [1]}
    df = spark.createDataFrame(pa.table(row))
    df.write.format("pylogtable").mode("append").save(topic.url)
    LogTable.for_path(spark, topic.url).append(df)
    assert rows(topic.read(start=before), "id", "b", "a word", "note") == [(10, "new", None, 1)] * 2
    old = spark.createDataFrame(pa.table({"id": [10], "a": ["old"]}))
    message = failure(lambda: old.write.format("pylogtable").mode("append").save(topic.url))
    assert "no column 'a'; it was renamed to 'b'" in message


def test_jobs_leave_the_rows_as_they_are(spark: SparkSession, topic: Topic) -> None:
    expected = without_spark(topic.url)
    assert LogTable.for_path(spark, topic.url).merge().units == 1
    check_same(natively(spark, topic), expected)
    assert topic.verify(data=True)


def test_a_running_stream_says_to_restart_and_goes_on_after_that(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    source = logs.create_topic("source", 1, {"a": pa.string(), "b": pa.string()})
    copy = logs.create_topic("copy", 1, {"a": pa.string(), "was_at": pa.int64()})
    source.append(pa.table({"a": ["1"]}))

    def stream(column: str) -> Any:
        df = read_stream(spark, source.url, **EARLIEST)
        return df.selectExpr(f"`{column}` AS a", "offset AS was_at")

    query = start(
        stream("a"), tmp_path / "c", copy.url, trigger={"processingTime": "10 milliseconds"}
    )
    try:
        until(lambda: copy.count() == 1)
        source.alter(rename_columns={"a": "name"})
        source.append(pa.table({"name": ["2"]}))
        message = failure(lambda: query.awaitTermination(600))
    finally:
        query.stop()
    assert "renamed or dropped while this query ran" in message
    assert "Restart it with the same checkpoint" in message
    assert run(stream("name"), tmp_path / "c", copy.url) == [1]
    assert rows(copy.read(), "a", "was_at") == [("1", 0), ("2", 1)]


def test_a_stream_into_a_topic_whose_column_was_renamed_fails_and_names_it(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    source = logs.create_topic("source", 1, {"a": pa.string()})
    copy = logs.create_topic("copy", 1, {"a": pa.string()})
    source.append(pa.table({"a": ["1"]}))
    df = read_stream(spark, source.url, **EARLIEST)
    query = start(
        df.select("a"), tmp_path / "c", copy.url, trigger={"processingTime": "10 milliseconds"}
    )
    try:
        until(lambda: copy.count() == 1)
        copy.alter(rename_columns={"a": "name"})
        source.append(pa.table({"a": ["2"]}))
        message = failure(lambda: query.awaitTermination(600))
    finally:
        query.stop()
    assert "no column 'a'; it was renamed to 'name'" in message
    assert run(df.selectExpr("a AS name"), tmp_path / "c", copy.url) == [1]
    assert rows(copy.read(), "name") == ["1", "2"]
