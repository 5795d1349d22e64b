"""pylogtable, by `format("pylogtable")` and by `LogTable`."""

from __future__ import annotations

import json
import shutil
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import pylogtable
from benchmarks.peers.orders import COLUMNS, KEY, PARTITIONS, VALUES
from benchmarks.peers.peer import Offsets, middle_offsets
from pyspark_pylogtable import LogTable


class ByFormat:
    name = "format"

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = f"{folder}/{type(self).__name__}"

    def create(self, table: str) -> None:
        pylogtable.open(self._folder).create_topic(table, PARTITIONS, VALUES, KEY)

    def drop(self, table: str) -> None:
        shutil.rmtree(self._path(table))

    def append(self, table: str, rows: DataFrame) -> None:
        rows.write.format("pylogtable").mode("append").save(self._path(table))

    def read(self, table: str) -> DataFrame:
        return self._spark.read.format("pylogtable").load(self._path(table)).select(*COLUMNS)

    def bounds(self, table: str, rows: int) -> Offsets:
        return middle_offsets(pylogtable.open_topic(self._path(table)).end_offsets())

    def part(self, table: str, bounds: Offsets) -> DataFrame:
        low, high = map(json.dumps, bounds)
        reader = self._spark.read.format("pylogtable")
        reader = reader.option("startingOffsets", low).option("endingOffsets", high)
        return reader.load(self._path(table)).select(*COLUMNS)

    def stream(self, table: str) -> DataFrame:
        reader = self._spark.readStream.format("pylogtable")
        return reader.option("startingOffsets", "earliest").load(self._path(table)).select(*COLUMNS)

    def start(self, stream: DataFrame, table: str, checkpoint: str) -> StreamingQuery:
        writer = stream.writeStream.option("checkpointLocation", checkpoint)
        return writer.format("pylogtable").start(self._path(table))

    def _path(self, table: str) -> str:
        return f"{self._folder}/{table}"


class ByLogTable(ByFormat):
    """Appends by `LogTable.append`, reads by `to_df`. Streams are those of `format`."""

    name = "LogTable"

    def append(self, table: str, rows: DataFrame) -> None:
        self._table(table).append(rows)

    def read(self, table: str) -> DataFrame:
        return self._table(table).to_df().select(*COLUMNS)

    def part(self, table: str, bounds: Offsets) -> DataFrame:
        low, high = bounds
        return self._table(table).to_df(start=low, end=high).select(*COLUMNS)

    def _table(self, table: str) -> Any:
        return LogTable.for_path(self._spark, self._path(table))
