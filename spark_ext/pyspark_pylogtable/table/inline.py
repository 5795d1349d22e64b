"""Records that are in commits and not in files, as a DataFrame beside the scans of the files.

The driver reads few of them and sends them along with the plan: a Spark task that only reads some
kilobytes would take longer to start. Tasks read many. Spark's own filters and counts work on both.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pylogtable import View
from pylogtable.engine import PartReader, ReadTask, Scan, by_commit, joined, share_tasks
from pyspark_pylogtable.columns import arrow_schema, spark_schema
from pyspark_pylogtable.table.arrow_tasks import send_to_tasks
from pyspark_pylogtable.table.local_rows import df_of_rows

_TASKS = pa.schema({"task": pa.int32(), "part": pa.binary()})


def inline_df(
    spark: SparkSession, view: View, tasks: Sequence[ReadTask], columns: Sequence[str]
) -> DataFrame:
    """The records of tasks whose segments are in commits, with these columns, all nullable."""
    scan = Scan(view)
    schema = spark_schema(scan.reader(columns).schema)
    reader = scan.reader(arrow_schema(schema))
    parts = by_commit(tasks)
    if len(parts) <= scan.limits.driver_commits:
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
