"""Delta and Iceberg on Spark read tables that show the newest record of each key."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable.storage.local import LocalStore
from tests.publish.latest_histories import OPERATIONS, LatestHistory, expected, view_at
from tests.publish.plain_delta import entries, shown_version, vectors_at
from tests.publish.plain_iceberg import open_table, rows

FORMATS = ("delta", "iceberg")


def load(spark: SparkSession, name: str, folder: Path, at: int | None = None) -> DataFrame:
    reader = spark.read.format(name)
    return (reader if at is None else reader.option("versionAsOf", at)).load(str(folder))


@pytest.mark.parametrize("seed", range(4))
def test_spark_reads_what_latest_finds_after_a_random_history(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    history = LatestHistory(pylogtable.open(str(tmp_path)), seed, FORMATS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for operation in ("publish", *history.rng.choices(OPERATIONS, k=25), "publish"):
            history.do(operation)
    topic, folder = history.topic, tmp_path / "orders"
    wanted = expected(topic, topic.version, view_at(topic, topic.version))
    for name in FORMATS:
        assert rows(load(spark, name, folder).toArrow(), wanted.schema) == wanted.to_pylist(), name
        assert load(spark, name, folder).count() == wanted.num_rows
    log = entries(LocalStore(folder))
    for at in {0, len(log) // 2}:
        version = shown_version(log[at])
        older = expected(topic, version, view_at(topic, version))
        assert rows(load(spark, "delta", folder, at).toArrow(), older.schema) == older.to_pylist()


@pytest.mark.parametrize("keys", [5, 20_000])
def test_spark_reads_small_and_large_vectors(
    spark: SparkSession, tmp_path: Path, keys: int
) -> None:
    """Also answers that it takes from metadata: hidden rows have the least and greatest values."""
    config = {"cleanup.policy": "compact", "publish.view": "latest", "inline.max.bytes": 0}
    columns = {"id": pa.int64(), "v": pa.float64()}
    topic = pylogtable.open(str(tmp_path)).create_topic("t", 2, columns, "id", config=config)
    topic.append(pa.table({"id": list(range(keys)), "v": [1.0] * keys}))
    even = list(range(0, keys, 2))
    topic.append(pa.table({"id": even, "v": [2.0] * len(even)}))
    topic.publish(FORMATS)
    topic.append(pa.table({"id": [0, keys - 1], "v": pa.array([None, None], pa.float64())}))
    topic.publish(FORMATS)
    vectors = vectors_at(entries(LocalStore(tmp_path / "t"))).values()
    assert {v["storageType"] for v in vectors if v} == ({"i"} if keys == 5 else {"u"})
    total = pc.sum(expected(topic, topic.version, "latest")["v"]).as_py()
    for name in FORMATS:
        table = load(spark, name, tmp_path / "t")
        found = table.selectExpr("count(*)", "min(id)", "max(id)", "sum(v)").first()
        assert found is not None
        assert tuple(found) == (keys - 2, 1, keys - 2, total), name
        assert table.filter("id = 0").count() == 0
    assert open_table(tmp_path / "t").scan().count() == keys - 2
