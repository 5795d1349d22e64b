"""Shared by Spark tests: reading with options, rows in log order, failures, examples."""

from __future__ import annotations

import os
import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import pylogtable
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.columns import arrow_schema
from tests.documents import code, read

Path = str | os.PathLike[str]

inserts_some_columns = pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."),
    reason="Spark 4.0 wants every column of a source in an INSERT",
)


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    df = spark.read.format("pylogtable").options(**options).load(os.fspath(path))
    assert df.columns  # Spark Connect does nothing before this
    return df


def values(df: DataFrame) -> list[int]:
    """The column `value` as sorted numbers."""
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
    """The rows of a DataFrame, by the calls that Spark makes; pickling stands for its processes."""
    source = DefaultSource({"path": os.fspath(path), **{k: str(v) for k, v in options.items()}})
    source = pickle.loads(pickle.dumps(source))
    schema = source.schema()
    reader = source.reader(schema)
    parts = [pickle.dumps(part) for part in reader.partitions()]
    worker = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in worker.read(pickle.loads(part))]
    return pa.Table.from_batches(batches, arrow_schema(schema))


def run_examples(
    spark: SparkSession, document: str, folder: pathlib.Path
) -> tuple[pylogtable.Store, dict[str, Any]]:
    """Run the `python spark` examples of a document in order, in one session. The store that they
    wrote, and their variables."""
    examples = [example for note, example in code(read(document), "python") if note == "spark"]
    assert len(examples) >= 3
    session: dict[str, Any] = {"spark": spark}
    for example in examples:
        # Spark's processes have other working directories, so the examples name absolute paths.
        here = example.replace("/tmp/logs", f"{folder}/logs")
        exec(compile(here, document, "exec"), session)
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
    return pylogtable.open(folder / "logs"), session
