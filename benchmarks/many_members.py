"""Many members of one consumer group commit their positions, each once a second.

`python -m benchmarks.many_members --members 1,4,8,16,32 --seconds 20`

The group is on an S3 server that is 30 ms away (`benchmarks/far_server.py`). There are as many
partitions as members; the members are threads of 4 processes. First all of them join and share the
partitions. Then each polls one record, commits and waits, for some seconds. The requests of the
same time without commits, which are those of polls and heartbeats, are measured first and taken
off. Beside them the parent puts an object ten times a second: a bare PUT. At the end every position
has to be that of the last commit. `--static` is without leases. On a busy machine, `--slower 5`
makes round trips and the time between commits 5 times as long, so that the processor matters less.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.far_server import LATENCY_S, FarServer, far_server
from benchmarks.many_writers import bare_put, start_fork_server

PROCESSES = 4
RECORDS = 400


@dataclass
class Work:
    """What one member did."""

    seconds: list[float] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    refused: int = 0


HEADER = (
    "members",
    "all joined",
    "commits/s",
    "p50",
    "p99",
    "longest",
    "a bare PUT, p50 and p99",
    "requests each",
    "states",
)


def measure(
    server: FarServer, members: int, seconds: float, every: float, *, static: bool
) -> tuple[str, ...]:
    import pylogtable

    url = f"{server.bucket_url}/logs-{members}-{static}"
    topic = pylogtable.open(url, storage_options=server.near).create_topic("t", members)
    partitions = [n % members for n in range(members * RECORDS)]
    topic.append(
        pa.table({"partition": pa.array(partitions, pa.int32()), "value": [b"v"] * len(partitions)})
    )
    context = multiprocessing.get_context("forkserver")
    processes = min(PROCESSES, members)
    ready, results = context.Barrier(processes + 1), context.SimpleQueue()
    began = time.monotonic()
    for first in range(processes):
        mine = list(range(first, members, processes))
        order = (mine, members, url, server.far, seconds, every, static, ready, results)
        context.Process(target=_work, args=order, daemon=True).start()
    ready.wait()
    joined = time.monotonic() - began
    before = server.requests()
    ready.wait()
    ready.wait()
    between = server.requests()
    puts, put = [], bare_put(f"{url}/probe", server.far, 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        asked = time.monotonic()
        put(len(puts))
        puts.append(time.monotonic() - asked)
        time.sleep(0.1)
    works = [work for _ in range(processes) for work in results.get()]
    after = server.requests()
    times = [one for work in works for one in work.seconds]
    costs = {kind: after[kind] - 2 * between[kind] + before[kind] for kind in after}
    costs["PUT"] -= len(puts)
    positions = topic.group("g").positions()
    for work in works:
        for partition, offset in work.positions.items():
            assert positions[partition] == offset, (partition, positions[partition], offset)
    kinds = " ".join(f"{kind} {n / len(times):.1f}" for kind, n in costs.items() if n)
    refused = sum(work.refused for work in works)
    return (
        f"{members}{', static' if static else ''}{f', {refused} refused' if refused else ''}",
        f"{joined:.1f} s",
        f"{len(times) / seconds:.1f}",
        *(f"{_quantile(times, share) * 1e3:.0f} ms" for share in (0.5, 0.99, 1.0)),
        f"{_quantile(puts, 0.5) * 1e3:.0f} ms, {_quantile(puts, 0.99) * 1e3:.0f} ms",
        f"{sum(costs.values()) / len(times):.1f} ({kinds})",
        str(topic.group("g")._group_log.newest().number),  # type: ignore[union-attr]
    )


def _quantile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, math.floor(len(times) * share))]


def _work(
    members: list[int],
    count: int,
    url: str,
    options: dict[str, Any],
    seconds: float,
    every: float,
    static: bool,
    ready: Any,
    results: Any,
) -> None:
    import pylogtable

    consumers = [
        pylogtable.open(url, storage_options=options)
        .topic("t")
        .consumer("g", (number, count) if static else f"m{number}", lease_ms=30_000)
        for number in members
    ]
    works = [Work() for _ in members]

    def join(consumer: Any) -> None:
        while len(consumer.assignment()) != 1:
            consumer.poll(max_records=1)
        consumer.poll(max_records=1)

    def loop(consumer: Any, work: Work, end: float, *, commits: bool) -> None:
        chance = random.Random(str(consumer))
        time.sleep(every * chance.random())
        while True:
            began = time.monotonic()
            if began >= end:
                return
            consumer.poll(max_records=1)
            asked = time.monotonic()
            if commits:
                try:
                    work.positions = consumer.commit()
                    work.seconds.append(time.monotonic() - asked)
                except pylogtable.CommitConflictError:
                    work.refused += 1
            time.sleep(max(0.0, began + every * chance.uniform(0.9, 1.1) - time.monotonic()))

    _in_threads(join, [(consumer,) for consumer in consumers])
    ready.wait()
    pairs = list(zip(consumers, works, strict=True))
    for commits in (False, True):
        ready.wait()
        end = time.monotonic() + seconds
        _in_threads(lambda c, w, e=end, k=commits: loop(c, w, e, commits=k), pairs)
    results.put(works)


def _in_threads(action: Any, arguments: list[Any]) -> None:
    threads = [threading.Thread(target=action, args=each) for each in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.many_members", description=__doc__)
    parser.add_argument("--members", default="1,4,8,16,32")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--static", action="store_true", help="members without a lease")
    parser.add_argument("--library", help="the checkout whose pylogtable is measured")
    parser.add_argument("--slower", type=float, default=1.0, help="stretch the time")
    asked = parser.parse_args()
    if asked.library:
        sys.path.insert(0, asked.library)
        import pylogtable  # noqa: F401

        sys.path.remove(asked.library)
    start_fork_server(asked.library)
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|", flush=True)
    with far_server(LATENCY_S * asked.slower) as server:
        for members in map(int, asked.members.split(",")):
            row = measure(server, members, asked.seconds, asked.slower, static=asked.static)
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
