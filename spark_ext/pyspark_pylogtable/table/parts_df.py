"""Parts of a read, as a DataFrame: read by the driver if they are few and small, else by tasks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pylogtable.engine import PartReader, ReadPart, Scan, joined, share_tasks
from pyspark_pylogtable.columns import arrow_schema, spark_schema
from pyspark_pylogtable.table.arrow_tasks import send_to_tasks
from pyspark_pylogtable.table.local_rows import df_of_rows

_TASKS = pa.schema({"task": pa.int32(), "part": pa.binary()})


def df_of_parts(
    spark: SparkSession,
    scan: Scan,
    parts: Sequence[ReadPart],
    columns: Sequence[str],
    *,
    in_driver: bool,
) -> DataFrame:
    """What the scan reads of these parts, with these columns, all nullable. With `in_driver`, the
    driver reads it, unless it has too many bytes to be sent along with the plan."""
    schema = spark_schema(scan.reader(columns).schema)
    reader = scan.reader(arrow_schema(schema))
    if in_driver or not parts:
        rows = reader.gather(joined(parts), scan.limits.driver_inline_bytes)
        if rows is not None:
            return df_of_rows(spark, rows, schema)
    shared = share_tasks(((part, part.totals) for part in parts), scan.limits)
    pickled = [pickle.dumps(joined(some)) for some in shared]
    sent = pa.table([pa.array(range(len(pickled)), pa.int32()), pickled], schema=_TASKS)
    spread = send_to_tasks(spark.createDataFrame(sent), "task", len(pickled))
    return spread.mapInArrow(partial(_read, reader), schema)


def _read(reader: PartReader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Tasks import this module to find the function, and so get `worker_imports`."""
    for batch in batches:
        for part in batch.column("part"):
            yield from reader.read(pickle.loads(part.as_py()))
