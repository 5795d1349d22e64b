"""Streams: the cost of a trigger on a large topic, throughput beside batch reads, and the time from
an append to the commit downstream, beside Spark's own Parquet stream in the same run."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import pylogtable
from benchmarks.generate import grow
from benchmarks.result import Result
from pylogtable.limits import DEFAULT_LIMITS

PARTITIONS = 6
SEGMENTS_PER_COMMIT = 10
TRIGGERS = 30
ROUNDS = 3
APPENDS_PER_SECOND = 10
ROWS_PER_APPEND = 10
WARM_UP_SECONDS = 20.0


def run(commits: int, records: int, seconds: float) -> list[Result]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        results = [_triggers(Path(folder), commits)]
        spark = _session()
        results += _throughput(spark, Path(folder), records)
        results.append(_latency(spark, Path(folder), seconds))
        spark.stop()
    return results


def _session() -> Any:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


# --- a trigger -------------------------------------------------------------------------------


def _triggers(folder: Path, commits: int) -> Result:
    """`latestOffset` and `partitions` of a warm reader, after each of several appends."""
    interval = DEFAULT_LIMITS.root_interval
    small_commits = interval + commits % interval
    streams = []
    for name, count in (("small", small_commits), ("large", commits)):
        topic = pylogtable.open(folder / name).create_topic("t", partitions=PARTITIONS)
        grow(topic, count, SEGMENTS_PER_COMMIT)
        streams.append(_Stream(topic))
    times: list[list[float]] = [[], []]
    for _ in range(TRIGGERS):
        for spent, stream in zip(times, streams, strict=True):
            spent.append(stream.trigger())
    small, large = (statistics.median(spent) * 1e3 for spent in times)
    return Result(
        f"a warm trigger, {commits * SEGMENTS_PER_COMMIT:,} segments in {commits:,} commits",
        f"{large:.2f} ms",
        f"{small_commits} commits {small:.2f} ms",
        large / small,
        2,
        at_most=True,
    )


class _Stream:
    def __init__(self, topic: pylogtable.Topic) -> None:
        from pyspark_pylogtable import DefaultSource

        source = DefaultSource({"path": topic.url})
        self._topic = topic
        self._reader: Any = source.streamReader(source.schema())
        self._at = self._reader.latestOffset(self._reader.initialOffset(), None)

    def trigger(self) -> float:
        self._topic.append(_rows(60))
        began = time.perf_counter()
        end = self._reader.latestOffset(self._at, None)
        parts = self._reader.partitions(self._at, end)
        spent = time.perf_counter() - began
        assert parts
        self._at = end
        return spent


def _rows(count: int) -> pa.Table:
    return pa.table({"key": [b"%d" % n for n in range(count)], "value": [b"v" * 80] * count})


# --- throughput ------------------------------------------------------------------------------


def _register_small_source(spark: Any) -> None:
    """Register a Python source of one row: its queries show what Spark itself takes. The classes
    are inside of a function, so that no worker has to import this module."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class SmallReader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
            return {"at": 1}

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Any:
            yield (0,)

    class SmallSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "small"

        def schema(self) -> str:
            return "a int"

        def streamReader(self, schema: Any) -> SmallReader:
            return SmallReader()

    spark.dataSource.register(SmallSource)


