"""A stream from one topic to another that is killed in the middle and started again.

Run `python notebooks/streaming.py [folder]`. It writes only below the folder, by default
`.demo/streaming`. The job is a process of its own, so that it can be killed with SIGKILL.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

import pylogtable
from pylogtable import Store, Topic, TopicNotFoundError

JOB = "job"
ORDERS = 2_000


def job(folder: str, how: str) -> None:
    """The part that would run on a cluster: one invoice for each paid order, exactly once."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    orders = (
        spark.readStream.format("pylogtable")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 500)
        .option("group", "billing")
        .load(f"{folder}/orders")
    )
    invoices = orders.where("status = 'paid'").selectExpr(
        "order_id", "amount", "partition AS order_partition", "offset AS order_offset"
    )
    writer = (
        invoices.writeStream.format("pylogtable")
        .option("partitions", 2)
        .option("key", "order_id")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    query = writer.start(f"{folder}/invoices")
    if how == "run":
        query.awaitTermination()
    query.processAllAvailable()
    query.stop()


def start(folder: Path, how: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, JOB, str(folder), how]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def version_of(store: Store, name: str) -> int:
    """The newest version of a topic, or 0 if the topic does not exist yet."""
    try:
        return store.topic(name).version
    except TopicNotFoundError:
        return 0


def ingest(topic: Topic, first: int, status: str) -> None:
    """Append orders with a status, as a shop would."""
    numbers = range(first, first + ORDERS)
    topic.append(
        pa.table(
            {
                "order_id": [f"o-{number:05d}" for number in numbers],
                "amount": [5.0 + number % 100 for number in numbers],
                "status": [status] * ORDERS,
            }
        )
    )


def places(topic: Topic, *columns: str) -> Counter[tuple[object, ...]]:
    table = topic.read().read_all()
    return Counter(zip(*(table[name].to_pylist() for name in columns), strict=True))


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    store = pylogtable.open(folder)
    schema = {"order_id": pa.string(), "amount": pa.float64(), "status": pa.string()}
    orders = store.create_topic(
        "orders", 3, schema, key="order_id", config={"cleanup.policy": "compact"}
    )
    for status in ("new", "paid"):
        ingest(orders, 0, status)
    done = orders.compact(force=True)
    print(f"1. ingested {orders.end_offsets()} offsets; compaction left {orders.count():,} records")
    print(f"   and {done.records_removed:,} holes, which rate limits do not count")

    running = start(folder, "run")
    try:
        while version_of(store, "invoices") < 3:
            assert running.poll() is None, "the job died by itself"
            time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    invoices = store.topic("invoices")
    print(f"2. killed the job with {invoices.count():,} invoices written")

    for status in ("new", "paid"):
        ingest(orders, ORDERS, status)
    orders.compact(force=True)
    print(f"3. while it was down: more orders, and compaction; now {orders.count():,} records")

    finished = start(folder, "finish").wait()
    assert finished == 0
    found = places(invoices, "order_partition", "order_offset")
    paid = places(orders, "partition", "offset")
    print(f"4. started again, it finished with {invoices.count():,} invoices:")
    print(f"   missing: {len(paid - found)}, twice: {sum(n > 1 for n in found.values())}")
    lag = orders.group("billing").lag()
    print(f"   group 'billing': {lag.records:,} behind")
    print(f"   verify: {invoices.verify(data=True)}")


if __name__ == "__main__":
    if sys.argv[1:2] == [JOB]:
        job(*sys.argv[2:4])
    else:
        default = Path(__file__).parent.parent / ".demo" / "streaming"
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
