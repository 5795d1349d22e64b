"""Rows that the driver has, as a DataFrame."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def df_of_rows(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Like `spark.createDataFrame`, which fails at nested columns without a chunk."""
    if not rows.num_rows:
        rows = rows.schema.empty_table()
    return spark.createDataFrame(rows, schema)
