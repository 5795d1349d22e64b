"""The Spark examples of the root README run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.support import inserts_some_columns, run_examples


@inserts_some_columns
@pytest.mark.timeout(900)
def test_every_spark_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    store, _ = run_examples(spark, "README.md", tmp_path)
    assert "orders" in store.topics()
    for name in store.topics():
        report = store.topic(name).verify(data=True)
        assert report, report