def _throughput(spark: Any, folder: Path, records: int) -> list[Result]:
    """A whole topic by `Trigger.AvailableNow`, beside a batch read of it; and how much of that is
    the start of a query, whatever it reads."""
    _register_small_source(spark)
    one = pylogtable.open(f"{folder}/logs").create_topic("one")
    one.append(_rows(1))
    url = f"{folder}/logs/orders"
    spark.range(0, records, 1, 4).selectExpr(
        "cast(id AS string) AS key",
        "concat(sha1(string(id)), '-', id) AS value",
    ).write.format("pylogtable").mode("append").option("partitions", PARTITIONS).save(url)
    made = iter(range(1_000_000))

    def batch() -> Any:
        return spark.read.format("pylogtable").load(url)

    def stream(path: str = url) -> Any:
        reader = spark.readStream.format("pylogtable").option("startingOffsets", "earliest")
        return reader.load(path)

    def drained(frame: Any, sink: str, path: str | None = None) -> None:
        checkpoint = f"{folder}/checkpoint-{next(made)}"
        writer = frame.writeStream.format(sink).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(path)
        query.awaitTermination()

    def to() -> str:
        name = f"copy-{next(made)}"
        return pylogtable.open(f"{folder}/logs").create_topic(name, partitions=PARTITIONS).url

    def append(path: str) -> None:
        batch().select("key", "value").write.format("pylogtable").mode("append").save(path)

    steps: dict[str, Callable[[], object]] = {
        "batch read": lambda: batch().write.format("noop").mode("overwrite").save(),
        "stream": lambda: drained(stream(), "noop"),
        "a Python source of one row": lambda: drained(
            spark.readStream.format("small").load(), "noop"
        ),
        "start": lambda: drained(stream(one.url), "noop"),
        "batch copy": lambda: append(to()),
        "stream copy": lambda: drained(stream().select("key", "value"), "pylogtable", to()),
    }
    times = {name: float("inf") for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            times[name] = min(times[name], time.perf_counter() - began)
    size = f"{records / 1e6:g} M records"
    small = "a Python source of one row"
    start = Result(
        "start and end of a query, AvailableNow over one record into noop",
        f"{times['start']:.2f} s",
        f"{small} {times[small]:.2f} s",
        times["start"] / times[small],
        1.5,
        at_most=True,
    )
    return [start] + [
        Result(
            f"AvailableNow into {what}, {size}",
            f"{times[ours]:.2f} s",
            f"{theirs} {times[theirs]:.2f} s",
            times[theirs] / times[ours],
            0.8,
        )
        for what, ours, theirs in (
            ("noop", "stream", "batch read"),
            ("a topic", "stream copy", "batch copy"),
        )
    ]


# --- latency ---------------------------------------------------------------------------------


def _latency(spark: Any, folder: Path, seconds: float) -> Result:
    """From the end of an append to the end of the commit downstream that has it: p50 and p99 of
    both pipelines, one after the other."""
    topic = pylogtable.open(f"{folder}/live").create_topic("in")
    pylogtable.open(f"{folder}/live").create_topic("out")
    ours = _measure(
        spark.readStream.format("pylogtable").option("startingOffsets", "earliest").load(topic.url),
        lambda number: topic.append(_numbered(number)),
        "pylogtable",
        f"{folder}/live/out",
        f"{folder}/live-checkpoint",
        lambda: _seen_in_topic(f"{folder}/live/out"),
        seconds,
    )
    files = Path(folder) / "files"
    files.mkdir()
    theirs = _measure(
        spark.readStream.schema("key binary, value binary").parquet(str(files)),
        lambda number: _write_file(files, number),
        "parquet",
        f"{folder}/files-out",
        f"{folder}/files-checkpoint",
        lambda: _seen_in_files(Path(f"{folder}/files-out")),
        seconds,
    )
    return Result(
        f"append to sink commit, {APPENDS_PER_SECOND} appends/s (p50, relative to parquet's)",
        f"p50 {ours[0]:.0f} ms, p99 {ours[1]:.0f} ms",
        f"parquet p50 {theirs[0]:.0f} ms, p99 {theirs[1]:.0f} ms",
        ours[0] / theirs[0],
        1.0,
        at_most=True,
    )


def _measure(
    frame: Any,
    append: Callable[[int], object],
    sink: str,
    path: str,
    checkpoint: str,
    seen: Callable[[], dict[int, float]],
    seconds: float,
) -> tuple[float, float]:
    """p50 and p99 in milliseconds, of appends made while a warmed-up query runs."""
    writer = frame.select("key", "value").writeStream.format(sink)
    query = writer.option("checkpointLocation", checkpoint).start(path)
    appended: dict[int, float] = {}
    warm_up = int(min(WARM_UP_SECONDS, seconds) * APPENDS_PER_SECOND)
    began = time.time()
    for number in range(warm_up + int(seconds * APPENDS_PER_SECOND)):
        time.sleep(max(0.0, began + number / APPENDS_PER_SECOND - time.time()))
        append(number)
        if number >= warm_up:
            appended[number] = time.time()
    query.processAllAvailable()
    query.stop()
    arrived = seen()
    taken = sorted((arrived[n] - at) * 1e3 for n, at in appended.items())
    return taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 99 // 100)]


def _numbered(number: int) -> pa.Table:
    return pa.table(
        {"key": [b"%d" % number] * ROWS_PER_APPEND, "value": [b"v" * 80] * ROWS_PER_APPEND}
    )


def _write_file(folder: Path, number: int) -> None:
    """Write under a name that the source ignores, and rename the file when it is complete."""
    pq.write_table(_numbered(number), folder / f"_{number}.tmp")
    (folder / f"_{number}.tmp").rename(folder / f"{number}.parquet")


def _seen_in_topic(url: str) -> dict[int, float]:
    """The time of the commit that has each append, by its object."""
    topic = pylogtable.open_topic(url)
    arrived: dict[int, float] = {}
    for row in topic.history().to_pylist():
        if row["operation"] == "append":
            at = Path(f"{url}/_manifest/{row['version']:020d}.json").stat().st_mtime
            for number in _added(topic, row["version"]):
                arrived[number] = at
    return arrived


def _added(topic: pylogtable.Topic, version: int) -> set[int]:
    before, after = topic.at(version - 1).end_offsets, topic.at(version).end_offsets
    read = topic.read(start=before, end=after, columns=["key"], version=version).read_all()
    return {int(key) for key in read["key"].unique().to_pylist()}


def _seen_in_files(folder: Path) -> dict[int, float]:
    """The time of the entry in the sink's log that names the file with each append."""
    arrived: dict[int, float] = {}
    for entry in sorted((folder / "_spark_metadata").iterdir()):
        if entry.name.startswith(".") or not entry.name.split(".")[0].isdigit():
            continue
        for line in entry.read_text().splitlines()[1:]:
            name = json.loads(line)["path"].rpartition("/")[2]
            for key in pq.read_table(folder / name, columns=["key"])["key"].unique().to_pylist():
                at = arrived.get(int(key), entry.stat().st_mtime)
                arrived[int(key)] = min(at, entry.stat().st_mtime)
    return arrived
