"""A mirror of a topic to another directory, against a plain copy of the same files.

Both use as many threads, sync files and folders to disk, and begin with an empty directory. Then a
second mirror brings one small append; what it asks of both stores is counted.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pylogtable
from benchmarks.result import Result
from benchmarks.throughput import PARTITIONS, kafka_records
from pylogtable.runtime import Runtime
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.stores import CountingStore

ROUNDS = 9
APPENDS = 10
THREADS = 4
#: Requests of both stores for a mirror after one append of a record, the opening of both included.
REQUESTS = 40


def run(records: int) -> list[Result]:
    return [_speed(records), _requests(APPENDS)]


def _speed(records: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        topic = pylogtable.open(f"{folder}/source").create_topic("t", PARTITIONS)
        table = kafka_records(records // APPENDS)
        for _ in range(APPENDS):
            topic.append(table)
        paths = topic.segments()["path"].to_pylist()
        size_mb = sum(topic.segments()["size_bytes"].to_pylist()) / 1e6
        ours, theirs = [], []
        for number in range(ROUNDS):
            copy, plain = f"{folder}/copy", Path(folder) / "plain"
            steps = [
                (ours, lambda copy=copy: topic.mirror(pylogtable.open(copy))),
                (theirs, lambda plain=plain: _copy(Path(folder) / "source" / "t", plain, paths)),
            ]
            for times, action in steps if number % 2 else reversed(steps):
                os.sync()
                times.append(_seconds(action))
            assert pylogtable.open(copy).topic("t").count() == topic.count()
            shutil.rmtree(copy)
            shutil.rmtree(plain)
    speed = statistics.median(plain / mine for mine, plain in zip(ours, theirs, strict=True))
    mine, yardstick = statistics.median(ours), statistics.median(theirs)
    return Result(
        f"mirror of {size_mb:.0f} MB in {len(paths)} files, speed",
        f"{mine:.2f} s ({size_mb / mine:.0f} MB/s)",
        f"plain copy {yardstick:.2f} s ({size_mb / yardstick:.0f} MB/s)",
        speed,
        0.8,
    )


def _copy(source: Path, target: Path, paths: list[str]) -> None:
    folders = {(target / path).parent for path in paths}
    for folder in folders:
        folder.mkdir(parents=True)

    def copy(path: str) -> None:
        shutil.copyfile(source / path, target / path)
        _sync(target / path)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(copy, paths))
    for folder in folders:
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _requests(appends: int) -> Result:
    sides = [CountingStore(MemoryStore()) for _ in range(2)]
    source, target = (Store(side, Runtime()) for side in sides)
    topic = source.create_topic("t", PARTITIONS)
    for _ in range(appends):
        topic.append(kafka_records(1000))
    topic.mirror(target)
    topic.append(kafka_records(1))
    for side in sides:
        side.reset()
    source.topic("t").mirror(target)
    counts = [sum(side.counts.values()) for side in sides]
    return Result(
        "requests of a mirror after one small append",
        f"{counts[0]} of the source, {counts[1]} of the copy",
        "",
        sum(counts),
        REQUESTS,
        at_most=True,
    )


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
