"""Topics that engines read, and what a stream of theirs has seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import Topic
from tests.builders import IN_FILES
from tests.publish.plain_iceberg import expected_rows, rows


def make_topic(
    place: Path | str,
    name: str = "orders",
    policy: str = "delete",
    storage_options: Mapping[str, Any] | None = None,
) -> Topic:
    """A topic with the first 100 records."""
    schema = {"id": pa.int64(), "amount": pa.float64()}
    store = pylogtable.open(str(place), storage_options=storage_options)
    topic = store.create_topic(name, 2, schema, "id", config={"cleanup.policy": policy, **IN_FILES})
    append(topic, 0)
    return topic


def append(topic: Topic, number: int, rows: int = 100) -> None:
    """Append the records of a number; the same number again has the same keys."""
    ids = list(range(number * rows, (number + 1) * rows))
    topic.append(pa.table({"id": ids, "amount": [float(n) for n in ids]}))


def check(df: DataFrame, topic: Topic) -> None:
    """It has the rows of the topic."""
    schema, expected = expected_rows(topic, topic.version)
    assert len(expected) >= 100
    assert rows(df.toArrow(), schema) == expected


def check_native(df: DataFrame, topic: Topic, scheme: str) -> None:
    """It has the rows of the topic, and Spark itself reads the files."""
    files = df.inputFiles()
    assert files
    assert all(path.startswith(f"{scheme}://") for path in files)
    schema, _ = expected_rows(topic, topic.version)
    check(df.select(*schema.names), topic)


def everything(topic: Topic) -> list[tuple[int, int]]:
    """Partition and offset of every record that was ever appended."""
    return [(n, offset) for n, end in topic.end_offsets().items() for offset in range(end)]


def streamed(
    spark: SparkSession, table_format: str, topic: Topic, place: Path, **options: str
) -> list[Any]:
    """What a stream over the table has seen since it began; each call goes on."""
    folder = topic.url.removeprefix("file://")
    source = spark.readStream.format(table_format).options(**options).load(folder)
    query = (
        source.select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "seen"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(place / "seen")).collect()
    return sorted(tuple(row) for row in found)
