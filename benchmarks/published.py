"""A published topic read by Delta on Spark, against the same rows in a table that Delta wrote.

Delta has no release for the newest Spark, so this one runs apart, where `make test-engines` has set
everything up: `.venv-engines/bin/python -m benchmarks.published [ROWS]`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pylogtable
from benchmarks.result import Result, print_table

PARTITIONS = 6
ROUNDS = 5
JARS = Path(__file__).parents[1] / ".venv-engines" / "jars"


def run(rows: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        spark = _session(folder)
        ours, theirs = _topic(spark, folder, rows), _table(spark, folder)
        low = rows // PARTITIONS // 2
        queries: dict[str, Callable[[DataFrame], DataFrame]] = {
            "full scan": lambda df: df.agg(F.max(F.xxhash64(*df.columns))),
            # A sum, since Delta answers a greatest value from the statistics that it wrote itself.
            "one column": lambda df: df.agg(F.sum(F.floor("amount"))),
            "count(*)": lambda df: df.agg(F.count("*")),
            "1 % by offset": lambda df: df.where(
                (F.col("offset") >= low) & (F.col("offset") < low + rows // PARTITIONS // 100)
            ).agg(F.sum(F.floor("amount"))),
        }
        results = [
            _compared(spark, f"{name}, {rows:,} rows", query, ours, theirs)
            for name, query in queries.items()
        ]
        spark.stop()
        return results


def _session(folder: str) -> SparkSession:
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, sorted(JARS.glob("*.jar")))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", catalog)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def _topic(spark: SparkSession, folder: str, rows: int) -> str:
    path = f"{folder}/logs/orders"
    orders = spark.range(rows).select(
        (F.col("id") % 100_000).alias("customer"),
        (F.rand(7) * 1000).alias("amount"),
        F.concat(F.lit("order "), F.col("id")).alias("note"),
        F.element_at(F.array(F.lit("new"), F.lit("paid")), (F.col("id") % 2 + 1).cast("int")).alias(
            "status"
        ),
    )
    writer = orders.write.format("pylogtable").mode("append")
    writer.option("partitions", PARTITIONS).option("key", "customer").save(path)
    topic = pylogtable.open_topic(path)
    topic.merge()
    print(topic.publish(), file=sys.stderr)
    return path


def _table(spark: SparkSession, folder: str) -> str:
    """The same rows, written by Delta and partitioned in the same way."""
    path = f"{folder}/delta"
    shown = spark.read.format("delta").load(f"{folder}/logs/orders")
    clustered = shown.repartition(PARTITIONS, "partition").sortWithinPartitions("offset")
    clustered.write.format("delta").partitionBy("partition").save(path)
    return path


def _compared(
    spark: SparkSession, name: str, query: Callable[[DataFrame], DataFrame], ours: str, theirs: str
) -> Result:
    times: dict[str, list[float]] = {ours: [], theirs: []}
    answers = []
    for round_ in range(ROUNDS + 1):
        for path, spent in times.items():
            began = time.perf_counter()
            answers.append(query(spark.read.format("delta").load(path)).first())
            if round_:  # the first one warms up
                spent.append(time.perf_counter() - began)
    assert len({repr(answer) for answer in answers}) == 1, answers
    mine, delta = (statistics.median(times[path]) for path in (ours, theirs))
    return Result(name, f"{mine:.2f} s", f"Delta's own table {delta:.2f} s", delta / mine, 1)


def main() -> int:
    results = run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
    print_table(results)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
