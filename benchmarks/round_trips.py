"""Requests, round trips and time of the usual operations on an S3 server that is 30 ms away.

It needs a server: `PYLOGTABLE_S3_SERVER=.servers/versitygw python -m benchmarks.round_trips`, after
`make test-s3`, which builds it. There is no yardstick and no bar: compare with an earlier run.

Client and proxy share a processor. If that needs longer than 30 ms to send what belongs together,
more round trips are seen than there are. An argument gives another latency, in milliseconds: with
150, the number of round trips is right on a busy machine too. `tests/cost` has it without a server.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import pylogtable
from tests.clouds.servers import BUCKET, Versitygw, options, running
from tests.proxy import Proxy, proxy_before

LATENCY_S = float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.03
PARTITIONS = 6
COMMITS = 40


def records(count: int) -> pa.Table:
    numbers = range(count)
    return pa.table({"key": [b"%d" % n for n in numbers], "value": [b"v" * 100] * count})


def show(name: str, proxy: Proxy, action: Callable[[], object]) -> None:
    proxy.traffic.reset()
    began = time.perf_counter()
    action()
    seconds = time.perf_counter() - began
    traffic = proxy.traffic
    by_method = ", ".join(f"{count} {method}" for method, count in sorted(traffic.methods.items()))
    print(
        f"| {name} | {traffic.requests} ({by_method}) | {traffic.round_trips} "
        f"| {seconds * 1e3:.0f} ms |"
    )


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(os.environ[Versitygw.variable], Path(folder)) as server,
        proxy_before(server.port, latency_s=LATENCY_S) as proxy,
    ):
        url, far = f"s3://{BUCKET}/logs", options(proxy.url)
        near = pylogtable.open(url, storage_options=options(server.url))
        for name in ("warm", "cold"):
            near.create_topic(name, PARTITIONS)
        topic = near.topic("cold")
        for _ in range(COMMITS):
            topic.append(records(3))

        print("| operation | requests | round trips | time |\n|---|---|---|---|")
        warm = pylogtable.open(url, storage_options=far).topic("warm")
        warm.append(records(100))
        show("bare PUT", proxy, lambda: warm._store.write("bare", b"x"))
        show(f"append into {PARTITIONS} partitions, warm", proxy, lambda: warm.append(records(100)))
        show("append of 1 record, warm", proxy, lambda: warm.append(records(1)))

        def cold() -> pylogtable.Topic:
            return pylogtable.open(url, storage_options=far).topic("cold")

        show(f"cold read of {COMMITS} commits", proxy, lambda: cold().read().read_all())
        reader = cold()
        ends = reader.end_offsets()
        full = max(ends, key=lambda number: ends[number])
        show("offsets for a time", proxy, lambda: reader.offsets_for_time(0))
        show("lookup by offset", proxy, lambda: reader.read(full, start=1, end=2).read_all())
        group = cold().group("g")
        show("group commit, cold", proxy, lambda: group.commit({0: 1}))
        show("group commit, warm", proxy, lambda: group.commit({0: 2}))
        opened = f"cold open + 1 record, {COMMITS} commits"
        show(opened, proxy, lambda: cold().append(records(1)))
        consumer = cold().consumer("c")
        while consumer.poll().num_rows:
            pass
        show("poll of a consumer, idle", proxy, consumer.poll)
        for _ in range(2):
            topic.append(records(3))
            consumer.poll()
        topic.append(records(3))
        show("poll of a consumer, one new commit", proxy, consumer.poll)
        there = cold()
        show(f"merge of {COMMITS + 4} commits", proxy, there.merge)


if __name__ == "__main__":
    main()
