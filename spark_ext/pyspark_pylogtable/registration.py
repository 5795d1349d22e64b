"""Registers the source by hand, for sessions that looked for sources before it was installed."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_pylogtable.source import LogTableSource


def register(spark: SparkSession) -> None:
    """Make `format("pylogtable")` known to this session.

    Call it once after a `%pip install` in a running notebook. Otherwise Spark finds the installed
    package by itself.
    """
    try:
        spark.dataSource.register(LogTableSource)
    except PySparkException as error:
        # Spark 4.0 refuses to register a source that it has already found by itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
