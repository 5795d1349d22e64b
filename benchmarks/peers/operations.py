"""The operations. Every peer does each of them, in turn."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.figures import (
    APPEND,
    COLUMN,
    COUNT,
    LATENCY,
    RANGE,
    RAW_SCAN,
    SCAN,
    SMALL_APPEND,
    TRIGGER,
)
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.orders import PARTITIONS, fingerprint, orders
from benchmarks.peers.peer import Peer
from benchmarks.peers.pipe import WARM_UP, Passage, Pipe
from benchmarks.peers.rounds import Seconds, medians

SMALL = 100


@dataclass(frozen=True)
class Size:
    rows: int
    rounds: int
    small_appends: int
    #: Each peer's stream is started so often, and gets so many appends each time.
    streams: int
    triggers: int


class Operations:
    """All operations over the same rows, in the order of the table."""

    def __init__(
        self,
        spark: SparkSession,
        peers: Sequence[Peer],
        source: DataFrame,
        size: Size,
        began_us: int,
    ) -> None:
        self._spark = spark
        self._peers = peers
        self._source = source
        self._size = size
        self._began_us = began_us
        self._serial = itertools.count()
        #: The newest full table of each peer.
        self._table: dict[str, str] = {}

    def measure(self, checkpoints: str) -> Iterator[tuple[str, Seconds]]:
        """Each operation with its seconds, as soon as they are known."""
        yield APPEND, self._each(self._append)
        self._check_rows()
        yield SCAN, self._each(lambda peer: _drain(self._read(peer)))
        yield RAW_SCAN, self._scan_of_values()
        yield COLUMN, self._each(lambda peer: self._read(peer).selectExpr("sum(amount)").collect())
        yield COUNT, self._each(lambda peer: self._read(peer).count())
        yield RANGE, self._ranges()
        yield SMALL_APPEND, self._small_appends()
        passages = self._passages(checkpoints)
        for name, field in ((TRIGGER, "trigger"), (LATENCY, "to_commit")):
            yield (
                name,
                {
                    peer: statistics.median(getattr(passage, field) for passage in passed)
                    for peer, passed in passages.items()
                },
            )

    def _each(self, operation: Callable[[Peer], object], rounds: int | None = None) -> Seconds:
        steps = {peer.name: functools.partial(operation, peer) for peer in self._peers}
        return medians(steps, self._size.rounds if rounds is None else rounds)

    def _append(self, peer: Peer) -> None:
        """Into a new table. The table before it goes, so that the disk does not fill up."""
        table, old = self._new_table(peer), self._table.get(peer.name)
        peer.append(table, self._source)
        self._table[peer.name] = table
        if old is not None:
            peer.drop(old)

    def _read(self, peer: Peer) -> DataFrame:
        return peer.read(self._table[peer.name])

    def _check_rows(self) -> None:
        """Raise if a peer does not give back what it was given."""
        expected = fingerprint(self._source)
        for peer in self._peers:
            found = fingerprint(self._read(peer))
            if found != expected:
                raise AssertionError(f"{peer.name} has {found}, and not {expected}")

    def _scan_of_values(self) -> Seconds:
        kafka = next((peer for peer in self._peers if isinstance(peer, Kafka)), None)
        if kafka is None:
            return {}
        table = self._table[kafka.name]
        return medians({kafka.name: lambda: _drain(kafka.read_values(table))}, self._size.rounds)

    def _ranges(self) -> Seconds:
        """The 1 % in the middle. Offsets cut each partition, so their count differs a little."""
        bounds = {
            peer.name: peer.bounds(self._table[peer.name], self._size.rows) for peer in self._peers
        }

        def part(peer: Peer) -> DataFrame:
            return peer.part(self._table[peer.name], bounds[peer.name])

        for peer in self._peers:
            found, wanted = part(peer).count(), self._size.rows // 100
            if abs(found - wanted) > PARTITIONS:
                raise AssertionError(f"1 % of {peer.name} are {found} rows, and not about {wanted}")
        return self._each(lambda peer: _drain(part(peer)))

    def _small_appends(self) -> Seconds:
        tables = {peer.name: self._new_table(peer) for peer in self._peers}
        return self._each(
            lambda peer: peer.append(tables[peer.name], self._few()), self._size.small_appends
        )

    def _passages(self, checkpoints: str) -> dict[str, list[Passage]]:
        """One stream at a time, since each of them asks all the time for new records."""
        pipes = {
            peer.name: Pipe(
                peer,
                self._new_table(peer),
                self._new_table(peer),
                f"{checkpoints}/{peer.name}",
            )
            for peer in self._peers
        }
        passages: dict[str, list[Passage]] = {name: [] for name in pipes}
        for _ in range(self._size.streams):
            for name, pipe in pipes.items():
                passages[name] += pipe.run(self._few, self._size.triggers)
        for name, pipe in pipes.items():
            sent = self._size.streams * (WARM_UP + self._size.triggers) * SMALL
            if (came := pipe.count()) != sent:
                raise AssertionError(f"of {sent} records {came} came out of the stream of {name}")
        return passages

    def _new_table(self, peer: Peer) -> str:
        table = f"orders_{next(self._serial)}"
        peer.create(table)
        return table

    def _few(self) -> DataFrame:
        return orders(self._spark, 0, SMALL, self._began_us, tasks=1)


def _drain(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
