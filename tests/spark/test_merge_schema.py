"""`mergeSchema`: a write adds the columns that its topic does not have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pylogtable import InvalidRequestError, SchemaMismatchError, Store, Topic
from pyspark_pylogtable import LogTable
from tests.builders import rows
from tests.spark.streams import read_stream, run
from tests.spark.support import failure
from tests.spark.writes import save, write

SCHEMA = {"id": pa.int64(), "item": pa.string()}


@pytest.fixture
def topic(logs: Store) -> Topic:
    topic = logs.create_topic("orders", 2, SCHEMA, "id")
    topic.append(pa.table({"id": [1], "item": ["tea"]}))
    return topic


def test_new_columns_are_added_before_the_append(spark: SparkSession, topic: Topic) -> None:
    df = spark.range(2, 4, 1, 2).selectExpr(
        "id", "'jam' AS item", "id / 2 AS half", "array(id) AS l"
    )
    said = failure(lambda: save(df, topic.url))
    assert "no column 'half'" in said
    assert 'option("mergeSchema", True)' in said
    save(df, topic.url, mergeSchema=True)
    save(df.selectExpr("id + 2 AS id", "half"), topic.url, mergeSchema=True)
    assert rows(topic.history(), "operation") == ["append", "append", "alter", "append", "create"]
    assert sorted(rows(topic.read(), "id", "item", "half", "l")) == [
        (1, "tea", None, None),
        (2, "jam", 1.0, [2]),
        (3, "jam", 1.5, [3]),
        (4, None, 1.0, None),
        (5, None, 1.5, None),
    ]


def test_append_of_a_table_adds_columns_too(spark: SparkSession, topic: Topic) -> None:
    table = LogTable.for_path(spark, topic.url)
    df = spark.range(2, 4).selectExpr("id", "'x' AS note")
    with pytest.raises(SchemaMismatchError, match="merge_schema=True"):
        table.append(df)
    table.append(df, merge_schema=True)
    assert sorted(rows(topic.read(), "id", "note")) == [(1, None), (2, "x"), (3, "x")]
    assert rows(topic.history(), "operation")[:2] == ["append", "alter"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("'x' AS Item", "'Item' differs only in case from 'item'"),
        ("'x' AS TimeStamp", "'TimeStamp' differs only in case from 'timestamp'"),
        ("1 AS n, array(1) AS item", "column 'item' is "),
        ("1 AS n, parse_json('1') AS v", "has the type variant"),
        ("1 AS n, NULL AS unknown", "column 'unknown'"),
    ],
)
def test_rows_that_do_not_fit_change_nothing(
    spark: SparkSession, topic: Topic, sql: str, message: str
) -> None:
    df = spark.range(1).selectExpr("id", *sql.split(", "))
    assert message in failure(lambda: save(df, topic.url, mergeSchema=True))
    with pytest.raises(InvalidRequestError, match=message):
        LogTable.for_path(spark, topic.url).append(df, merge_schema=True)
    assert topic.version == 1


def test_rows_that_name_their_topics_add_columns_to_each(
    logs: Store, topic: Topic, tmp_path: Path
) -> None:
    other = logs.create_topic("other", schema={"id": pa.int64()})
    table = pa.table({"topic": ["orders", "other"], "id": [2, 3], "note": ["a", "b"]})
    write(tmp_path / "logs", [table, table], mergeSchema=True)
    assert sorted(rows(other.read(), "id", "note")) == [(3, "b"), (3, "b")]
    assert rows(other.history(), "operation") == ["append", "alter", "create"]
    assert topic.schema.names[-1] == "note"


def test_a_stream_adds_columns(
    spark: SparkSession, topic: Topic, logs: Store, tmp_path: Path
) -> None:
    copy = logs.create_topic("copy", schema=SCHEMA, key="id")
    df = read_stream(spark, topic.url, startingOffsets="earliest")
    df = df.selectExpr("id", "item", "offset AS was_at")
    run(df, tmp_path / "c", copy.url, mergeSchema=True)
    assert rows(copy.read(), "id", "item", "was_at") == [(1, "tea", 0)]
