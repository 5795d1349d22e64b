"""The query of the guide of published tables in Spark SQL, and who publishes from Spark is told."""

from __future__ import annotations

import warnings
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from pylogtable import Store
from pyspark_pylogtable import LogTable
from tests.publish.newest_query import customers, expected_rows, guide_query, sorted_rows


def test_query_of_the_guide_gives_what_latest_gives(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = customers(logs, seed=7)
    table = LogTable.for_path(spark, topic.url)
    with pytest.warns(UserWarning, match="is compacted, but a published table") as caught:
        report = table.publish()
    assert [warning.filename for warning in caught] == [__file__]
    assert (report.tables[0].records_not_compacted or 0) > 0
    shown = deltalake.DeltaTable(str(tmp_path / "logs" / "customers")).to_pyarrow_table()
    spark.createDataFrame(shown).createOrReplaceTempView("customers_in_delta")
    newest = spark.sql(guide_query("customers_in_delta")).toArrow()
    assert sorted_rows(newest) == expected_rows(topic)
    assert newest.num_rows < topic.count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.maintain()
