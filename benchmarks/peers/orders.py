"""The rows that every peer gets: orders of six columns and about 100 bytes."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

KEY = "user_id"
PARTITIONS = 6
#: The columns beside `timestamp`, which every topic of pylogtable has, with Spark's types.
VALUES = {
    "order_id": "bigint",
    "user_id": "string",
    "amount": "double",
    "digest": "string",
    "reference": "string",
}
COLUMNS = (*VALUES, "timestamp")
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in {**VALUES, "timestamp": "timestamp"}.items())
#: Times are whole milliseconds: JSON of Spark keeps no finer ones.
_STEP_US = 1_000
_FILES = 4


def orders(spark: SparkSession, first: int, count: int, began_us: int, tasks: int) -> DataFrame:
    """Orders from number `first` on. The times are young, so that retention leaves them alone."""
    return spark.range(first, first + count, 1, tasks).selectExpr(
        "id AS order_id",
        "concat('user-', abs(hash(id)) % 2000000) AS user_id",
        # Whole cents: every peer gives back the same number.
        "abs(hash(id, 7)) % 100000 / 100D AS amount",
        "sha1(string(id)) AS digest",
        "substr(sha1(string(id + 1)), 1, 20) AS reference",
        f"timestamp_micros({began_us} + (id % 1000000) * {_STEP_US}) AS timestamp",
    )


def make_source(spark: SparkSession, rows: int, began_us: int, path: str) -> DataFrame:
    """Orders in files, so that no peer pays for making them."""
    orders(spark, 0, rows, began_us, _FILES).write.parquet(path)
    return spark.read.parquet(path)


def fingerprint(rows: DataFrame) -> tuple[int, int]:
    """The count and a hash of the rows, in any order."""
    hashed = f"sum(cast(xxhash64({', '.join(COLUMNS)}) AS decimal(38, 0)))"
    count, total = rows.selectExpr("count(*)", hashed).collect()[0]
    return count, int(total)
