"""A driver is killed in the middle of a running stream, again and again: every record of the
source arrives exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pylogtable
from pylogtable import Topic
from tests.builders import kafka, rows
from tests.depth import new_seed
from tests.spark.conftest import CONNECT
from tests.spark.streams import copied, places, until

KILLS = 10
PER_RUN = 400
PER_BATCH = 50

DRIVER = """
import sys
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "512m")
    .config("spark.sql.codegen.wholeStage", "false").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
print("ready", flush=True)
how = sys.stdin.readline().strip()
source = spark.readStream.format("pylogtable").option("startingOffsets", "earliest")
if how == "run":
    source = source.option("maxOffsetsPerTrigger", sys.argv[2])
df = source.load(folder + "/logs/source").selectExpr(
    "value", "partition AS was_in", "offset AS was_at"
)
writer = (
    df.writeStream.format("pylogtable").option("partitions", 1)
    .option("checkpointLocation", folder + "/checkpoint")
)
query = writer.start(folder + "/logs/copy")
if how == "run":
    query.awaitTermination()
query.processAllAvailable()
print("finished", flush=True)
"""


class Driver:
    """A separate process that starts its JVM and then waits for the signal to start."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "driver.py"), str(folder), str(PER_BATCH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "drivers.log").open("ab"),
            text=True,
            cwd=folder,
            start_new_session=True,
        )

    def begin(self, how: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        assert self.process.stdout.readline() == "ready\n"
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@contextmanager
def drivers(folder: Path) -> Iterator[list[Driver]]:
    """Drivers, each of which starts its JVM while the one before it runs."""
    started: list[Driver] = []
    try:
        yield started
    finally:
        for driver in started:
            driver.kill()


def version_of(folder: Path) -> int:
    """The newest version of the copy, from its files: it may not exist yet."""
    manifest = folder / "logs" / "copy" / "_manifest"
    names = [p.name for p in manifest.glob("*.json")] if manifest.exists() else []
    return max((int(name[:20]) for name in names if name[:20].isdigit()), default=0)


@pytest.mark.deep  # The streaming example in tests/notebooks is killed once.
@pytest.mark.skipif(CONNECT, reason="starts its own sessions")
def test_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    chance = random.Random(new_seed())
    (tmp_path / "driver.py").write_text(DRIVER)
    source = pylogtable.open(tmp_path / "logs").create_topic("source", partitions=2)
    with drivers(tmp_path) as started:
        started.append(Driver(tmp_path))
        for number in range(KILLS):
            started.append(Driver(tmp_path))
            _more(source, number)
            before, driver = version_of(tmp_path), started[number]
            driver.begin("run")
            until(lambda at=before: version_of(tmp_path) > at, seconds=600)  # type: ignore[misc]
            # Kill it at some point in a later batch.
            time.sleep(chance.random())
            assert driver.process.poll() is None, (tmp_path / "drivers.log").read_text()[-5000:]
            driver.kill()
        started[-1].begin("finish")
        out, _ = started[-1].process.communicate(timeout=600)
        assert out.endswith("finished\n")
    copy = pylogtable.open(tmp_path / "logs").topic("copy")
    assert source.count() == KILLS * PER_RUN
    assert copied(copy) == places(source)
    assert copy.verify(data=True)
    # Every driver had committed at least one batch.
    appends = [row for row in rows(copy.history()) if row["operation"] == "append"]
    assert len(appends) >= KILLS


def _more(source: Topic, number: int) -> None:
    source.append(kafka([f"{number}-{record}" for record in range(PER_RUN)]))
