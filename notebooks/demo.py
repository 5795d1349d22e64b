"""A tour on the local disk: `make demo`. Everything it writes is below `.demo/`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pyspark_pylogtable import LogTable

# Spark's workers would be the python3 of the PATH otherwise.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

LOGS = Path(__file__).parent.parent / ".demo"
ORDERS = f"{LOGS}/orders"
GROUP_COLUMNS = ["partition", "current_offset", "log_end_offset", "lag", "lag_bytes"]


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m")


def show(rows: DataFrame | pa.Table) -> None:
    """Print rows as aligned text."""
    table = rows if isinstance(rows, pa.Table) else rows.toArrow()
    lines = [table.column_names, *([_cell(v) for v in row.values()] for row in table.to_pylist())]
    widths = [max(len(line[i]) for line in lines) for i in range(table.num_columns)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(f"  {'  '.join(cells)}".rstrip())


def _cell(value: object) -> str:
    return f"{value:%H:%M:%S.%f}"[:-3] if hasattr(value, "hour") else str(value)


def new_session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pylogtable demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{LOGS}/_warehouse")
        .getOrCreate()
    )
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


def orders(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count, numPartitions=2).selectExpr(
        "format_string('o-%04d', id % 1000) AS order_id",
        "round(5 + id * 37 % 400 / 7, 2) AS amount",
        "element_at(array('new', 'paid', 'shipped'), int(id DIV 1000 % 3) + 1) AS status",
    )


def main() -> None:
    shutil.rmtree(LOGS, ignore_errors=True)
    began = time.monotonic()

    title("1. Create a topic: 3 partitions, keyed by order_id (plain Python, no Spark)")
    store = pylogtable.open(LOGS)
    schema = {"order_id": pa.string(), "amount": pa.float64(), "status": pa.string()}
    topic = store.create_topic("orders", partitions=3, schema=schema, key="order_id")
    print(f"  {topic}")

    title("2. Append 3,000 rows of a DataFrame: one commit, offsets given per partition")
    spark = new_session()
    job = orders(spark, 0, 3000).write.format("pylogtable").mode("append")
    job.option("txnAppId", "demo").option("txnVersion", 1).save(ORDERS)
    table = LogTable.for_path(spark, ORDERS)
    show(table.offsets())

    title("3. Run the same job again, as a scheduler would after a failure: nothing is added")
    job.option("txnAppId", "demo").option("txnVersion", 1).save(ORDERS)
    print(f"  records: {topic.count():,}")

    title("4. Append from 4 Python writers at once, then clustered by partition from Spark")
    parts = [orders(spark, 3000 + 500 * n, 500).toArrow() for n in range(4)]
    with ThreadPoolExecutor(4) as writers:
        for done in writers.map(lambda rows: store.topic("orders").append(rows), parts):
            print(f"  version {done.version}, offsets {done.offsets}")
    done = table.append(orders(spark, 5000, 5000))
    print(f"  version {done.version}, offsets {done.offsets}, from LogTable.append")

    title("5. Read by offset: partition 1, offsets [1000, 1003)")
    by_offset = (
        spark.read.format("pylogtable")
        .option("assign", '{"orders":[1]}')
        .option("startingOffsets", '{"orders":{"1":1000}}')
        .option("endingOffsets", '{"orders":{"1":1003}}')
    )
    show(by_offset.load(str(LOGS)).orderBy("offset"))

    title("6. SQL over offsets, through Spark's own Parquet reader")
    table.create_view("orders")
    show(
        spark.sql(
            """
            SELECT partition, status, count(*) AS records, min(offset) AS first,
                   max(offset) AS last, round(sum(amount), 2) AS amount
            FROM orders WHERE offset >= 1000 GROUP BY partition, status ORDER BY partition, first
            """
        )
    )

    title("7. INSERT with SQL; a view shows the topic as it was when it was made")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING pylogtable OPTIONS (path '{ORDERS}')")
    spark.sql("INSERT INTO log (order_id, amount, status) VALUES ('o-0007', 12.5, 'returned')")
    counted = spark.sql("SELECT count(*) AS n FROM log").first()
    print(f"  in the view: {counted.n:,}; in a new read: {table.to_df().count():,}")

    title("8. Stream: every large order to another topic, in batches of 4,000, exactly once")
    large = f"{LOGS}/large"
    incoming = (
        spark.readStream.format("pylogtable")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4000)
        .load(ORDERS)
    )
    writing = (
        incoming.where("amount > 60")
        .selectExpr("order_id", "amount", "partition AS from_partition", "offset AS from_offset")
        .writeStream.format("pylogtable")
        .option("partitions", 2)
        .option("key", "order_id")
        .option("checkpointLocation", f"{LOGS}/_checkpoints/large")
        .trigger(availableNow=True)
    )
    for run in ("a first run", "started again"):
        query = writing.start(large)
        query.awaitTermination()
        batches = [done.numInputRows for done in query.recentProgress if done.numInputRows]
        print(f"  {run}: batches of {batches or 'nothing'}; ", end="")
        print(f"large orders: {store.topic('large').count():,}")

    title("9. A consumer group: read, commit, and see how far behind it is")
    with topic.consumer("billing", max_records=6000) as consumer:
        print(f"  polled {consumer.poll().num_rows:,} records, committed {consumer.commit()}")
    show(topic.group("billing").describe().to_table().select(GROUP_COLUMNS))

    title("10. Time travel to version 1; then the newest record of two keys, as of now")
    reader = spark.read.format("pylogtable").option("versionAsOf", 1)
    print(f"  records at version 1: {reader.load(ORDERS).count():,}")
    show(topic.latest(keys=["o-0007", "o-0042"]))

    title("11. Delete records below an offset; the others keep their offsets")
    print(f"  new start offsets: {topic.delete_records({0: 500})}")
    try:
        topic.read(0, 499)
    except pylogtable.OffsetOutOfRangeError as error:
        print(f"  reading offset 499: {error}")

    title("12. Compact, as a Spark job: the newest record of each order stays, at its offset")
    topic.alter(config={"cleanup.policy": "compact"})
    done = table.compact()
    left = done.records_in - done.records_removed
    print(f"  {done.records_in:,} records in {done.segments_in} segments became", end=" ")
    print(f"{left:,} in {done.segments_out}; it took {done.seconds:.1f} s")
    show(topic.read(0, topic.end_offsets()[0] - 3).read_all())
    print(f"  vacuum would remove {len(table.vacuum().files)} files; all are too young")

    title("13. Look inside: segments, commits, and a check of every record")
    columns = ["partition", "base_offset", "end_offset", "shift", "records", "size_bytes"]
    show(table.segments().select(columns))
    show(table.history().select("version", "committed_at", "operation", "records_added"))
    print(f"  verify: {topic.verify(data=True)}")
    spark.stop()
    print(
        f"\nDone in {time.monotonic() - began:.0f} s. The topic is plain files: {LOGS.name}/orders"
        "\nNext: pylogtable report .demo -o report.html; the notebooks beside this file; README.md."
    )


if __name__ == "__main__":
    main()
