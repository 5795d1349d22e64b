"""Publishing a large topic after one small append, against one of a thousand segments.

The first publication of each topic is not measured: it has to look into every file.
"""

from __future__ import annotations

import statistics
import tempfile
import time

import pyarrow as pa

import pylogtable
from benchmarks.result import Result

PARTITIONS = 100
ROUNDS = 31  # three of them write a checkpoint; the median does not
SMALL_COMMITS = 10


def run(commits: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        topics = [_published(f"{folder}/{count}", count) for count in (SMALL_COMMITS, commits)]
        times: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for topic, spent in zip(topics, times, strict=True):
                topic.append(pa.table({"n": [1], "partition": pa.array([0], pa.int32())}))
                began = time.perf_counter()
                topic.publish(["delta"])
                spent.append(time.perf_counter() - began)
    small, large = (statistics.median(spent) * 1e3 for spent in times)
    return [
        Result(
            f"publish after one append, {commits * PARTITIONS:,} segments",
            f"{large:.2f} ms",
            f"{SMALL_COMMITS * PARTITIONS:,} segments {small:.2f} ms",
            large / small,
            2,
            at_most=True,
        )
    ]


def _published(url: str, commits: int) -> pylogtable.Topic:
    topic = pylogtable.open(url).create_topic("t", PARTITIONS, {"n": pa.int64()})
    numbers = pa.array(range(PARTITIONS), pa.int32())
    for commit in range(commits):
        topic.append(pa.table({"n": pa.repeat(commit, PARTITIONS), "partition": numbers}))
    topic.publish(["delta"])
    return topic
