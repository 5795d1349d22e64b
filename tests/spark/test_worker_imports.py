"""What Spark's Python workers do when Spark tells Python to look at its archives again."""

from __future__ import annotations

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


def test_workers_of_spark_before_4_3_read_only_changed_archives_again(spark: SparkSession) -> None:
    """Newer ones do not ask for it at every task, and are left alone."""

    def home() -> str:
        import zipimport

        import pyspark_pylogtable  # noqa: F401

        return zipimport.zipimporter.invalidate_caches.__module__

    (row,) = spark.range(1).select(udf(home, "string")().alias("home")).collect()
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    assert row.home == ("pyspark_pylogtable.worker_imports" if version < (4, 3) else "zipimport")
