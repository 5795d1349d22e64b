"""Shared by tests of writing: saving with options, and the calls that Spark makes, without it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame

from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.batch.writer import BatchWriter
from pyspark_pylogtable.columns import spark_schema
from pyspark_pylogtable.tasks.staging import Written


def save(df: DataFrame, path: str | os.PathLike[str], mode: str = "append", **options: Any) -> None:
    df.write.format("pylogtable").mode(mode).options(**options).save(os.fspath(path))


def plan(path: str | os.PathLike[str], schema: pa.Schema, **options: Any) -> BatchWriter:
    """The writer for these columns, as it arrives in another process."""
    given = {"path": os.fspath(path), **{name: str(value) for name, value in options.items()}}
    writer = DefaultSource(given).writer(spark_schema(schema), overwrite=False)
    return travelled(writer)


def write(path: str | os.PathLike[str], tasks: Sequence[pa.Table], **options: Any) -> None:
    """Append with the calls that Spark makes, one task for each table."""
    writer = plan(path, tasks[0].schema, **options)
    messages = [stage(writer, table) for table in tasks]
    travelled(writer).commit([*messages])


def stage(writer: BatchWriter, table: pa.Table) -> Written:
    """Stage a table as a task in another process does."""
    return travelled(travelled(writer).write(iter(table.to_batches())))


def travelled(thing: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(thing))


def files(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def data_files(folder: Path) -> list[str]:
    return [name for name in files(folder) if name.endswith(".parquet") and "partition=" in name]
