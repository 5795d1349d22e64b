"""Spark on each store: executors open it themselves, with the options of the query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pylogtable
from tests.builders import IN_FILES
from tests.spark.conftest import spark  # noqa: F401
from tests.spark.streams import COPIED, EARLIEST, copied, places, read_stream, start
from tests.spark.support import load


@pytest.mark.parametrize("where", ["files", "commits"])
def test_batches_and_a_stream(
    spark: SparkSession,  # noqa: F811
    address: str,
    near: dict[str, Any],
    tmp_path: Path,
    where: str,
) -> None:
    credentials = {"storageOptions": json.dumps(near)}
    config = IN_FILES if where == "files" else {}
    df = spark.range(100).selectExpr("cast(id AS string) key", "concat('v', id) value")
    writer = df.repartition(2).write.format("pylogtable").mode("append").options(**credentials)
    writer.options(partitions=2, **config).save(f"{address}/t")
    found = load(spark, f"{address}/t", **credentials).selectExpr("cast(value AS string) value")
    assert sorted(row.value for row in found.collect()) == sorted(f"v{n}" for n in range(100))

    stream = read_stream(spark, f"{address}/t", **EARLIEST, **credentials).selectExpr(*COPIED)
    store = pylogtable.open(address, storage_options=near)
    for _ in range(2):
        query = start(stream, tmp_path, f"{address}/copied", partitions=2, **credentials, **config)
        assert query.awaitTermination(120)
        assert copied(store.topic("copied")) == places(store.topic("t"))
        writer.save(f"{address}/t")
