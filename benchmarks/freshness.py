"""How soon another engine sees a record: `pylogtable run` in a process of its own, one writer of 10
small appends a second, and an engine that asks again and again.

`python -m benchmarks.freshness [SECONDS] [ENGINE …] [--far]`; with `--far` the store is an S3
server that is 30 ms away (`make test-s3` builds it), and requests are counted. The lag of an append
is the time from its return to the end of the first SELECT that shows it, so the SELECTs count, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
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
from typing import Any

import polars
import pyarrow as pa

import pylogtable
from benchmarks.far_server import FarServer, far_server
from benchmarks.result import Result, print_table

PARTITIONS = 6
APPENDS_PER_SECOND = 10
WANTED_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """Where the topic is, and how each side reaches it."""

    url: str
    options: dict[str, Any] | None = None
    server: FarServer | None = None

    def requests(self) -> Counter[str]:
        return Counter() if self.server is None else self.server.requests()


def run(seconds: int, engines: list[str], *, far: bool = False) -> list[Result]:
    return [result for engine in engines for result in _measure(engine, seconds, far=far)]


def _measure(engine: str, seconds: int, *, far: bool) -> Iterator[Result]:
    with _place(far=far) as place:
        store = pylogtable.open(place.url, storage_options=place.options)
        formats = "iceberg" if engine == "pyiceberg" else "delta"
        config = {"publish.formats": formats, "retention.ms": -1}
        topic = store.create_topic("t", PARTITIONS, {"n": pa.int64()}, key="n", config=config)
        topic.publish()  # so that there is a table to ask
        select = ENGINES[engine](place)
        ours, its = multiprocessing.get_context("spawn").Pipe()
        writer = multiprocessing.get_context("spawn").Process(
            target=_append, args=(place.url, place.options, seconds, its), daemon=True
        )
        with _running(place):
            topic.append(pa.table({"n": [0]}))
            while select() < 0:  # the loop has started, and the engine is warm
                pass
            writer.start()
            seen: list[tuple[float, int]] = []
            while not ours.poll():
                newest = select()
                seen.append((time.time(), newest))
            appended: list[float] = ours.recv()
            deadline = time.time() + 30
            while seen[-1][1] < len(appended) and time.time() < deadline:
                newest = select()
                seen.append((time.time(), newest))
        lags = []
        at = 0
        for number, returned in enumerate(appended, 1):
            while at < len(seen) - 1 and seen[at][1] < number:
                at += 1
            assert seen[at][1] >= number, f"{engine} never saw append {number}"
            lags.append(max(0.0, seen[at][0] - returned))
        lags.sort()
        p99 = lags[int(len(lags) * 0.99)]
        where = "S3 server 30 ms away" if far else "local disk"
        yield Result(
            f"append to SELECT, {engine}, {where}, p99 of {len(lags)}, s",
            f"{p99:.2f} s (p50 {statistics.median(lags):.2f}, longest {lags[-1]:.2f})",
            "-",
            p99,
            WANTED_SECONDS,
            at_most=True,
        )


@contextmanager
def _place(*, far: bool) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        if not far:
            yield Place(folder)
            return
        with far_server() as server:
            yield Place(f"{server.bucket_url}/logs", server.far, server)


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


def _greatest(numbers: Any) -> int:
    return int(numbers.max()) if len(numbers) else -1


ENGINES: dict[str, Callable[[Place], Callable[[], int]]] = {
    "delta-rs": _delta_rs,
    "polars": _polars,
    "pyiceberg": _pyiceberg,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.freshness", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=int, default=60)
    parser.add_argument("engines", nargs="*", default=[*ENGINES])
    parser.add_argument("--far", action="store_true")
    asked = parser.parse_args()
    results = run(asked.seconds, asked.engines or [*ENGINES], far=asked.far)
    print_table(results)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
