"""A catalog of Spark that finds Iceberg tables by their folder."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

_numbers = itertools.count()


def hadoop_catalog(
    spark: SparkSession, warehouse: Path | str, settings: Mapping[str, str] | None = None
) -> str:
    """The name of a new catalog whose tables are the folders of a store."""
    name = f"logs{next(_numbers)}"
    key = f"spark.sql.catalog.{name}"
    spark.conf.set(key, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{key}.type", "hadoop")
    spark.conf.set(f"{key}.warehouse", str(warehouse))
    spark.conf.set(f"{key}.cache-enabled", "false")
    for setting, value in (settings or {}).items():
        spark.conf.set(f"{key}.{setting}", value)
    return name
