"""What a job does with topics, step by step. It prints what each step came to, as JSON."""

import json
import os
import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

ROWS = 100


def main(path: str) -> None:
    address = os.environ.get("CONNECT")
    if address is None:
        spark = SparkSession.builder.getOrCreate()
    else:
        spark = SparkSession.builder.remote(address).getOrCreate()
    if artifact := os.environ.get("ARTIFACT"):
        spark.addArtifacts(artifact, pyfile=True)
        sys.path.insert(0, os.path.abspath(artifact))
    if os.environ.get("REGISTER"):
        import pyspark_pylogtable

        pyspark_pylogtable.register(spark)
    found = {name: outcome(step, spark, path) for name, step in STEPS.items()}
    print("FOUND", json.dumps(found))
    spark.stop()


def outcome(step: Callable[[SparkSession, str], None], spark: SparkSession, path: str) -> str:
    try:
        step(spark, path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "works"


def write(spark: SparkSession, path: str) -> None:
    writer = keyed(spark, ROWS).write.format("pylogtable").mode("append")
    # In files, so that executors have to reach the store.
    writer.options(**{"partitions": "2", "inline.max.bytes": "0"}).save(path)


def read(spark: SparkSession, path: str) -> None:
    expect(spark.read.format("pylogtable").load(path).count(), ROWS)


def sql(spark: SparkSession, path: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING pylogtable OPTIONS (path '{path}')")
    expect(spark.sql("SELECT count(*) AS n FROM v").first().n, ROWS)


def stream(spark: SparkSession, path: str) -> None:
    reader = spark.readStream.format("pylogtable").option("startingOffsets", "earliest")
    writer = reader.load(path).select("key", "value").writeStream.format("pylogtable")
    writer = writer.options(partitions="2", checkpointLocation=f"{path}-checkpoint")
    query = writer.trigger(availableNow=True).start(f"{path}-copy")
    if not query.awaitTermination(600):
        raise TimeoutError("the stream does not end")
    if query.exception() is not None:
        raise query.exception()
    expect(spark.read.format("pylogtable").load(f"{path}-copy").count(), ROWS)


def table(spark: SparkSession, path: str) -> None:
    """Enough rows that tasks stage files, which others join."""
    from pyspark_pylogtable import LogTable

    topic = LogTable.for_path(spark, path)
    topic.append(keyed(spark, 50_000))
    expect(topic.to_df().count(), ROWS + 50_000)


def second_session(spark: SparkSession, path: str) -> None:
    """`register` in another session of the same driver, while the first one is active."""
    if os.environ.get("CONNECT"):
        return
    other = spark.newSession()
    if os.environ.get("REGISTER"):
        import pyspark_pylogtable

        pyspark_pylogtable.register(other)
    other.read.format("pylogtable").load(path)


def keyed(spark: SparkSession, rows: int):
    numbers = spark.range(rows).repartition(2)
    return numbers.selectExpr("string(id) AS key", "string(id) AS value")


def expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"{found} rows, and not {wanted}")


STEPS = {
    "write": write,
    "read": read,
    "sql": sql,
    "stream": stream,
    "table": table,
    "second session": second_session,
}
if os.environ.get("STEPS"):
    STEPS = {name: STEPS[name] for name in os.environ["STEPS"].split(",")}

if __name__ == "__main__":
    main(sys.argv[1])
