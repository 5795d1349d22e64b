"""Records sent one by one from four threads, against one append of the same rows."""

from __future__ import annotations

import tempfile
import time
from threading import Thread

import pyarrow as pa

import pylogtable
from benchmarks.result import Result
from pylogtable import Producer

THREADS = 4
RECORD_BYTES = 100
WANTED_PER_SECOND = 100_000


def run(records: int) -> list[Result]:
    each = records // THREADS
    keys = [f"key-{number:06d}".encode() for number in range(10_000)]
    value = b"v" * (RECORD_BYTES - len(keys[0]))
    with tempfile.TemporaryDirectory() as folder:
        store = pylogtable.open(folder)
        sent = store.create_topic("sent", partitions=4)
        with sent.producer(linger_ms=50) as producer:
            began = time.perf_counter()
            threads = [Thread(target=_send, args=(producer, keys, value, each)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush()
            took = time.perf_counter() - began
        commits = sent.version
        assert sent.count() == each * THREADS
        whole = pa.table(
            {
                "key": pa.array([keys[n % len(keys)] for n in range(each * THREADS)], pa.binary()),
                "value": pa.array([value] * (each * THREADS), pa.binary()),
            }
        )
        appended = store.create_topic("appended", partitions=4)
        began = time.perf_counter()
        appended.append(whole)
        append_took = time.perf_counter() - began
    rate = each * THREADS / took
    return [
        Result(
            f"producer, {each * THREADS:,} records of {RECORD_BYTES} bytes from {THREADS} threads,"
            " linger 50 ms (thousands/s)",
            f"{rate:,.0f} records/s in {commits} commits",
            f"one append of them {each * THREADS / append_took:,.0f} records/s",
            rate / 1000,
            WANTED_PER_SECOND / 1000,
        )
    ]


def _send(producer: Producer, keys: list[bytes], value: bytes, count: int) -> None:
    for number in range(count):
        producer.send(key=keys[number % len(keys)], value=value)
