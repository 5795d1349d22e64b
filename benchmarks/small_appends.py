"""Ten thousand small appends by one writer: the last must not be slower than the first."""

from __future__ import annotations

import tempfile
import time

import pyarrow as pa

import pylogtable
from benchmarks.result import Result


def run(appends: int) -> list[Result]:
    tenth = appends // 10
    record = pa.table({"key": [b"k"], "value": [b"v" * 80]})
    with tempfile.TemporaryDirectory() as folder:
        topic = pylogtable.open(folder).create_topic("t")
        times = []
        for _ in range(appends):
            began = time.perf_counter()
            topic.append(record)
            times.append(time.perf_counter() - began)
    first, last = sum(times[:tenth]), sum(times[-tenth:])
    return [
        Result(
            f"{appends:,} appends of one record: the last {tenth:,}",
            f"{last:.2f} s ({last / tenth * 1e3:.2f} ms each)",
            f"the first {tenth:,} {first:.2f} s",
            last / first,
            1.3,
            at_most=True,
        )
    ]
