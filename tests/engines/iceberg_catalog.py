"""A catalog of Spark that finds Iceberg tables by their folder."""

from __future__ import annotations

import itertools
from pathlib import Path

from pyspark.sql import SparkSession

_numbers = itertools.count()


def hadoop_catalog(spark: SparkSession, warehouse: Path) -> str:
    """The name of a new catalog whose tables are the folders of a store."""
    name = f"logs{next(_numbers)}"
    key = f"spark.sql.catalog.{name}"
    spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{key}.type", "hadoop")
    spark.conf.set(f"{key}.warehouse", str(warehouse))
    spark.conf.set(f"{key}.cache-enabled", "false")
    return name
