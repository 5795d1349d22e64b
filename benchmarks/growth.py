"""What is done with a large topic, against one a thousandth of its size."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa

import pylogtable
from benchmarks.generate import grow
from benchmarks.result import Result
from pylogtable.limits import DEFAULT_LIMITS

PARTITIONS = 6
SEGMENTS_PER_COMMIT = 10
ROUNDS = 15


def run(commits: int) -> list[Result]:
    interval = DEFAULT_LIMITS.root_interval
    small_commits = interval + commits % interval
    with tempfile.TemporaryDirectory() as folder:
        urls = [_grown(f"{folder}/{name}", n) for name, n in _sizes(small_commits, commits)]
        results = []
        for what, prepare in _ACTIONS.items():
            times: list[list[float]] = [[], []]
            for _ in range(ROUNDS):
                for spent, url in zip(times, urls, strict=True):
                    action = prepare(url)
                    began = time.perf_counter()
                    action()
                    spent.append(time.perf_counter() - began)
            small, large = (statistics.median(spent) * 1e3 for spent in times)
            segments = commits * SEGMENTS_PER_COMMIT
            results.append(
                Result(
                    f"{what}, {segments:,} segments",
                    f"{large:.2f} ms",
                    f"{small_commits * SEGMENTS_PER_COMMIT:,} segments {small:.2f} ms",
                    large / small,
                    2,
                    at_most=True,
                )
            )
        return results


def _sizes(small: int, large: int) -> list[tuple[str, int]]:
    return [("small", small), ("large", large)]


def _grown(url: str, commits: int) -> str:
    topic = pylogtable.open(url).create_topic("t", partitions=PARTITIONS)
    topic.append(_records())
    grow(topic, commits - 1, SEGMENTS_PER_COMMIT)
    return f"{url}/t"


def _records() -> pa.Table:
    times = pa.array([0] * 60, pa.timestamp("us", tz="UTC"))
    keys = [b"%d" % n for n in range(60)]
    return pa.table({"key": keys, "value": [b"v" * 80] * 60, "timestamp": times})


def _open(url: str) -> Callable[[], object]:
    return lambda: pylogtable.open_topic(url)


def _describe(url: str) -> Callable[[], object]:
    topic = pylogtable.open_topic(url)
    return lambda: topic.describe()


def _append(url: str) -> Callable[[], object]:
    topic = pylogtable.open_topic(url)
    return lambda: topic.append(_records())


def _cold_read(url: str) -> Callable[[], object]:
    return lambda: pylogtable.open_topic(url).read(2, 3, 4).read_all()


def _time_lookup(url: str) -> Callable[[], object]:
    topic = pylogtable.open_topic(url)
    return lambda: topic.offsets_for_time(0)


_ACTIONS: dict[str, Callable[[str], Callable[[], object]]] = {
    "open": _open,
    "describe": _describe,
    "append": _append,
    "cold open and read of one record": _cold_read,
    "lookup by time": _time_lookup,
}
