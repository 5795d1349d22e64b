"""The Spark part of the README's tour runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pylogtable
from tests.documents import code, read


@pytest.mark.timeout(900)
def test_every_spark_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    examples = [example for note, example in code(read("README.md"), "python") if note == "spark"]
    assert len(examples) == 4
    session: dict[str, object] = {"spark": spark}
    for example in examples:
        # Spark's processes have other working directories, so the examples name an absolute path.
        here = example.replace("/tmp/logs", f"{tmp_path}/logs")
        exec(compile(here, "README.md", "exec"), session)
    spark.catalog.dropTempView("orders")
    store = pylogtable.open(tmp_path / "logs")
    assert store.topics() == ["large", "orders"]
    assert store.topic("orders").count() == 1000
    assert store.topic("large").count() == 899  # half of the id, greater than 50
    assert session["before"].count() == 1000  # type: ignore[attr-defined]
    some = session["some"].groupBy("partition").count().collect()  # type: ignore[attr-defined]
    assert {row.partition: row["count"] for row in some} == {0: 200, 1: 100, 2: 100}
