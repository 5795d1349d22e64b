"""Registers the source by hand, for sessions that looked for sources before it was installed."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_pylogtable.shipped import zip_of_wheel
from pyspark_pylogtable.source import LogTableSource


def register(spark: SparkSession) -> None:
    """Make `format("pylogtable")` known to this session.

    Call it once after a `%pip install` in a running notebook, and in a job that gets the package by
    `--py-files`. Otherwise Spark finds the installed package by itself.
    """
    if (archive := zip_of_wheel()) is not None:
        _ship(spark, str(archive))
    if not _is_registered(spark):
        # Spark 4.0 and 4.1 ask the active session whether it has the source, not this one.
        active = SparkSession.getActiveSession()
        _make_active(spark)
        try:
            _is_registered(spark)  # if it is refused again, this session has found it by itself
        finally:
            if active is not None:
                _make_active(active)


def _ship(spark: SparkSession, archive: str) -> None:
    if hasattr(spark, "addArtifacts"):
        spark.addArtifacts(archive, pyfile=True)
    else:  # Spark 4.0 has it with Connect only
        spark.sparkContext.addPyFile(archive)


def _is_registered(spark: SparkSession) -> bool:
    """Register the source; False if Spark says that a session has it already."""
    try:
        spark.dataSource.register(LogTableSource)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
        return False
    return True


def _make_active(spark: SparkSession) -> None:
    """Spark has no call for it, but a session that makes a DataFrame becomes active."""
    spark.createDataFrame([], "nothing int")
