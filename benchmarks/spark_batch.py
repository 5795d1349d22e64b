"""Batch writes and reads from Spark, against Spark's own Parquet writer and reader in one session.

Each ratio compares the best of several rounds, ours and theirs in turn, since other work on the
machine only makes a round slower.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import pylogtable
from benchmarks.generate import grow
from benchmarks.result import Result

PARTITIONS = 6
ROUNDS = 3
_SCHEMA = {
    "order_id": pa.int64(),
    "user_id": pa.string(),
    "amount": pa.float64(),
    "digest": pa.string(),
    "reference": pa.string(),
}


def run(records: int, segments: int) -> list[Result]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        source = _make_source(spark, records, f"{folder}/source")
        results = [
            *_writes(source, Path(folder), records),
            *_reads(spark, source, Path(folder), records),
            _planning(Path(folder), segments),
        ]
    spark.stop()
    return results


def _make_source(spark: Any, records: int, path: str) -> Any:
    """Orders of six columns and about 100 bytes: a number, a key of 2 M users, an amount, a hash of
    40 characters, a reference of 20, a time."""
    spark.range(0, records, 1, 4).selectExpr(
        "id AS order_id",
        "concat('user-', abs(hash(id)) % 2000000) AS user_id",
        "rand(1) * 1000 AS amount",
        "sha1(string(id)) AS digest",
        "substr(sha1(string(id + 1)), 1, 20) AS reference",
        "timestamp_micros(1700000000000000 + id * 1000) AS timestamp",
    ).write.parquet(path)
    return spark.read.parquet(path)


def _writes(source: Any, folder: Path, records: int) -> list[Result]:
    from pyspark.sql import functions as F

    from pyspark_pylogtable import LogTable

    keyed = source.withColumn("p", F.pmod(F.hash("user_id"), F.lit(PARTITIONS)))
    made = iter(range(1_000_000))

    def append() -> None:
        (
            source.write.format("pylogtable")
            .option("key", "user_id")
            .option("partitions", PARTITIONS)
            .mode("append")
            .save(f"{folder}/appended-{next(made)}")
        )

    def clustered() -> None:
        topic = pylogtable.open(folder).create_topic(
            f"clustered-{next(made)}", PARTITIONS, _SCHEMA, "user_id"
        )
        LogTable.for_path(source.sparkSession, topic.url).append(source)

    def native(frame: Any, *partition_by: str) -> None:
        path = f"{folder}/native-{next(made)}"
        frame.write.partitionBy(*partition_by).parquet(path)
        shutil.rmtree(path)

    times = _best_of(
        {
            "native": lambda: native(source),
            "append": append,
            "by partition": lambda: native(keyed.repartition("p"), "p"),
            "clustered": clustered,
        }
    )
    size = f"{records / 1e6:g} M rows, {PARTITIONS} partitions"
    return [
        _faster(f"append by format, {size}", times, "append", "native", 1.0),
        _faster(f"the same, against partitionBy, {size}", times, "append", "by partition", 1.7),
        _faster(f"LogTable.append (clustered), {size}", times, "clustered", "by partition", 1.0),
    ]


def _reads(spark: Any, source: Any, folder: Path, records: int) -> list[Result]:
    from pyspark_pylogtable import LogTable

    table = LogTable.for_path(spark, next(folder.glob("clustered-*")))
    url = table.topic.url
    files = [f"{url}/{path}" for path in table.topic.segments()["path"].to_pylist()]
    end = min(table.topic.end_offsets().values())
    low, high = end // 2, end // 2 + end // 100
    where = f"offset >= {low} AND offset < {high}"

    def parquet() -> Any:
        return spark.read.option("basePath", url).parquet(*files)

    def source_of(**options: object) -> Any:
        return spark.read.format("pylogtable").options(**options).load(url)

    everywhere = f'{{"*": {low}}}', f'{{"*": {high}}}'
    times = _best_of(
        {
            "scan parquet": lambda: _drain(parquet()),
            "scan format": lambda: _drain(source_of()),
            "scan to_df": lambda: _drain(table.to_df()),
            "column parquet": lambda: parquet().selectExpr("sum(amount)").collect(),
            "column to_df": lambda: table.to_df().selectExpr("sum(amount)").collect(),
            "count parquet": lambda: parquet().count(),
            "count to_df": lambda: table.to_df().count(),
            "range parquet": lambda: _drain(parquet().where(where)),
            "range to_df": lambda: _drain(table.to_df().where(where)),
            "range options": lambda: _drain(
                source_of(startingOffsets=everywhere[0], endingOffsets=everywhere[1])
            ),
        }
    )
    assert table.to_df().count() == source_of().count() == records
    return [
        _faster("full scan, format", times, "scan format", "scan parquet", 0.85),
        _faster("full scan, to_df", times, "scan to_df", "scan parquet", 0.95),
        _faster("one column of six, to_df", times, "column to_df", "column parquet", 0.9),
        _faster("count(*), to_df", times, "count to_df", "count parquet", 0.9),
        _faster("where offset over 1 %, to_df", times, "range to_df", "range parquet", 0.9),
        _faster("1 % by options, against the full scan", times, "range options", "scan format", 3),
    ]


def _planning(folder: Path, segments: int) -> Result:
    """Plan through the source itself, as Spark does. The topic has no data files."""
    from pyspark_pylogtable import DefaultSource

    topic = pylogtable.open(folder).create_topic("grown", partitions=12)
    grow(topic, commits=segments // 100, segments_per_commit=100)
    began = time.perf_counter()
    source = DefaultSource({"path": topic.url})
    parts = source.reader(source.schema()).partitions()
    pickle.dumps(parts)
    seconds = time.perf_counter() - began
    name = f"planning a read of {segments:,} segments (seconds)"
    return Result(name, f"{seconds:.2f} s", f"{len(parts):,} parts", seconds, 3.0, at_most=True)


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _best_of(steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - began)
    return {name: min(taken) for name, taken in times.items()}


def _faster(name: str, times: dict[str, float], ours: str, theirs: str, wanted: float) -> Result:
    ratio = times[theirs] / times[ours]
    measured, yardstick = f"{times[ours]:.2f} s", f"{theirs} {times[theirs]:.2f} s"
    return Result(name, measured, yardstick, ratio, wanted)
