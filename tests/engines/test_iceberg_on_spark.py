"""Iceberg on Spark reads published tables: rows, by path and by catalog, time travel, streams."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import Topic
from tests.engines.iceberg_catalog import hadoop_catalog
from tests.engines.topics import append, everything, make_topic, streamed
from tests.publish.histories import MAPPED, History
from tests.publish.plain_iceberg import expected_rows, open_table, rows


def read(spark: SparkSession, folder: Path, snapshot_id: int | None = None) -> DataFrame:
    reader = spark.read.format("iceberg")
    if snapshot_id is not None:
        reader = reader.option("versionAsOf", snapshot_id)
    return reader.load(str(folder))


@pytest.mark.parametrize("seed", range(3))
def test_spark_reads_every_version_after_a_random_history(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    history = History(pylogtable.open(str(tmp_path)), seed, ("iceberg",))
    for operation in ("publish", *history.rng.choices(MAPPED, k=25), "publish"):
        history.do(operation)
    topic, folder = history.topic, tmp_path / "orders"
    schema, expected = expected_rows(topic, topic.version)
    assert rows(read(spark, folder).toArrow(), schema) == expected, f"seed {seed}, by path"
    by_catalog = spark.table(f"{hadoop_catalog(spark, tmp_path)}.orders")
    assert rows(by_catalog.toArrow(), schema) == expected, f"seed {seed}, by catalog"
    # A merge may come with the columns of the step after it.
    snapshots = [
        (snapshot.snapshot_id, int(summary["pylogtable.version"] or 0))
        for snapshot in open_table(folder).snapshots()
        if (summary := snapshot.summary) and summary.operation.value != "replace"
    ]
    for snapshot_id, version in {snapshots[0], snapshots[len(snapshots) // 2]}:
        schema, expected = expected_rows(topic, version)
        found = read(spark, folder, snapshot_id).toArrow()
        assert rows(found, schema) == expected, f"seed {seed}, version {version}"


@pytest.fixture
def orders(tmp_path: Path) -> Topic:
    topic = make_topic(tmp_path)
    topic.publish(["iceberg"])
    return topic


def test_topic_is_a_table_of_a_hadoop_catalog(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    name = f"{hadoop_catalog(spark, tmp_path)}.orders"
    assert spark.sql(f"SELECT count(*), max(id) FROM {name}").first() == (100, 99)
    append(orders, 1)
    orders.publish(["iceberg"])
    assert spark.sql(f"SELECT count(*) FROM {name}").first() == (200,)
    snapshots = spark.sql(
        f"SELECT int(summary['pylogtable.version']), snapshot_id FROM {name}.snapshots"
    )
    ids = dict(tuple(row) for row in snapshots.collect())
    assert list(ids) == [1, 2]
    assert spark.sql(f"SELECT count(*) FROM {name} VERSION AS OF {ids[1]}").first() == (100,)
    some = spark.sql(f"SELECT * FROM {name} WHERE partition = 1 AND offset >= 20")
    expected = orders.read(1, 20).read_all()
    assert rows(some.toArrow(), expected.schema) == expected.to_pylist()
    by_key = spark.sql(f"SELECT amount FROM {name} WHERE id = 150")
    assert by_key.first() == (150.0,)


def test_stream_over_an_appended_topic_never_stops(
    spark: SparkSession, orders: Topic, tmp_path: Path
) -> None:
    assert streamed(spark, "iceberg", orders, tmp_path) == everything(orders)
    for number in range(1, 3):
        append(orders, number)
        orders.merge()
        append(orders, number + 10)
        orders.publish(["iceberg"])
        assert streamed(spark, "iceberg", orders, tmp_path) == everything(orders)


def test_stream_over_a_compacted_topic_skips_what_vanishes(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = make_topic(tmp_path, "users", "compact")
    topic.publish(["iceberg"])
    skip = {
        "streaming-skip-delete-snapshots": "true",
        "streaming-skip-overwrite-snapshots": "true",
    }
    assert streamed(spark, "iceberg", topic, tmp_path, **skip) == everything(topic)
    append(topic, 0)
    topic.compact(force=True)
    append(topic, 0)
    topic.publish(["iceberg"])
    assert streamed(spark, "iceberg", topic, tmp_path, **skip) == everything(topic)
    assert read(spark, tmp_path / "users").count() == topic.count()
