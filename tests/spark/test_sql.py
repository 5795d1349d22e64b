"""SQL: temporary views can be read and inserted into; other ways are refused with advice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pylogtable import Store, Topic
from tests.builders import at, kafka, rows, times
from tests.spark.support import failure, inserts_some_columns


@pytest.fixture
def orders(logs: Store) -> Topic:
    schema = {"id": pa.int64(), "item": pa.string()}
    topic = logs.create_topic("orders", 2, schema, "id")
    topic.append(pa.table({"id": [1, 2, 3], "item": ["tea", "jam", "rye"]}))
    return topic


def create_view(spark: SparkSession, name: str, path: Path, options: str = "") -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {name} USING pylogtable OPTIONS (path '{path}'{options})"
    )


@inserts_some_columns
def test_view_accepts_inserts_and_stays_at_its_version(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    create_view(spark, "orders", tmp_path / "logs" / "orders")
    assert spark.table("orders").columns == ["partition", "offset", "timestamp", "id", "item"]
    found = spark.sql("SELECT id, item FROM orders WHERE offset = 0 OR id > 2 ORDER BY id")
    assert (3, "rye") in [tuple(row) for row in found.collect()]
    spark.sql("INSERT INTO orders (id, item) VALUES (4, 'oat'), (5, NULL)")
    spark.sql(
        "INSERT INTO orders (item, id, timestamp) "
        "SELECT upper(item), id + 10, TIMESTAMP'2026-01-02 03:04:05Z' FROM orders"
    )
    assert orders.version == 3
    items = dict(rows(orders.read(), "id", "item"))
    before, upper = {1: "tea", 2: "jam", 3: "rye"}, {11: "TEA", 12: "JAM", 13: "RYE"}
    assert items == {**before, 4: "oat", 5: None, **upper}
    (stamp,) = {row[1] for row in rows(orders.read(), "id", "timestamp") if row[0] > 10}
    assert stamp.isoformat() == "2026-01-02T03:04:05+00:00"
    assert orders.verify(data=True)
    assert spark.sql("SELECT count(*) AS n FROM orders").first()["n"] == 3
    create_view(spark, "orders", tmp_path / "logs" / "orders")
    assert spark.sql("SELECT count(*) AS n FROM orders").first()["n"] == 8


@inserts_some_columns
def test_insert_into_a_view_of_a_kafka_shaped_topic(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", 2)
    create_view(spark, "kafka_shaped", tmp_path / "logs" / "t")
    spark.sql("INSERT INTO kafka_shaped (key, value) VALUES (X'6B', X'76'), (X'6B', NULL)")
    spark.sql("INSERT INTO kafka_shaped (value, partition) VALUES (X'31', 1)")
    found = sorted(rows(topic.read(), "key", "value"), key=str)
    assert found == [(None, b"1"), (b"k", None), (b"k", b"v")]
    assert (b"1", 1) in rows(topic.read(), "value", "partition")
    said = failure(lambda: spark.sql("INSERT INTO kafka_shaped (value, offset) VALUES (X'31', 7)"))
    assert "column 'offset' is given by the log and cannot be written; drop it" in said
    assert topic.count() == 3


@inserts_some_columns
def test_view_with_read_options_refuses_inserts(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t")
    topic.append(kafka(["a", "b", "c"], timestamp=times(0, 1, 2)))
    options = """, startingOffsets '{"t":{"0":1}}'"""
    create_view(spark, "tail", tmp_path / "logs" / "t", options)
    found = spark.sql("SELECT offset, timestamp FROM tail ORDER BY offset").collect()
    assert [row.offset for row in found] == [1, 2]
    said = failure(lambda: spark.sql("INSERT INTO tail (value) VALUES (X'31')"))
    assert "startingOffsets is for reading, and this is a write" in said
    assert topic.version == 1
    assert rows(topic.read(), "timestamp") == [at(0), at(1), at(2)]


@inserts_some_columns
def test_overwriting_a_view_is_refused(spark: SparkSession, orders: Topic, tmp_path: Path) -> None:
    create_view(spark, "orders", tmp_path / "logs" / "orders")
    said = failure(lambda: spark.sql("INSERT OVERWRITE orders (id, item) VALUES (9, 'x')"))
    assert "never overwritten" in said
    assert orders.count() == 3


@pytest.mark.parametrize(
    "rest",
    [
        "USING pylogtable OPTIONS (path '{path}')",
        "USING pylogtable LOCATION '{path}'",
        "USING pylogtable LOCATION '{path}' AS SELECT 9L AS id, 'x' AS item",
    ],
)
def test_catalog_table_is_refused_at_once(
    spark: SparkSession, orders: Topic, tmp_path: Path, rest: str
) -> None:
    statement = "CREATE TABLE listed " + rest.format(path=tmp_path / "logs" / "orders")
    advised(failure(lambda: spark.sql(statement)))
    assert not spark.catalog.tableExists("listed")
    assert orders.version == 1


def test_save_as_table_is_refused_at_once_without_a_path(spark: SparkSession) -> None:
    writer = spark.range(1).write.format("pylogtable").mode("append")
    advised(failure(lambda: writer.saveAsTable("listed")))
    assert not spark.catalog.tableExists("listed")


def test_saved_table_with_a_path_says_what_to_do_when_it_is_used(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    """Spark passes the same to a sink as for `save`, so the write itself cannot be refused."""
    path = tmp_path / "logs" / "orders"
    df = spark.createDataFrame([(4, "oat")], "id long, item string")
    df.write.format("pylogtable").mode("append").option("path", str(path)).saveAsTable("listed")
    try:
        for statement in ("SELECT * FROM listed", "INSERT INTO listed VALUES (1, 'x')"):
            advised(failure(lambda statement=statement: spark.sql(statement).collect()))
        assert orders.count() == 4
        assert spark.sql(f"SELECT id FROM listed WITH (path='{path}')").count() == 4
    finally:
        spark.sql("DROP TABLE listed")


def advised(said: str) -> None:
    assert "A catalog table (CREATE TABLE … USING pylogtable, saveAsTable) does not work" in said
    assert "CREATE TEMPORARY VIEW v USING pylogtable OPTIONS (path '<path>')" in said
    assert 'create_view("v")' in said
    assert "LogTable.publish" in said
    assert "saveAsTable with a path has appended its rows to the topic there" in said


def test_spark_refuses_a_path_instead_of_a_table_name(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    said = failure(lambda: spark.sql(f"SELECT * FROM pylogtable.`{tmp_path}/logs/orders`"))
    assert "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY" in said
