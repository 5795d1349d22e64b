"""A tour on the local disk: `make demo`. Everything it makes is below `.demo/`."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import pylogtable

HERE = Path(__file__).parent.parent / ".demo"


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m")


def show(table: pa.Table) -> None:
    """A table as aligned text; what a terminal is for."""
    rows = [table.column_names, *([str(v) for v in row.values()] for row in table.to_pylist())]
    widths = [max(len(row[i]) for row in rows) for i in range(table.num_columns)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def orders(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "order_id": [f"o-{n % 1000:04d}" for n in numbers],
            "amount": [round(5 + n * 37 % 400 / 7, 2) for n in numbers],
            "status": [("new", "paid", "shipped")[n // 1000 % 3] for n in numbers],
        }
    )


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)

    title("1. Create a topic: 3 partitions, keyed by order_id")
    store = pylogtable.open(HERE)
    schema = {"order_id": pa.string(), "amount": pa.float64(), "status": pa.string()}
    topic = store.create_topic("orders", partitions=3, schema=schema, key="order_id")
    print(f"  {topic}")

    title("2. Append 3,000 records in one commit, then from 4 writers at once")
    result = topic.append(orders(0, 3000), txn=("demo", 1))
    print(f"  version {result.version}, offsets {result.offsets}")
    with ThreadPoolExecutor(4) as writers:
        handles = [store.topic("orders") for _ in range(4)]
        batches = [orders(3000 + 500 * n, 500) for n in range(4)]
        for done in writers.map(
            lambda pair: pair[0].append(pair[1]), zip(handles, batches, strict=True)
        ):
            print(f"  version {done.version}, offsets {done.offsets}")

    title("3. The same append again: nothing is written, the first offsets come back")
    again = topic.append(orders(0, 3000), txn=("demo", 1))
    print(f"  repeated={again.repeated}, version {again.version}, offsets {again.offsets}")

    title("4. Read by offset: partition 1, offsets [1000, 1003)")
    show(topic.read(1, 1000, 1003).read_all())

    title("5. Read by time, and as it was at version 1")
    newest = topic.read(1, columns=["timestamp"]).read_all()["timestamp"]
    moment = pc.max(newest).as_py()
    print(f"  first offsets at or after {moment}: {topic.offsets_for_time(moment)}")
    print(f"  a day later: {topic.offsets_for_time(moment + timedelta(days=1))}")
    print(f"  records at version 1: {topic.count(version=1)}, now: {topic.count()}")

    title("6. The newest record of two keys")
    show(topic.latest(keys=["o-0007", "o-0042"]))

    title("7. Delete records below an offset; what is left keeps its offsets")
    print(f"  new start offsets: {topic.delete_records({0: 500})}")
    try:
        topic.read(0, 499)
    except pylogtable.OffsetOutOfRangeError as error:
        print(f"  reading offset 499: {error}")

    title("8. Look inside")
    columns = ["partition", "base_offset", "end_offset", "shift", "records", "size_bytes"]
    show(topic.segments().select(columns))
    show(topic.history().select(["version", "committed_at", "operation", "records_added"]))
    print(f"  verify: {topic.verify(data=True)}")
    print(f"\nThe topic is plain files; look at them: {HERE.name}/orders")


if __name__ == "__main__":
    main()
