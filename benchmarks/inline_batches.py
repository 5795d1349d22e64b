"""Records in commits beside records in files: the same appends, once with `inline.max.bytes` and
once with 0. The rows on an S3 server that is 30 ms away need one, as `round_trips` does.

`PYLOGTABLE_S3_SERVER=.servers/versitygw python -m benchmarks.inline_batches [--quick]`
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa
from deltalake import write_deltalake

import pylogtable
from benchmarks.result import Result, print_table
from tests.clouds.servers import BUCKET, KEY, SECRET, Versitygw, options, running
from tests.proxy import proxy_before

LATENCY_S = 0.03
PARTITIONS = 6
WRITERS = 8
INLINE, FILES = {}, {"inline.max.bytes": 0}


def records(count: int, start: int = 0) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {"key": [b"%d" % n for n in numbers], "value": [os.urandom(50).hex() for _ in numbers]}
    )


def seconds_of(action: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return found


def shown(times: list[float]) -> str:
    return f"p50 {median(times) * 1e3:.0f} ms, p99 {quantiles(times, n=100)[-1] * 1e3:.0f} ms"


def far_away(folder: Path, appends: int) -> list[Result]:
    with (
        running(os.environ[Versitygw.variable], folder) as server,
        proxy_before(server.port, latency_s=LATENCY_S) as proxy,
    ):
        url, far = f"s3://{BUCKET}/logs", options(proxy.url)
        store = pylogtable.open(url, storage_options=far)
        inline = store.create_topic("inline", PARTITIONS, config=INLINE)
        files = store.create_topic("files", PARTITIONS, config=FILES)
        batch, table = records(100), f"s3://{BUCKET}/delta"
        theirs = {
            "AWS_ENDPOINT_URL": proxy.url, "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true", "AWS_CONDITIONAL_PUT": "etag",
        }  # fmt: skip
        for topic in (inline, files):
            topic.append(batch)
        write_deltalake(table, batch, storage_options=theirs)
        bare, ours, old, delta = [], [], [], []
        requests = 0
        for _ in range(appends):  # in turn, so that noise meets all of them
            bare += seconds_of(lambda: inline._store.write("bare", b"x"), 1)
            proxy.traffic.reset()
            ours += seconds_of(lambda: inline.append(batch), 1)
            requests += proxy.traffic.requests
            old += seconds_of(lambda: files.append(batch), 1)
            write = lambda: write_deltalake(table, batch, mode="append", storage_options=theirs)  # noqa: E731
            delta += seconds_of(write, 1)
        crowd = {topic.name: _crowd(url, far, topic.name, appends) for topic in (inline, files)}
    what = f"append of 100 records into {PARTITIONS} partitions, 30 ms away"
    return [
        Result(what, shown(ours), f"a bare PUT {shown(bare)}", median(ours) / median(bare), 1.3,
               True),
        Result(what, shown(ours), f"in files {shown(old)}", median(ours) / median(old), 1, True),
        Result(what, shown(ours), f"delta-rs {shown(delta)}", median(delta) / median(ours), 1),
        Result("requests of it", f"{requests} for {appends}", "", requests / appends, 1.1, True),
        Result(
            f"{WRITERS} writers on one topic, commits a second",
            f"{crowd['inline']:.1f}", f"in files {crowd['files']:.1f}",
            crowd["inline"] / crowd["files"], 1,
        ),
    ]  # fmt: skip


def _crowd(url: str, far: dict[str, object], name: str, appends: int) -> float:
    """Commits a second of several writers; none may be lost."""

    def write(number: int) -> None:
        topic = pylogtable.open(url, storage_options=far).topic(name)
        for n in range(appends // WRITERS):
            topic.append(records(10), txn=(f"w{number}", n))

    topic = pylogtable.open(url, storage_options=far).topic(name)
    before = topic.count()
    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    seconds = time.perf_counter() - began
    commits = appends // WRITERS * WRITERS
    assert topic.count() == before + commits * 10
    return commits / seconds


def nearby(folder: Path, appends: int) -> list[Result]:
    store = pylogtable.open(folder)
    inline = store.create_topic("inline", PARTITIONS, config=INLINE)
    files = store.create_topic("files", PARTITIONS, config=FILES)
    one, times = records(1), {"inline": [], "files": []}  # type: ignore[var-annotated]
    for _ in range(min(appends, 1000)):
        times["inline"] += seconds_of(lambda: inline.append(one), 1)
        times["files"] += seconds_of(lambda: files.append(one), 1)
    tenth = appends // 10
    steady = store.create_topic("steady", config=INLINE)
    each = seconds_of(lambda: steady.append(one), appends)
    first, last = sum(each[:tenth]), sum(each[-tenth:])
    ours, old = median(times["inline"]), median(times["files"])
    return [
        Result("append of one record, local disk", f"{ours * 1e3:.2f} ms",
               f"in a file {old * 1e3:.2f} ms", ours / old, 0.5, True),
        Result(f"the last {tenth:,} of {appends:,}", f"{last:.2f} s", f"the first {first:.2f} s",
               last / first, 1.2, True),
    ]  # fmt: skip


def read_back(folder: Path, commits: int) -> list[Result]:
    store, reads, opens = pylogtable.open(folder), {}, {}
    for name, config in (("inline", INLINE), ("files", FILES)):
        topic = store.create_topic(name, PARTITIONS, config=config)
        for n in range(commits):
            topic.append(records(100, n * 100))
        small = store.create_topic(f"{name}-72", PARTITIONS, config=config)
        for n in range(60):
            small.append(records(100, n * 100))

    def read(name: str) -> None:
        rows = pylogtable.open(folder).topic(name).read().read_all().num_rows
        assert rows == commits * 100

    for _ in range(3):
        for name in ("inline", "files"):
            reads.setdefault(name, []).extend(seconds_of(lambda: read(name), 1))  # noqa: B023
            opened = lambda: pylogtable.open(folder).topic(f"{name}-72")  # noqa: B023, E731
            opens.setdefault(name, []).extend(seconds_of(opened, 3))
    (best, old), (cold, before) = (
        (min(found["inline"]), min(found["files"])) for found in (reads, opens)
    )
    topic = store.topic("inline")
    topic.merge()
    size = sum(topic.segments()["size_bytes"].to_pylist())
    large = store.create_topic("large", PARTITIONS, config=FILES)
    large.append(topic.read(columns=["key", "value"]).read_all())
    whole = sum(large.segments()["size_bytes"].to_pylist())
    return [
        Result(f"read {commits * 100:,} records in {commits:,} commits", f"{best:.2f} s",
               f"in files {old:.2f} s", best / old, 0.3, True),
        Result("cold open after 60 commits", f"{cold * 1e3:.1f} ms",
               f"in files {before * 1e3:.1f} ms", cold / before, 1.5, True),
        Result("bytes after a merge of them", f"{size:,}", f"one large append {whole:,}",
               size / whole, 1.1, True),
    ]  # fmt: skip


def main() -> int:
    quick = "--quick" in sys.argv
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("s3", "disk", "read"):
            (place / name).mkdir()
        if Versitygw.variable in os.environ:
            results += far_away(place / "s3", 16 if quick else 200)
        results += nearby(place / "disk", 500 if quick else 10_000)
        results += read_back(place / "read", 100 if quick else 1000)
    print_table(results)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
