"""Many writers append to one topic at once, each as fast as it is answered.

`python -m benchmarks.many_writers --store s3 --writers 1,2,4,8,16,32 --seconds 20`

On S3 each request takes 30 ms longer than on this machine (`benchmarks/far_server.py`). Every
append has 10 records of 100 bytes. `--threads 8` runs 8 writers in each process, which share a
handle. `--think 0.5` lets each wait half a second on average between two appends. `--library`
measures the pylogtable of another checkout. Below our rows are the bound of a chain of conditional
PUTs, which is what one append per commit could reach at most, and delta-rs.

The rate counts appends that were acknowledged in time. Latencies and costs are those of all: a
writer that starves does not end with the others, and its last append shows it. At the end the topic
is read: every record is there once, and those of each writer are in order.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.far_server import FarServer, binary, far_server
from benchmarks.result import Result

PARTITIONS = 6
RECORDS = 10
RECORD_BYTES = 100

#: Makes the append of one writer: it is called with the number of the append.
Connect = Callable[[str, "dict[str, Any] | None", int], Callable[[int], object]]


@dataclass
class Work:
    """What one writer did."""

    writer: int
    in_time: int = 0
    gave_up: int = 0
    last_error: str = ""
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """What all writers did."""

    name: str
    works: list[Work]
    seconds: float
    cpu_seconds: float
    requests: dict[str, int]
    commits: int | None

    @property
    def appends(self) -> int:
        return sum(len(work.seconds) for work in self.works)

    @property
    def gave_up(self) -> int:
        return sum(work.gave_up for work in self.works)

    @property
    def rate(self) -> float:
        return sum(work.in_time for work in self.works) / self.seconds

    @property
    def requests_each(self) -> float:
        return sum(self.requests.values()) / max(1, self.appends)

    @property
    def slowest_share(self) -> float:
        """Appends of the slowest writer for each append of an average one of the others."""
        *others, least = sorted((work.in_time for work in self.works), reverse=True)
        return least * len(others) / max(1, sum(others)) if others else 1.0

    def quantile(self, share: float) -> float:
        every = sorted(one for work in self.works for one in work.seconds)
        return every[min(len(every) - 1, int(len(every) * share))] if every else math.nan

    def row(self, one: Run | None) -> tuple[str, ...]:
        counts = [work.in_time for work in self.works]
        kinds = " ".join(
            f"{kind} {count / max(1, self.appends):.1f}"
            for kind, count in self.requests.items()
            if count
        )
        return (
            self.name,
            f"{self.rate:.1f}",
            f"{self.rate / one.rate:.1f} x" if one and one.rate else "",
            *(f"{self.quantile(share) * 1e3:.0f} ms" for share in (0.5, 0.99, 1.0)),
            f"{self.requests_each:.1f} ({kinds})" if self.requests else "",
            f"{self.cpu_seconds / max(1, self.appends) * 1e3:.0f} ms",
            f"{min(counts)} / {max(counts)} ({self.slowest_share:.2f})",
            "" if self.commits is None else str(self.commits),
            str(self.gave_up),
        )


HEADER = (
    "writers",
    "appends/s",
    "to one",
    "p50",
    "p99",
    "longest",
    "requests each",
    "CPU each",
    "slowest / fastest (to the mean of the others)",
    "commits",
    "gave up",
)


def batch(writer: int, number: int) -> pa.Table:
    """The records have the writer as their key, so they are in one partition, and their number."""
    first = number * RECORDS
    values = [b"%010d" % n + b"v" * (RECORD_BYTES - 10) for n in range(first, first + RECORDS)]
    return pa.table({"key": [b"%d" % writer] * RECORDS, "value": values})


def our_append(url: str, options: dict[str, Any] | None, writer: int) -> Callable[[int], object]:
    topic = _opened(url, json.dumps(options))
    return lambda number: topic.append(batch(writer, number))


@cache
def _opened(url: str, options: str) -> Any:
    """One handle for all threads of a process. Another topic warms it up: what the first append of
    a process has to import is not what is measured."""
    import pylogtable

    store = pylogtable.open(url, storage_options=json.loads(options))
    store.topic("warm").append(batch(0, 0))
    topic = store.topic("t")
    topic.end_offsets()  # the client starts, and connects
    return topic


def delta_append(url: str, options: dict[str, Any] | None, writer: int) -> Callable[[int], object]:
    from deltalake import write_deltalake

    known = delta_options(options)
    return lambda number: write_deltalake(
        f"{url}/delta", batch(writer, number), mode="append", storage_options=known
    )


def bare_put(url: str, options: dict[str, Any] | None, writer: int) -> Callable[[int], object]:
    """A chain of objects that are put if they are absent, as fast as the store answers."""
    assert options is not None
    from botocore.session import Session

    client = Session().create_client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        **options["client_kwargs"],
    )
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    body = b"v" * RECORDS * RECORD_BYTES
    return lambda number: client.put_object(
        Bucket=bucket, Key=f"{prefix}/bare/{number:020d}", Body=body, IfNoneMatch="*"
    )


def delta_options(options: dict[str, Any] | None) -> dict[str, str] | None:
    if options is None:
        return None
    return {
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_ENDPOINT_URL": options["endpoint_url"],
        "AWS_REGION": options["client_kwargs"]["region_name"],
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }


def start_fork_server(library: str | None) -> None:
    """Processes that are forked from it have pylogtable already: that of this checkout, or of
    another one."""
    from multiprocessing.forkserver import ensure_running, set_forkserver_preload

    set_forkserver_preload(["pylogtable", "s3fs", "pyarrow.parquet"])
    before = os.getcwd()
    if library:
        os.chdir(library)  # the fork server imports from where it starts
    ensure_running()
    os.chdir(before)


@dataclass
class Bench:
    """`threads` writers run in each process."""

    url: str
    near: dict[str, Any] | None
    far: dict[str, Any] | None
    server: FarServer | None
    seconds: float
    think: float
    threads: int
    library: str | None

    def __post_init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        start_fork_server(self.library)
        self._number = 0

    def topic(self, writers: int) -> Run:
        import pylogtable

        self._number += 1
        url = f"{self.url}/run-{self._number}"
        store = pylogtable.open(url, storage_options=self.near)
        store.create_topic("warm", PARTITIONS)
        store.create_topic("t", PARTITIONS)
        run = self._run(our_append, url, writers, str(writers))
        topic = pylogtable.open(url, storage_options=self.near).topic("t")
        check(topic, run)
        return Run(
            run.name, run.works, run.seconds, run.cpu_seconds, run.requests, topic.version or 0
        )

    def delta(self, writers: int) -> Run:
        from deltalake import write_deltalake

        url = f"{self.url}/delta-{writers}"
        write_deltalake(f"{url}/delta", batch(-1, 0), storage_options=delta_options(self.near))
        return self._run(delta_append, url, writers, f"{writers}, delta-rs")

    def bare(self) -> Run:
        return self._run(bare_put, f"{self.url}/bare", 1, "1, bare conditional PUT")

    def _run(self, connect: Connect, url: str, writers: int, name: str) -> Run:
        groups = [
            list(range(first, min(writers, first + self.threads)))
            for first in range(0, writers, self.threads)
        ]
        ready, go = self._context.Barrier(len(groups) + 1), self._context.Event()
        results = self._context.SimpleQueue()
        order = (connect, url, self.far, self.seconds, self.think, ready, go, results, self.library)
        processes = [self._context.Process(target=_work, args=(group, *order)) for group in groups]
        for process in processes:
            process.start()
        ready.wait()
        before = self.server.requests() if self.server else {}
        go.set()
        done = [results.get() for _ in processes]
        for process in processes:
            process.join()
        after = self.server.requests() if self.server else {}
        works = [work for mine, _ in done for work in mine]
        cpu = sum(seconds for _, seconds in done)
        requests = {kind: after[kind] - before[kind] for kind in after}
        return Run(name, works, self.seconds, cpu, requests, None)


def _work(
    writers: list[int],
    connect: Connect,
    url: str,
    options: dict[str, Any] | None,
    seconds: float,
    think: float,
    ready: Any,
    go: Any,
    results: Any,
    library: str | None,
) -> None:
    if library:
        import pylogtable

        assert os.path.realpath(pylogtable.__file__).startswith(os.path.realpath(library))
    works = [Work(writer) for writer in writers]
    appends = [connect(url, options, writer) for writer in writers]
    ready.wait()
    go.wait()
    began = resource.getrusage(resource.RUSAGE_SELF)
    end = time.monotonic() + seconds
    loops = [
        threading.Thread(target=_append_until, args=(end, think, append, work))
        for append, work in zip(appends, works, strict=True)
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    results.put((works, cpu))


def _append_until(end: float, think: float, append: Callable[[int], object], work: Work) -> None:
    chance = random.Random(work.writer)
    while True:
        if think:
            time.sleep(chance.expovariate(1 / think))
        began = time.monotonic()
        if began >= end:
            return
        try:
            append(len(work.seconds))
        except Exception as error:  # delta-rs gives up after 15 lost races
            work.gave_up += 1
            work.last_error = repr(error)
            continue
        now = time.monotonic()
        work.seconds.append(now - began)
        work.in_time += now < end


def check(topic: Any, run: Run) -> None:
    """Every record is there once, and those of each writer are in order."""
    if run.gave_up:
        errors = {work.last_error for work in run.works if work.last_error}
        raise SystemExit(f"{run.gave_up} appends failed: {errors}")
    rows = topic.read(columns=["partition", "offset", "key", "value"]).read_all()
    rows = rows.append_column(
        "number", pc.cast(pc.cast(pc.binary_slice(rows["value"], 0, 10), "string"), "int64")
    )
    for work in run.works:
        mine = rows.filter(pc.equal(rows["key"], pa.scalar(b"%d" % work.writer, pa.binary())))
        wanted = list(range(len(work.seconds) * RECORDS))
        assert len(set(mine["partition"].to_pylist())) <= 1
        assert mine["number"].to_pylist() == wanted, f"writer {work.writer}: lost, twice or mixed"
    assert rows.num_rows == run.appends * RECORDS, "records of nobody"
    assert sum(topic.end_offsets().values()) == rows.num_rows, "not dense"
    assert topic.verify(), topic.verify()


@contextmanager
def bench(
    store: str,
    seconds: float,
    think: float = 0.0,
    threads: int = 1,
    library: str | None = None,
) -> Iterator[Bench]:
    if store == "s3":
        with far_server() as server:
            url = f"{server.bucket_url}/logs"
            yield Bench(url, server.near, server.far, server, seconds, think, threads, library)
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Bench(folder, None, None, None, seconds, think, threads, library)


def run(seconds: float) -> list[Result]:
    """The short form, for the table of all benchmarks."""
    with bench("local", seconds) as local:
        eight = local.topic(8)
    results = [
        Result(
            "8 processes on one local disk, appends per second",
            f"p99 {eight.quantile(0.99) * 1e3:.0f} ms, {eight.commits} commits",
            "0 lost, 0 twice",
            eight.rate,
            60,
        )
    ]
    if binary() is None:
        print("many_writers: no versitygw, so S3 is not measured", file=sys.stderr)
        return results
    with bench("s3", seconds) as far:
        put, one, eight = far.bare(), far.topic(1), far.topic(8)
    return [
        *results,
        Result(
            "8 processes on S3, rate of appends",
            f"{eight.rate:.1f} per second in {eight.commits} commits",
            f"1 process {one.rate:.1f} per second",
            eight.rate / one.rate,
            3,
        ),
        Result(
            "8 processes on S3, p99 of an append",
            f"{eight.quantile(0.99) * 1e3:.0f} ms",
            f"a bare PUT {put.quantile(0.5) * 1e3:.0f} ms",
            eight.quantile(0.99) / put.quantile(0.5),
            10,
            at_most=True,
        ),
        Result(
            "8 processes on S3, requests per append",
            f"{eight.requests_each:.1f}",
            f"1 process {one.requests_each:.1f}",
            eight.requests_each,
            10,
            at_most=True,
        ),
        Result(
            "8 processes on S3, appends of the slowest",
            f"{min(work.in_time for work in eight.works)}",
            f"the fastest {max(work.in_time for work in eight.works)}; ratio to the others' mean",
            eight.slowest_share,
            0.5,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.many_writers", description=__doc__)
    parser.add_argument("--store", choices=("s3", "local"), default="s3")
    parser.add_argument("--writers", default="1,2,4,8,16,32")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--think", type=float, default=0.0, help="seconds between two appends")
    parser.add_argument("--threads", type=int, default=1, help="writers in each process")
    parser.add_argument("--library", help="the checkout whose pylogtable is measured")
    parser.add_argument("--delta", default="8", help="writers of delta-rs; 0 for none")
    asked = parser.parse_args()
    if asked.library:
        sys.path.insert(0, asked.library)
        import pylogtable  # noqa: F401

        sys.path.remove(asked.library)
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|", flush=True)
    with bench(asked.store, asked.seconds, asked.think, asked.threads, asked.library) as one:
        first: Run | None = None
        for writers in map(int, asked.writers.split(",")):
            measured = one.topic(writers)
            first = first or (measured if writers == 1 else None)
            print("| " + " | ".join(measured.row(first)) + " |", flush=True)
        if asked.store == "s3":
            print("| " + " | ".join(one.bare().row(first)) + " |", flush=True)
        for writers in filter(None, map(int, asked.delta.split(","))):
            print("| " + " | ".join(one.delta(writers).row(first)) + " |", flush=True)


if __name__ == "__main__":
    main()
