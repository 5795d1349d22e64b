"""Delta on Spark reads published tables: rows, catalog tables, time travel, streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import Topic
from pylogtable.storage.local import LocalStore
from tests.engines.topics import append, everything, make_topic, streamed
from tests.publish.histories import MAPPED, History
from tests.publish.newest_query import customers, expected_rows, guide_query, sorted_rows
from tests.publish.plain_delta import entries, shown_version

ORDER = [("partition", "ascending"), ("offset", "ascending")]


def rows(df: DataFrame, schema: pa.Schema) -> list[dict[str, Any]]:
    table = df.toArrow()
    assert table.column_names == schema.names
    plain = pa.schema([(field.name, field.type) for field in schema])
    found: list[dict[str, Any]] = table.cast(plain).sort_by(ORDER).to_pylist()
    return found


@pytest.mark.parametrize("seed", range(6))
def test_spark_reads_every_version_after_a_random_history(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    history = History(pylogtable.open(str(tmp_path)), seed)
    for operation in ("publish", *history.rng.choices(MAPPED, k=25), "publish"):
        history.do(operation)
    topic, folder = history.topic, tmp_path / "orders"
    log = entries(LocalStore(folder))
    for at in {0, len(log) // 2, len(log) - 1}:
        expected = topic.read(version=shown_version(log[at])).read_all()
        found = spark.read.format("delta").option("versionAsOf", at).load(str(folder))
        wanted = expected.sort_by(ORDER).to_pylist()
        assert rows(found, expected.schema) == wanted, f"seed {seed}, version {at}"


@pytest.fixture
def orders(tmp_path: Path) -> Topic:
    topic = make_topic(tmp_path)
    topic.publish()
    return topic


def test_topic_is_a_table_of_the_catalog(spark: SparkSession, orders: Topic) -> None:
    spark.sql(f"CREATE TABLE orders USING delta LOCATION '{orders.url}'")
    try:
        (first,) = spark.sql("SELECT count(*), max(offset), max(id) FROM orders").collect()
        assert first[0] == 100
        append(orders, 1)
        orders.publish()
        assert spark.sql("SELECT count(*) FROM orders").first()[0] == 200
        assert spark.sql("SELECT count(*) FROM orders VERSION AS OF 0").first()[0] == 100
        some = spark.sql("SELECT * FROM orders WHERE partition = 1 AND offset >= 40")
        expected = orders.read(1, 40).read_all()
        assert rows(some, expected.schema) == expected.sort_by(ORDER).to_pylist()
        assert spark.sql("SELECT min(offset), max(id) FROM orders").first() == (0, 199)
    finally:
        spark.sql("DROP TABLE orders")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO delta.`{0}` SELECT * FROM delta.`{0}`",
        "DELETE FROM delta.`{0}`",
        "OPTIMIZE delta.`{0}`",
        "VACUUM delta.`{0}`",
    ],
)
def test_spark_cannot_write_the_table(spark: SparkSession, orders: Topic, statement: str) -> None:
    folder = orders.url.removeprefix("file://")
    append(orders, 1)
    orders.publish()  # two files a partition, so that OPTIMIZE has something to do
    with pytest.raises(Exception, match="pylogtable"):
        spark.sql(statement.format(folder)).collect()
    assert spark.read.format("delta").load(folder).count() == 200
    assert orders.verify(data=True)


def test_stream_over_an_appended_topic_never_stops(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    assert streamed(spark, "delta", orders, tmp_path) == everything(orders)
    for number in range(1, 4):
        append(orders, number)
        orders.merge()
        append(orders, number + 10)
        orders.publish()
        assert streamed(spark, "delta", orders, tmp_path) == everything(orders)


def test_stream_over_a_compacted_topic_skips_what_vanishes(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(tmp_path, "users", "compact")
    topic.publish()
    skip = {"skipChangeCommits": "true"}
    assert streamed(spark, "delta", topic, tmp_path, **skip) == everything(topic)
    for _ in range(2):
        append(topic, 0)
        topic.compact(force=True)
        append(topic, 0)
        topic.publish()
        assert streamed(spark, "delta", topic, tmp_path, **skip) == everything(topic)
    assert spark.read.format("delta").load(topic.url).count() == topic.count()


def test_view_of_the_guide_shows_what_latest_shows(spark: SparkSession, tmp_path: Path) -> None:
    topic = customers(pylogtable.open(tmp_path), seed=3)
    topic.publish()
    spark.sql(f"CREATE TABLE customers USING delta LOCATION '{topic.url}'")
    try:
        spark.sql(f"CREATE VIEW customers_now AS {guide_query()}")
        found = spark.sql("SELECT * FROM customers_now").toArrow()
        assert sorted_rows(found) == expected_rows(topic)
        spark.sql("DROP VIEW customers_now")
    finally:
        spark.sql("DROP TABLE customers")
