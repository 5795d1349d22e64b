"""Latency and speed of one producer and one consumer that follows, beside Kafka.

Each is a process of its own. Kafka is a real broker on the same disk, with confluent-kafka on both
sides. The two take turns, so that other work on the machine hits both alike. It needs the broker's
jars, in `PYLOGTABLE_KAFKA_JARS` or where `make test-kafka` puts them:
`.venv-engines/bin/python -m benchmarks.against_kafka [--rounds N] [--seconds N]`.

A latency is the time from the call of `send` to the return of the `poll` that gave the record. The
speed is that of `send` for every record and one `flush`, and the same until the consumer has them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pylogtable
from benchmarks.result import Result, print_table

PARTITIONS = 6
LINGER_MS = 5
PER_SECOND = 100
VALUE_BYTES = 100
KEYS = [f"key-{number:06d}".encode() for number in range(10_000)]
#: Records before the first that counts: both sides have opened what they need.
WARM_UP = 50
HOME = Path(os.environ.get("PYLOGTABLE_KAFKA_JARS", ".venv-engines/kafka-broker"))

#: Sends a record. `Flush` returns when all are acknowledged.
Send = Callable[[bytes, bytes], object]
Flush = Callable[[], object]


@contextmanager
def our_sender(place: str) -> Iterator[tuple[Send, Flush]]:
    with pylogtable.open(place).topic("t").producer(linger_ms=LINGER_MS) as producer:
        yield lambda key, value: producer.send(key=key, value=value), producer.flush


@contextmanager
def kafka_sender(place: str) -> Iterator[tuple[Send, Flush]]:
    import confluent_kafka

    servers, topic = place.split("/")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": LINGER_MS,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def send(key: bytes, value: bytes) -> None:
        producer.produce(topic, value, key)
        producer.poll(0)

    yield send, producer.flush


def our_values(place: str) -> Iterator[list[bytes]]:
    """The values of the records that come, as each poll gives them; nothing at first."""
    with pylogtable.open(place).topic("t").consumer("g", follow=True) as consumer:
        yield []
        for batch in consumer:
            yield batch["value"].to_pylist()


def kafka_values(place: str) -> Iterator[list[bytes]]:
    import confluent_kafka

    servers, topic = place.split("/")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    yield []
    while True:
        first = consumer.poll(10.0)
        if first is not None:
            rest = consumer.consume(10_000, 0)
            yield [message.value() for message in (first, *rest)]


SENDERS = {"ours": our_sender, "kafka": kafka_sender}
VALUES = {"ours": our_values, "kafka": kafka_values}


def send(who: str, place: str, count: int, per_second: int) -> None:
    """Send records, each with the time of its sending, and print how long it took."""
    with SENDERS[who](place) as (send_one, flush):
        # The first record finds the broker, or loads libraries. Servers are open for long.
        send_one(KEYS[0], b"%d" % time.monotonic_ns())
        flush()
        began = time.monotonic()
        for number in range(count - 1):
            if per_second:
                time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            value = b"%d" % time.monotonic_ns()
            send_one(KEYS[number % len(KEYS)], value.ljust(VALUE_BYTES))
        flush()
        print(json.dumps({"began": began, "ended": time.monotonic()}), flush=True)


def follow(who: str, place: str, count: int) -> None:
    """Take records, and print how long each was on its way, in milliseconds."""
    values = VALUES[who](place)
    next(values)
    print("ready", flush=True)
    took: list[float] = []
    came: list[tuple[int, list[bytes]]] = []
    left = count
    while left:
        some = next(values)
        came.append((time.monotonic_ns(), some))
        left -= len(some)
    ended = time.monotonic()
    for at, some in came:
        took.extend((at - int(value)) / 1e6 for value in some)
    print(json.dumps({"ended": ended, "took": took}), flush=True)


class Passage:
    """What became of the records of one run."""

    def __init__(self, who: str, place: str, count: int, per_second: int) -> None:
        follower = _start("follow", who, place, count)
        assert follower.stdout.readline() == b"ready\n"
        sender = _start("send", who, place, count, per_second)
        sent, _ = sender.communicate(timeout=600)
        came, _ = follower.communicate(timeout=600)
        self._sent, came = json.loads(sent), json.loads(came)
        self._ended: float = came["ended"]
        self._took = sorted(came["took"][WARM_UP:])
        self.count = count

    def quantile(self, share: float) -> float:
        return self._took[min(len(self._took) - 1, int(share * len(self._took)))]

    @property
    def sent_per_second(self) -> float:
        return self.count / (self._sent["ended"] - self._sent["began"])

    @property
    def passed_per_second(self) -> float:
        return self.count / (self._ended - self._sent["began"])


def _start(*words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.against_kafka", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


class Peers:
    """Makes a new topic for each run, here and there."""

    def __init__(self, folder: Path, servers: str | None) -> None:
        self._folder = folder
        self._servers = servers
        self._serial = 0
        self.names = ["ours"] if servers is None else ["ours", "kafka"]

    def new_topic(self, who: str) -> str:
        self._serial += 1
        if who == "ours":
            place = self._folder / f"store-{self._serial}"
            pylogtable.open(place).create_topic("t", PARTITIONS)
            return str(place)
        from confluent_kafka.admin import AdminClient, NewTopic

        admin, name = AdminClient({"bootstrap.servers": self._servers}), f"t-{self._serial}"
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return f"{self._servers}/{name}"

    def rounds(self, rounds: int, count: int, per_second: int) -> dict[str, list[Passage]]:
        """Every peer once per round. Each round begins with another one."""
        passed: dict[str, list[Passage]] = {who: [] for who in self.names}
        for number in range(rounds):
            first = number % len(self.names)
            for who in self.names[first:] + self.names[:first]:
                passed[who].append(Passage(who, self.new_topic(who), count, per_second))
        return passed


def run(peers: Peers, rounds: int, seconds: int, records: int) -> list[Result]:
    results = []
    slow = peers.rounds(rounds, WARM_UP + seconds * PER_SECOND, PER_SECOND)
    for share in (0.5, 0.99):
        ms = {who: [passage.quantile(share) for passage in some] for who, some in slow.items()}
        results.append(_result(f"p{share * 100:.0f} of {PER_SECOND} records/s (ms)", ms, 2.0))
    fast = peers.rounds(rounds, records, 0)
    for name, of in (
        ("sent", lambda one: one.sent_per_second),
        ("received", lambda one: one.passed_per_second),
    ):
        speed = {who: [of(passage) / 1000 for passage in some] for who, some in fast.items()}
        title = f"{records:,} records of {VALUE_BYTES} bytes, {name} (thousands/s)"
        results.append(_result(title, speed, 1.0, at_most=False))
    return results


def _result(
    name: str, figures: dict[str, list[float]], wanted: float, *, at_most: bool = True
) -> Result:
    ours, kafka = figures["ours"], figures.get("kafka", [float("nan")])
    ratio = statistics.median(ours) / statistics.median(kafka)
    return Result(name, _text(ours), f"Kafka {_text(kafka)}", ratio, wanted, at_most=at_most)


def _text(figures: list[float]) -> str:
    each = ", ".join(f"{figure:.1f}" for figure in figures)
    return f"{statistics.median(figures):.1f} ({each})"


@contextmanager
def _peers(*, alone: bool) -> Iterator[Peers]:
    with tempfile.TemporaryDirectory() as folder:
        if alone:
            yield Peers(Path(folder), None)
            return
        from tests.kafka import broker

        with broker.running(HOME, Path(folder, "kafka")) as servers:
            yield Peers(Path(folder), servers)


def main(words: list[str]) -> None:
    if words[:1] == ["send"]:
        send(words[1], words[2], int(words[3]), int(words[4]))
        return
    if words[:1] == ["follow"]:
        follow(words[1], words[2], int(words[3]))
        return
    parser = argparse.ArgumentParser(prog="benchmarks.against_kafka", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=10, help="of the runs for latency")
    parser.add_argument("--records", type=int, default=300_000, help="of the runs for speed")
    parser.add_argument("--alone", action="store_true", help="without Kafka")
    asked: Any = parser.parse_args(words)
    with _peers(alone=asked.alone) as peers:
        print_table(run(peers, asked.rounds, asked.seconds, asked.records))


if __name__ == "__main__":
    main(sys.argv[1:])
