"""Commits of a consumer group on local disk: one after thousands of others takes no longer."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import pyarrow as pa

import pylogtable
from benchmarks.result import Result


def run(earlier: int) -> list[Result]:
    sample = 500
    with tempfile.TemporaryDirectory() as folder:
        topic = pylogtable.open(folder).create_topic("t")
        topic.append(pa.table({"key": [b"k"], "value": [b"v"]}))
        group = topic.group("g")
        times = []
        for offset in range(earlier + sample):
            began = time.perf_counter()
            group.commit({0: offset})
            times.append(time.perf_counter() - began)
        opened = []
        for _ in range(sample):
            began = time.perf_counter()
            topic.group("g").positions()
            opened.append(time.perf_counter() - began)
        bare = [_bare_put(Path(folder), number) for number in range(sample)]
    first, last = sorted(times[:sample]), sorted(times[-sample:])
    return [
        Result(
            f"group commit after {earlier:,} others, p50 in ms",
            f"{median(last) * 1e3:.2f} ms (p99 {last[sample * 99 // 100] * 1e3:.2f} ms)",
            f"the first {sample} {median(first) * 1e3:.2f} ms, "
            f"a bare put {median(bare) * 1e3:.2f} ms",
            median(last) * 1e3,
            10,
            at_most=True,
        ),
        Result(
            f"positions of a group just opened, after {earlier:,} commits, p50 in ms",
            f"{median(opened) * 1e3:.2f} ms",
            "none",
            median(opened) * 1e3,
            10,
            at_most=True,
        ),
    ]


def _bare_put(folder: Path, number: int) -> float:
    """The least that a durable object costs on this disk: a file and its name, both synced."""
    began = time.perf_counter()
    temporary = folder / "temporary"
    with temporary.open("wb") as file:
        file.write(b"x" * 200)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, folder / f"bare-{number}")
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.unlink()
    return time.perf_counter() - began
