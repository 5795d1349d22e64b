"""The command line as a process of its own: how long until it has answered.

Times are the best of several runs, since other work on the machine only makes a run longer.
Bytecode is warm, as it is after an installation.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pylogtable
from benchmarks.generate import grow
from benchmarks.result import Result

ROOT = Path(__file__).parents[1]
PARTITIONS = 6
SEGMENTS_PER_COMMIT = 10
ROUNDS = 7
WALL_SECONDS = 0.5
CPU_SECONDS = 1.5


def run(commits: int) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        store = pylogtable.open(f"{folder}/logs")
        store.create_topic("small", partitions=PARTITIONS)
        large = store.create_topic("large", partitions=PARTITIONS)
        grow(large, commits, SEGMENTS_PER_COMMIT)
        segments = f"{commits * SEGMENTS_PER_COMMIT:,} segments"
        bare, _ = measure(folder, "-c", "import pyarrow")
        yardstick = f"import pyarrow {bare:.2f} s"
        results = []
        for name, *arguments in [
            ("--help", "--help"),
            ("topics list", "topics", "list"),
            ("topics describe", "topics", "describe", "small"),
            (f"topics describe, {segments}", "topics", "describe", "large"),
            (f"offsets, {segments}", "offsets", "large"),
        ]:
            wall, cpu = measure(folder, "-m", "pylogtable", *arguments)
            results.append(
                Result(f"{name}, wall s", f"{wall:.2f} s", yardstick, wall, WALL_SECONDS, True)
            )
            if segments in name:
                results.append(
                    Result(f"{name}, process s", f"{cpu:.2f} s", yardstick, cpu, CPU_SECONDS, True)
                )
        return results


def measure(folder: str, *arguments: str) -> tuple[float, float]:
    """Seconds of wall time and of process time, the best of several runs after one to warm up."""
    environment = {name: text for name, text in os.environ.items() if name[:6] != "PYTHON"}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
        "PYLOGTABLE_STORE": f"{folder}/logs",
    }
    walls, cpus = [], []
    for _ in range(ROUNDS + 1):
        before, began = _children_seconds(), time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        walls.append(time.perf_counter() - began)
        cpus.append(_children_seconds() - before)
    return min(walls[1:]), min(cpus[1:])


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
