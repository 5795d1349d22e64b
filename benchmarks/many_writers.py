"""Eight processes append to one topic at once: every append lands exactly once."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from typing import Any

import pyarrow as pa

import pylogtable
from benchmarks.result import Result

PROCESSES = 8
PARTITIONS = 6


def run(appends: int) -> list[Result]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        topic = pylogtable.open(folder).create_topic("t", partitions=PARTITIONS)
        ready = context.Barrier(PROCESSES + 1)
        workers = [
            context.Process(target=_work, args=(topic.url, number, appends, ready))
            for number in range(PROCESSES)
        ]
        for worker in workers:
            worker.start()
        ready.wait()
        began = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - began
        landed = _check(topic, appends)
    return [
        Result(
            f"{PROCESSES} processes x {appends} appends, commits per second",
            f"{landed} landed in {seconds:.2f} s",
            "0 lost, 0 twice",
            landed / seconds,
            60,
        )
    ]


def _work(url: str, number: int, appends: int, ready: Any) -> None:
    topic = pylogtable.open_topic(url)
    ready.wait()
    for turn in range(appends):
        key = b"%d-%d" % (number, turn)
        topic.append(pa.table({"key": [key], "value": [b"v" * 80]}))


def _check(topic: pylogtable.Topic, appends: int) -> int:
    rows = topic.read(columns=["partition", "offset", "key"]).read_all()
    keys = rows["key"].to_pylist()
    assert len(keys) == len(set(keys)) == PROCESSES * appends, "lost or doubled"
    assert sum(topic.end_offsets().values()) == len(keys), "not dense"
    assert topic.version == PROCESSES * appends
    assert topic.verify(), topic.verify()
    return len(keys)
