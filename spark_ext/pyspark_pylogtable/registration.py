"""Registering the source by hand, for sessions in which Spark looked for sources too early."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_pylogtable.source import LogTableSource


def register(spark: SparkSession) -> None:
    """Make `format("pylogtable")` known to this session. Spark finds it by itself where the package
    was installed before the session began; after a `%pip install` in a notebook it may not have."""
    try:
        spark.dataSource.register(LogTableSource)
    except PySparkException as error:
        # Spark 4.0 refuses to register what it has found by itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
