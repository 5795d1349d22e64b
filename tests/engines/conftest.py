"""Spark with the jars of Delta and Iceberg. `make test-engines` brings both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

JARS = "PYLOGTABLE_ENGINE_JARS"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = os.environ.get(JARS)
    if not folder:
        pytest.skip("no jars of Delta and Iceberg: make test-engines brings them")
    jars = ",".join(str(path) for path in sorted(Path(folder).glob("*.jar")))
    home = tmp_path_factory.mktemp("engines")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    yield session
    session.stop()
