"""Rows clustered by topic partition: one task each, in order, on every Spark version."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pylogtable
from pylogtable.engine import Placement, TopicWriter
from pyspark_pylogtable.table.clustering import cluster_by_partition

COUNT = 5


@pytest.fixture(scope="module")
def placement() -> Placement:
    store = pylogtable.open("memory://clustering")
    schema = {"user.id": pa.string(), "n": pa.int64(), "Partition": pa.int64()}
    return TopicWriter(store.create_topic("t", COUNT, schema, key="user.id")).placement()


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Rows of four tasks, every tenth without a key; `n` numbers them in order."""
    key = "IF(id % 10 = 0, NULL, concat('u', id % 97)) AS `user.id`"
    return spark.range(0, 2000, 1, 4).selectExpr(key, "id AS n")


def check(df: DataFrame, placement: Placement, first_free: int = 0) -> dict[int, list[int]]:
    """Cluster the rows, check where each went, and return the row numbers by task."""
    source = df.toArrow().combine_chunks()
    wanted = placement.partitions(source.to_batches()[0]).to_pylist()
    own = source["partition"].to_pylist() if "partition" in df.columns else [None] * len(wanted)
    clustered = cluster_by_partition(df, placement, first_free)
    found = clustered.withColumn("task", F.spark_partition_id()).toArrow().to_pylist()
    assert len(found) == len(wanted)
    by_task: dict[int, list[int]] = defaultdict(list)
    for row in found:
        number, task = row["n"], row["task"]
        by_task[task].append(number)
        if wanted[number] is None:
            assert row["partition"] == task
        else:
            assert task == wanted[number]
            assert row.get("partition") == own[number]
        assert row.get("Partition") == (number * 100 if "Partition" in df.columns else None)
    assert all(numbers == sorted(numbers) for numbers in by_task.values())
    assert set(by_task) <= set(range(placement.count))
    return by_task


def without(monkeypatch: pytest.MonkeyPatch, df: DataFrame, *names: str) -> None:
    """Remove functions that an older Spark does not have."""
    for name in names:
        for home in (F, *type(df).__mro__):
            if name in vars(home):
                monkeypatch.delattr(home, name)
    assert not any(hasattr(F, name) or hasattr(df, name) for name in names)


OLDER: list[tuple[str, ...]] = [(), ("arrow_udf",), ("arrow_udf", "repartitionById")]


@pytest.mark.parametrize("missing", OLDER, ids=["new", "no arrow_udf", "4.0"])
def test_rows_with_a_key_are_clustered_by_key(
    spark: SparkSession,
    rows: DataFrame,
    placement: Placement,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
) -> None:
    df = rows.withColumn("Partition", F.col("n") * 100)
    without(monkeypatch, df, *missing)
    assert set(check(df, placement)) == set(range(COUNT))


@pytest.mark.parametrize("missing", OLDER[::2], ids=["new", "4.0"])
def test_rows_with_a_partition_are_clustered_by_it(
    rows: DataFrame,
    placement: Placement,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
) -> None:
    without(monkeypatch, rows, *missing)
    df = rows.withColumn("partition", F.when(F.col("n") % 7 == 0, F.lit(2).cast("long")))
    by_task = check(df, placement)
    assert {number for number in range(2000) if number % 7 == 0} <= set(by_task[2])


def test_rows_without_a_key_column_are_spread_in_blocks(
    spark: SparkSession, placement: Placement
) -> None:
    df = spark.range(0, 6000, 1, 2).selectExpr("id AS n")
    by_task = check(df, placement, first_free=14)
    # The first task starts with partition 4, the second with the next one.
    assert by_task[4] == [*range(1024)]
    assert by_task[0] == [*range(1024, 2048), *range(3000, 4024)]
    assert by_task[1] == [*range(2048, 3000), *range(4024, 5048)]
    assert by_task[2] == [*range(5048, 6000)]
    assert by_task[3] == []


def test_rows_that_always_have_a_key_get_no_partition_column(
    spark: SparkSession, placement: Placement
) -> None:
    df = spark.range(100).selectExpr("concat('u', id) AS `user.id`", "id AS n")
    assert cluster_by_partition(df, placement).columns == ["user.id", "n"]
    nullable = df.selectExpr("nullif(`user.id`, 'x') AS `user.id`", "n")
    assert cluster_by_partition(nullable, placement).columns == ["user.id", "n", "partition"]


@pytest.mark.parametrize("missing", OLDER[::2], ids=["new", "4.0"])
def test_each_partition_has_its_own_task(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    store = pylogtable.open("memory://clustering")
    name = f"many{len(missing)}"
    many = TopicWriter(store.create_topic(name, 37, {"n": pa.int64()})).placement()
    df = spark.range(200).selectExpr("id AS n", "CAST(id % 37 AS int) AS partition")
    without(monkeypatch, df, *missing)
    by_task = check(df, many)
    assert by_task == {task: [*range(task, 200, 37)] for task in range(37)}
