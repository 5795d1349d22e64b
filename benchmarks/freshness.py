"""How soon another engine sees a record: `pylogtable run` in a process of its own, one writer of 10
small appends a second, and an engine that asks for the whole table from time to time.

`python -m benchmarks.freshness [SECONDS] [ENGINE …] [--far]`; with `--far` the store is an S3
server that is 30 ms away (`make test-s3` builds it). For each engine: how old the oldest record was
that the result of a SELECT did not have, when it came; beside it, how long after the return of an
append the first SELECT ended that shows it. That has the pause between SELECTs in it, and the
SELECT before.
Delta on Spark needs the environment of `make test-engines`, and its jars in
`PYLOGTABLE_ENGINE_JARS`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import pylogtable
from benchmarks.far_server import far_server
from benchmarks.result import Result, print_table

PARTITIONS = 6
APPENDS_PER_SECOND = 10
WANTED_SECONDS = 2.0
#: Between two SELECTs, on average. An engine that never rests would take one of two cores.
PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Place:
    """Where the topic is, and how each side reaches it."""

    url: str
    options: dict[str, Any] | None = None


def run(seconds: int, engines: list[str], *, far: bool = False) -> list[Result]:
    return [_measure(engine, seconds, far=far) for engine in engines]


@dataclass(frozen=True)
class Select:
    """A SELECT of an engine, and the newest append that it has shown."""

    began: float
    ended: float
    newest: int


def _measure(engine: str, seconds: int, *, far: bool) -> Result:
    with _place(far=far) as place:
        store = pylogtable.open(place.url, storage_options=place.options)
        formats = "iceberg" if engine == "pyiceberg" else "delta"
        config = {"publish.formats": formats, "retention.ms": -1}
        topic = store.create_topic("t", PARTITIONS, {"n": pa.int64()}, key="n", config=config)
        topic.publish()  # so that there is a table to ask
        ask = ENGINES[engine](place)

        def select() -> Select:
            began = time.time()
            newest = ask()
            return Select(began, time.time(), newest)

        spawn = multiprocessing.get_context("spawn")
        ours, its = spawn.Pipe()
        writer = spawn.Process(
            target=_append, args=(place.url, place.options, seconds, its), daemon=True
        )
        with _running(place):
            topic.append(pa.table({"n": [0]}))
            while select().newest < 0:  # the loop has started, and the engine is warm
                pass
            writer.start()
            selects: list[Select] = []
            pauses = random.Random(1)
            while not ours.poll():
                selects.append(select())
                time.sleep(pauses.uniform(0, 2 * PAUSE_SECONDS))
            returned: list[float] = ours.recv()
            deadline = time.time() + 30
            while selects[-1].newest < len(returned) and time.time() < deadline:
                selects.append(select())
    assert selects[-1].newest == len(returned), f"{engine} never saw append {len(returned)}"
    where = "S3 server 30 ms away" if far else "local disk"
    took = statistics.median(one.ended - one.began for one in selects)
    missing, waited = sorted(_ages(selects, returned)), sorted(_lags(selects, returned))
    return Result(
        f"{engine}, {where}: age of the oldest record that a result lacks, p99, s",
        f"{_shown(missing)} of {len(missing)} SELECTs, {took:.2f} s each",
        f"waited {_shown(waited)} of {len(waited)} appends",
        _p99(missing),
        WANTED_SECONDS,
        at_most=True,
    )


def _ages(selects: list[Select], returned: list[float]) -> list[float]:
    """For each SELECT that began while there were appends, the age of the oldest that its result
    did not have when it came; 0 if it has all."""
    return [
        max(0.0, one.ended - returned[one.newest])  # append `newest + 1`
        for one in selects
        if one.began >= returned[0] and one.newest < len(returned)
    ]


def _lags(selects: list[Select], returned: list[float]) -> list[float]:
    """For each append, the time to the end of the first SELECT that shows it."""
    lags = []
    at = 0
    for number, appended in enumerate(returned, 1):
        while selects[at].newest < number:
            at += 1
        lags.append(max(0.0, selects[at].ended - appended))
    return lags


def _p99(seconds: list[float]) -> float:
    return seconds[int(len(seconds) * 0.99)]


def _shown(seconds: list[float]) -> str:
    return f"p50 {statistics.median(seconds):.2f}, p99 {_p99(seconds):.2f}, max {seconds[-1]:.2f}"


@contextmanager
def _place(*, far: bool) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        if not far:
            yield Place(folder)
            return
        with far_server() as server:
            yield Place(f"{server.bucket_url}/logs", server.far)


@contextmanager
def _running(place: Place) -> Iterator[None]:
    command = [sys.executable, "-m", "pylogtable", "run", place.url, "--output", "json"]
    options = [] if place.options is None else ["--storage-options", json.dumps(place.options)]
    with tempfile.TemporaryFile() as out:
        loop = subprocess.Popen([*command, *options], stdout=out)
        try:
            yield
        finally:
            loop.send_signal(signal.SIGTERM)
            loop.wait()
        out.seek(0)
        done = Counter(json.loads(line)["job"] for line in out)
    print(", ".join(f"{count} of {job}" for job, count in done.items()), file=sys.stderr)


def _append(url: str, options: dict[str, Any] | None, seconds: int, parent: Any) -> None:
    topic = pylogtable.open(url, storage_options=options).topic("t")
    began = time.time()
    returned = []
    for number in range(seconds * APPENDS_PER_SECOND):
        time.sleep(max(0.0, began + number / APPENDS_PER_SECOND - time.time()))
        topic.append(pa.table({"n": [number + 1]}))
        returned.append(time.time())
    parent.send(returned)


def _object_store(place: Place) -> dict[str, str] | None:
    """The options of the server as the engines in Rust want them."""
    if place.options is None:
        return None
    return {
        "AWS_ENDPOINT_URL": place.options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": place.options["key"],
        "AWS_SECRET_ACCESS_KEY": place.options["secret"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def _delta_rs(place: Place) -> Callable[[], int]:
    from deltalake import DeltaTable

    def select() -> int:
        table = DeltaTable(f"{place.url}/t", storage_options=_object_store(place))
        return _greatest(table.to_pyarrow_table(columns=["n"])["n"].to_numpy())

    return select


def _polars(place: Place) -> Callable[[], int]:
    import polars

    def select() -> int:
        table = polars.scan_delta(f"{place.url}/t", storage_options=_object_store(place))
        return _greatest(table.select("n").collect()["n"].to_numpy())

    return select


def _pyiceberg(place: Place) -> Callable[[], int]:
    from pyiceberg.table import StaticTable

    properties = {}
    if place.options is not None:
        properties = {
            "s3.endpoint": place.options["endpoint_url"],
            "s3.access-key-id": place.options["key"],
            "s3.secret-access-key": place.options["secret"],
            "s3.region": "us-east-1",
        }

    def select() -> int:
        table = StaticTable.from_metadata(f"{place.url}/t", properties)
        return _greatest(table.scan(selected_fields=("n",)).to_arrow()["n"].to_numpy())

    return select


def _delta_on_spark(place: Place) -> Callable[[], int]:
    from pyspark.sql import SparkSession

    jars = sorted(Path(os.environ["PYLOGTABLE_ENGINE_JARS"]).glob("**/*.jar"))
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", catalog)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.ui.enabled", "false")
    )
    if place.options is not None:
        builder = builder.config(
            map={
                "spark.hadoop.fs.s3a.endpoint": place.options["endpoint_url"],
                "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.access.key": place.options["key"],
                "spark.hadoop.fs.s3a.secret.key": place.options["secret"],
            }
        )
    session = builder.getOrCreate()
    query = f"SELECT max(n) FROM delta.`{place.url.replace('s3://', 's3a://')}/t`"

    def select() -> int:
        (row,) = session.sql(query).collect()
        return -1 if row[0] is None else int(row[0])

    return select


def _greatest(numbers: Any) -> int:
    return int(numbers.max()) if len(numbers) else -1


ENGINES: dict[str, Callable[[Place], Callable[[], int]]] = {
    "delta-rs": _delta_rs,
    "polars": _polars,
    "pyiceberg": _pyiceberg,
    "delta-spark": _delta_on_spark,
}
#: Those that need no other environment.
USUAL = ["delta-rs", "polars", "pyiceberg"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.freshness", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=int, default=60)
    parser.add_argument("engines", nargs="*", default=[])
    parser.add_argument("--far", action="store_true")
    asked = parser.parse_args()
    results = run(asked.seconds, asked.engines or USUAL, far=asked.far)
    print_table(results)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
