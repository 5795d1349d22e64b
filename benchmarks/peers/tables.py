"""Delta and Iceberg. They know no offsets, so a range is one of order numbers."""

from __future__ import annotations

import shutil

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.peers.orders import COLUMNS, SCHEMA
from benchmarks.peers.peer import middle

#: What the session has to be told, before it starts, so that it knows Delta and Iceberg.
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta works out the state of a table in 50 tasks otherwise, which two cores do slowly.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_CATALOG = "peers"


def iceberg_conf(folder: str) -> dict[str, str]:
    key = f"spark.sql.catalog.{_CATALOG}"
    return {
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "hadoop",
        f"{key}.warehouse": f"{folder}/iceberg",
    }


class Delta:
    name = "Delta"

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = f"{folder}/delta"

    def create(self, table: str) -> None:
        self._spark.sql(f"CREATE TABLE delta.`{self._path(table)}` ({SCHEMA}) USING delta")

    def drop(self, table: str) -> None:
        shutil.rmtree(self._path(table))

    def append(self, table: str, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(self._path(table))

    def read(self, table: str) -> DataFrame:
        return self._spark.read.format("delta").load(self._path(table)).select(*COLUMNS)

    def bounds(self, table: str, rows: int) -> tuple[int, int]:
        return middle(rows)

    def part(self, table: str, bounds: tuple[int, int]) -> DataFrame:
        return self.read(table).where(_between(bounds))

    def stream(self, table: str) -> DataFrame:
        return self._spark.readStream.format("delta").load(self._path(table)).select(*COLUMNS)

    def start(self, stream: DataFrame, table: str, checkpoint: str) -> StreamingQuery:
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        return writer.format("delta").start(self._path(table))

    def _path(self, table: str) -> str:
        return f"{self._folder}/{table}"


class Iceberg:
    name = "Iceberg"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def create(self, table: str) -> None:
        self._spark.sql(f"CREATE TABLE {_known(table)} ({SCHEMA}) USING iceberg")

    def drop(self, table: str) -> None:
        self._spark.sql(f"DROP TABLE {_known(table)} PURGE")

    def append(self, table: str, rows: DataFrame) -> None:
        rows.writeTo(_known(table)).append()

    def read(self, table: str) -> DataFrame:
        return self._spark.table(_known(table)).select(*COLUMNS)

    def bounds(self, table: str, rows: int) -> tuple[int, int]:
        return middle(rows)

    def part(self, table: str, bounds: tuple[int, int]) -> DataFrame:
        return self.read(table).where(_between(bounds))

    def stream(self, table: str) -> DataFrame:
        return self._spark.readStream.format("iceberg").load(_known(table)).select(*COLUMNS)

    def start(self, stream: DataFrame, table: str, checkpoint: str) -> StreamingQuery:
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        return writer.format("iceberg").toTable(_known(table))


def _known(table: str) -> str:
    return f"{_CATALOG}.logs.`{table}`"


def _between(bounds: tuple[int, int]) -> str:
    return f"order_id >= {bounds[0]} AND order_id < {bounds[1]}"
