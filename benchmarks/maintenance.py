"""Compaction, merge and retention, each beside what one would do without it, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pylogtable
from benchmarks.generate import grow
from benchmarks.result import Result

SCHEMA = {"user_id": pa.string(), "amount": pa.float64(), "note": pa.string()}
BATCH = 1_000_000


def run(records: int, keys: int, distinct: int, small: int, segments: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        return [
            *_compaction(Path(folder), records, keys),
            _memory(Path(folder), distinct),
            *_merge(Path(folder), small),
            _retention(Path(folder), segments),
        ]


def rows(chance: np.random.Generator, count: int, keys: int) -> pa.Table:
    users = chance.integers(0, keys, count)
    return pa.table(
        {
            "user_id": pa.array(users).cast(pa.string()),
            "amount": chance.random(count),
            "note": pa.array(users % 1000).cast(pa.string()),
        }
    )


def _compaction(folder: Path, records: int, keys: int) -> list[Result]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from pyspark_pylogtable import LogTable

    chance = np.random.default_rng(3)
    config = {"cleanup.policy": "compact"}
    topic = pylogtable.open(folder).create_topic("log", 4, SCHEMA, "user_id", config)
    for _ in range(records // BATCH):
        topic.append(rows(chance, BATCH, keys))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    table = LogTable.for_path(spark, topic.url)
    table.to_df().limit(1).collect()
    by_sql = _seconds(lambda: _compact_by_sql(spark, table, f"{folder}/by-sql"))
    first = _seconds(lambda: table.compact())
    left = topic.count()
    assert left == spark.read.parquet(f"{folder}/by-sql").count()
    topic.append(rows(chance, records // 100, keys))
    second = _seconds(lambda: table.compact(force=True))
    spark.stop()
    size = f"{records / 1e6:g} M records, {left / 1e6:.2g} M keys, 4 partitions"
    return [
        Result(
            f"compaction, {size}", f"{first:.1f} s", f"Spark SQL {by_sql:.1f} s", by_sql / first, 4
        ),
        Result(
            "a second one after 1 % more",
            f"{second:.1f} s",
            f"the first {first:.1f} s",
            second / first,
            0.25,
            at_most=True,
        ),
    ]


def _compact_by_sql(spark: Any, table: Any, path: str) -> None:
    table.create_view("log")
    spark.sql(
        "SELECT partition, offset, timestamp, user_id, amount, note FROM (SELECT *, row_number() "
        "OVER (PARTITION BY user_id ORDER BY offset DESC) AS rank FROM log) WHERE rank = 1"
    ).write.parquet(path)


def _memory(folder: Path, distinct: int) -> Result:
    """Run the compaction in a process of its own, so that the peak memory is its own."""
    config = {"cleanup.policy": "compact"}
    topic = pylogtable.open(folder).create_topic("wide", 1, SCHEMA, "user_id", config)
    for first in range(0, distinct, BATCH):
        users = np.arange(first, min(first + BATCH, distinct)) * 7919 % distinct
        ids = pa.array(users).cast(pa.string())
        topic.append(pa.table({"user_id": ids, "amount": users / 3, "note": ids}))
    topic.append(topic.read(end=topic.end_offsets()[0] // 100).read_all().select(list(SCHEMA)))
    code = (
        "import sys, resource, pylogtable;"
        "report = pylogtable.open_topic(sys.argv[1]).compact();"
        "assert report.records_removed > 0;"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, topic.url], check=True, capture_output=True, text=True
    )
    peak_gib = int(done.stdout) / 2**20
    name = f"memory of a compaction of {distinct / 1e6:g} M distinct keys (GiB)"
    return Result(name, f"{peak_gib:.2f} GiB", "512 MiB for keys", peak_gib, 2, at_most=True)


def _merge(folder: Path, small: int) -> list[Result]:
    chance = np.random.default_rng(5)
    topic = pylogtable.open(folder).create_topic("small", 1, SCHEMA, "user_id")
    for _ in range(small):
        topic.append(rows(chance, 2000, 10**6))
    before = _seconds(lambda: _read(topic))
    files = [Path(folder) / "small" / p for p in topic.segments()["path"].to_pylist()]
    theirs = _seconds(lambda: _rewrite_by_pyarrow(files, folder / "joined.parquet"))
    ours = _seconds(topic.merge)
    after = _seconds(lambda: _read(topic))
    return [
        Result(
            f"merge of {small:,} segments",
            f"{ours:.1f} s",
            f"pyarrow reading and writing {theirs:.1f} s",
            theirs / ours,
            0.7,
        ),
        Result(
            "reading the merged topic",
            f"{after:.2f} s",
            f"before {before:.2f} s",
            before / after,
            5,
        ),
    ]


def _read(topic: pylogtable.Topic) -> None:
    for _ in topic.read():
        pass


def _rewrite_by_pyarrow(files: list[Path], target: Path) -> None:
    with pq.ParquetWriter(target, pq.read_schema(files[0]), compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for path in files:
            waiting.append(pq.read_table(path, partitioning=None))
            if sum(table.num_rows for table in waiting) >= 131_072:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _retention(folder: Path, segments: int) -> Result:
    topic = pylogtable.open(folder).create_topic("grown", 12, config={"retention.bytes": 0})
    grow(topic, commits=segments // 100, segments_per_commit=100)
    seconds = _seconds(topic.apply_retention)
    name = f"retention on {segments:,} segments (seconds)"
    return Result(name, f"{seconds:.2f} s", "no data file on disk", seconds, 2, at_most=True)


def _seconds(step: Any) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
