"""What Spark tests share: reading with options, the rows in the order of the log, failures."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.columns import arrow_schema

Path = str | os.PathLike[str]

inserts_some_columns = pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."),
    reason="Spark 4.0 wants every column of a source in an INSERT",
)


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    df = spark.read.format("pylogtable").options(**options).load(os.fspath(path))
    assert df.columns  # with Spark Connect nothing happens before this
    return df


def values(df: DataFrame) -> list[int]:
    """The `value`s, which are numbers in these tests, in ascending order."""
    return sorted(int(row.value) for row in df.select("value").collect())


def in_order(df: DataFrame) -> list[Row]:
    """The rows by partition and offset."""
    return sorted(df.collect(), key=lambda row: (row.partition, row.offset))


def failure(action: Callable[[], object]) -> str:
    """The message of the error that Spark raises."""
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def without_spark(path: Path, **options: Any) -> pa.Table:
    """What a DataFrame would show, by the same calls that Spark makes: each process is a pickle."""
    source = DefaultSource({"path": os.fspath(path), **{k: str(v) for k, v in options.items()}})
    source = pickle.loads(pickle.dumps(source))
    schema = source.schema()
    reader = source.reader(schema)
    parts = [pickle.dumps(part) for part in reader.partitions()]
    worker = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in worker.read(pickle.loads(part))]
    return pa.Table.from_batches(batches, arrow_schema(schema))
