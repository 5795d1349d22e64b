"""Spark's bug that keeps us from pushing filters, as `spark_issue_push_filters.md` reports it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader

from pyspark_pylogtable.batch.reader import BatchReader
from tests.documents import code, read
from tests.spark.conftest import CONNECT

SETTING = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.skipif(
    not hasattr(DataSourceReader, "pushFilters"), reason="Spark 4.0 has no pushFilters"
)
@pytest.mark.skipif(CONNECT, reason="registers a class of this module")
def test_spark_still_gives_the_rows_of_another_scan(spark: SparkSession) -> None:
    """If this fails, Spark is right, and pushFilters is worth another look: decision 4."""
    ((_, example),) = code(read("spark_ext/spark_issue_push_filters.md"), "python")
    session: dict[str, Any] = {"spark": spark, "__name__": "__main__"}
    try:
        exec(compile(example, "spark_issue_push_filters.md", "exec"), session)
    finally:
        spark.conf.unset(SETTING)
    assert session["filtered"] == 2
    assert session["everything"] == 2, "10 would be right"
    assert session["halves"] != 7


def test_our_reader_pushes_no_filters() -> None:
    assert "pushFilters" not in vars(BatchReader)
