"""Shared by tests of streaming: run a query to its end, its checkpoint and its results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pylogtable import Topic
from tests.builders import rows

Options = Mapping[str, Any]

EARLIEST = {"startingOffsets": "earliest"}
HAS_ADMISSION_CONTROL = not pyspark.__version__.startswith(("4.0.", "4.1."))
COPIED = "cast(value AS string) value", "partition AS was_in", "offset AS was_at"


def read_stream(spark: SparkSession, path: str | os.PathLike[str], **options: Any) -> DataFrame:
    return spark.readStream.format("pylogtable").options(**options).load(os.fspath(path))


def start(
    df: DataFrame,
    checkpoint: Path,
    into: str | os.PathLike[str] | None = None,
    *,
    mode: str = "append",
    sink: str = "pylogtable",
    trigger: Options | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start a query into the topic at `into`, or into the `noop` sink."""
    writer = df.writeStream.format(sink if into is not None else "noop").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**options)
    writer = writer.trigger(**(trigger or {"availableNow": True}))
    return writer.start(os.fspath(into)) if into is not None else writer.start()


def run(*args: Any, **options: Any) -> list[int]:
    """Run a query that ends by itself, and return the rows of each batch. Raises its error."""
    query = start(*args, **options)
    assert query.awaitTermination(600)
    return rows_of(query)


def rows_of(query: StreamingQuery) -> list[int]:
    return [p.numInputRows for p in query.recentProgress if p.numInputRows and p.numInputRows > 0]


def until(done: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def forget_last_commit(checkpoint: Path) -> int:
    """Make the checkpoint forget that its last batch is done. Returns the number of the batch."""
    newest = max(int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit())
    (checkpoint / "commits" / str(newest)).unlink()
    (checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def copied(topic: Topic) -> list[tuple[int, int]]:
    """Partition and offset in the source topic of each copied record, sorted."""
    return sorted((row["was_in"], row["was_at"]) for row in rows(topic.read()))


def places(topic: Topic) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in rows(topic.read()))
