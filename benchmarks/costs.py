"""What `pylogtable run` asks of an object store in a day, by a clock that is moved by hand.

`python -m benchmarks.costs`: one topic of 6 partitions, published as a Delta table or as both, at
1, 10 and 100 appends of one record a second. Requests are counted below the library, as S3 would
charge them, for some minutes, and scaled to a day. What a vacuum lists after a week comes on top:
four times a day, 1,000 objects with each request. Deletions cost nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from pylogtable.run import Loop, RunOptions
from pylogtable.run.lanes import OneThread
from pylogtable.store import Store
from tests.builders import Clock, clock_of_servers, runtime
from tests.cost.round_trips import WiredStore

PARTITIONS = 6
WARM_S, MEASURED_S = 60, 240
DAY_S = 86_400
#: S3 Standard in us-east-1, dollars for a request.
WRITE_PRICE, READ_PRICE = 0.005 / 1000, 0.0004 / 1000
WRITES = ("create", "write", "list")
READS = ("read", "get", "look")
VACUUMS_A_DAY, KEPT_DAYS, LISTED = 4, 7, 1000


@dataclass(frozen=True)
class Cost:
    """The requests of a day: those that cost as much as a PUT, and those that cost as a GET."""

    writes: float
    reads: float

    @property
    def dollars(self) -> float:
        return self.writes * WRITE_PRICE + self.reads * READ_PRICE


def measure(formats: str, lag_ms: int, appends_per_second: int) -> tuple[Cost, Cost]:
    """What the writer costs, and what `run` costs beside it."""
    clock = clock_of_servers()
    mine, its = (WiredStore(clock, "costs-of-run") for _ in range(2))
    mine._space.objects.clear()
    mine._space.clock = clock
    config = {"publish.formats": formats, "publish.max.lag.ms": lag_ms, "retention.ms": -1}
    writer = Store(mine, runtime(clock)).create_topic(
        "t", PARTITIONS, {"n": pa.int64()}, "n", config
    )
    loop = Loop(Store(its, runtime(clock)), RunOptions(), lanes=OneThread())
    number = 0

    def seconds(count: int) -> None:
        nonlocal number
        due_ms = clock()
        for _ in range(count * appends_per_second):
            writer.append(pa.table({"n": [number]}))
            number += 1
            clock.tick(1000 // appends_per_second)
            while clock() >= due_ms:
                due_ms = loop.tick()

    seconds(WARM_S)
    before = objects(mine, clock)
    for store in (mine, its):
        store._line.verbs.clear()
    seconds(MEASURED_S)
    made = (objects(mine, clock) - before) * DAY_S / MEASURED_S
    lists = VACUUMS_A_DAY * KEPT_DAYS * made / LISTED
    run = per_day(its._line.verbs)
    return per_day(mine._line.verbs), Cost(run.writes + lists, run.reads)


def objects(store: WiredStore, clock: Clock) -> int:
    return len(store._space.objects)


def per_day(verbs: Counter[str]) -> Cost:
    def count(names: tuple[str, ...]) -> float:
        return sum(verbs[name] for name in names) * DAY_S / MEASURED_S

    return Cost(count(WRITES), count(READS))


def main() -> None:
    print("| appends a second | tables | lag | appends, $ a day | run: PUT, LIST | GET | $ a day |")
    print("|---|---|---|---|---|---|---|")
    for formats, lag_ms in (("delta", 2_000), ("delta,iceberg", 2_000), ("delta", 60_000)):
        for rate in map(int, sys.argv[1:] or ["1", "10", "100"]):
            writer, run = measure(formats, lag_ms, rate)
            print(
                f"| {rate} | {formats} | {lag_ms // 1000} s | {writer.dollars:.2f} "
                f"| {run.writes:,.0f} | {run.reads:,.0f} | {run.dollars:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
