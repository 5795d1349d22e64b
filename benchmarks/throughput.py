"""Append and full read of Kafka-shaped records, against pyarrow on the same table and files."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pylogtable
from benchmarks.result import Result

PARTITIONS = 6
ROUNDS = 3
_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def kafka_records(count: int) -> pa.Table:
    """Records of about 100 bytes: a timestamp, a key of 2 M users, a value half of it random."""
    chance = np.random.default_rng(7)
    users = pa.array(chance.integers(0, 2_000_000, count)).cast(pa.string())
    values = np.empty((count, 80), dtype=np.uint8)
    values[:, :16] = np.frombuffer(b'{"event":"click"', dtype=np.uint8)
    for at in range(16, 80):
        values[:, at] = _HEX[chance.integers(0, 16, count, dtype=np.uint8)]
    ends = pa.py_buffer(np.arange(0, 80 * (count + 1), 80, dtype=np.int32))
    return pa.table(
        {
            "timestamp": pa.array(
                1_700_000_000_000_000 + np.arange(count) * 1000, pa.timestamp("us", tz="UTC")
            ),
            "key": pc.binary_join_element_wise("user-", users, "").cast(pa.binary()),
            "value": pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(values)]),
        }
    )


def run(records: int) -> list[Result]:
    table = kafka_records(records)
    size_mb = table.nbytes / 1e6
    ours: dict[str, list[float]] = {"append": [], "read": []}
    theirs: dict[str, list[float]] = {"append": [], "read": []}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            one = Path(folder) / "one.parquet"
            theirs["append"].append(
                _seconds(lambda one=one: pq.write_table(table, one, compression="zstd"))
            )
            topic = pylogtable.open(folder).create_topic("t", partitions=PARTITIONS)
            ours["append"].append(_seconds(lambda topic=topic: topic.append(table)))
            paths = topic.segments()["path"].to_pylist()
            files = [Path(folder) / "t" / path for path in paths]
            for _ in range(2):
                theirs["read"].append(_seconds(lambda files=files: _iterate(files, records)))
                ours["read"].append(_seconds(lambda topic=topic: _read(topic, records)))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    results = []
    for what, wanted in (("append", 0.6), ("read", 0.9)):
        mine, yardstick = statistics.median(ours[what]), statistics.median(theirs[what])
        results.append(
            Result(
                f"{what} {records / 1e6:g} M records, {PARTITIONS} partitions, {cores} core(s)",
                f"{mine:.2f} s ({size_mb / mine:.0f} MB/s)",
                f"pyarrow {yardstick:.2f} s ({size_mb / yardstick:.0f} MB/s)",
                yardstick / mine,
                wanted,
            )
        )
    return results


def _iterate(files: list[Path], records: int) -> None:
    count = sum(batch.num_rows for file in files for batch in pq.ParquetFile(file).iter_batches())
    assert count == records


def _read(topic: pylogtable.Topic, records: int) -> None:
    assert sum(batch.num_rows for batch in topic.read()) == records


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
