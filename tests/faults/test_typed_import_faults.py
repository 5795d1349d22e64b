"""A typed import that crashes at any step, or loses replies, or is refused.

Records and dead letters are in two topics, and a batch of both is two commits. Whatever happens
between them, another run gets there: every record of Kafka is in one of them, and in one only.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import fastavro
import pytest

from pylogtable.errors import LogTableError
from pylogtable.kafka.import_report import ImportOptions, ImportReport
from pylogtable.kafka.import_run import Import
from pylogtable.kafka.source import KafkaSource, Received
from pylogtable.kafka.typed.options import ValueOptions
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import rows
from tests.depth import sample
from tests.faults.support import FakeTime, Plan
from tests.library.kafka.registry import RegistryServer, registry_server
from tests.stores import Fault, FaultyStore, SimulatedCrash

FAULTS = [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOSE_REPLY, Fault.REFUSE, Fault.LATE]
NAME = "orders"
LETTERS = "orders-dead-letters"
#: Messages of one reply, so of one commit.
AT_ONCE = 4


@dataclass(frozen=True)
class Sent:
    """A message of Kafka."""

    at: tuple[int, int]
    body: bytes | None
    name: bytes | None = b"k"

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self.at[1]

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.body

    def headers(self) -> None:
        return None

    def error(self) -> None:
        return None


class ListedSource(KafkaSource):
    """Kafka, as a list of what it sends: in this order, a few messages at a time."""

    def __init__(self, sent: list[Sent]) -> None:
        super().__init__("127.0.0.1:1", NAME, {})
        self._sent = sent
        self._to_send: list[Sent] = []

    def describe(self) -> tuple[str, int]:
        return "cluster", 2

    def topic_id(self) -> str | None:
        return "id"

    def bounds(self, partitions: Any) -> dict[int, tuple[int, int]]:
        return {n: (0, max(m.at[1] for m in self._sent if m.at[0] == n) + 1) for n in (0, 1)}

    def written_ends(self, partitions: Any) -> dict[int, int]:
        return {number: high for number, (_, high) in self.bounds(partitions).items()}

    def check_readable(self, positions: Mapping[int, int]) -> None:
        pass

    def begin(self, positions: Mapping[int, int]) -> None:
        self._to_send = [m for m in self._sent if m.at[1] >= positions[m.at[0]]]

    def pause_reading(self) -> None:
        self._to_send = []

    def receive(self, most: int, seconds: float) -> Received:
        now, self._to_send = self._to_send[:AT_ONCE], self._to_send[AT_ONCE:]
        ends = {n: high for n, (_, high) in self.bounds(()).items()}
        return Received(list(now), {} if self._to_send else ends)


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


@pytest.fixture(scope="module")
def sent(registry: RegistryServer) -> list[Sent]:
    """Records, tombstones, damaged values, a new column, a type that does not fit, and dead letters
    at the end of both partitions."""

    def value(schema: Any, **fields: Any) -> bytes:
        record = {"type": "record", "name": "R", "fields": []}
        record["fields"] = [{"name": name, "type": kind} for name, kind in schema.items()]
        schema_id = registry.register(f"{NAME}-value", record)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(record), fields)
        return struct.pack(">bI", 0, schema_id) + out.getvalue()

    old, new, odd = {"a": "int"}, {"a": "long", "b": "string"}, {"a": "string"}
    bodies: list[list[bytes | None]] = [
        [
            *(value(old, a=1), b"damaged", value(old, a=2), None),
            *(value(new, a=2**40, b="x"), value(odd, a="odd"), value(old, a=3), b"x", b"y"),
        ],
        [b"first", value(old, a=10), b"z", value(new, a=11, b="y"), None, b"last", b"very last"],
    ]
    messages = [
        Sent((number, offset), body)
        for number, part in enumerate(bodies)
        for offset, body in enumerate(part)
    ]
    return sorted(messages, key=lambda message: message.at[1])


def imported(inner: ObjectStore, sent: list[Sent], url: str, plan: Plan) -> ImportReport:
    """One import, whose store meets the plan. Each reply of Kafka is a commit."""
    store = Store(FaultyStore(inner, plan, late_after=6), FakeTime(60).runtime())
    values = ValueOptions("avro", schema_registry=url)
    options = ImportOptions(
        copy_settings=False, config={"retention.ms": -1}, batch_bytes=1, values=values
    )
    with ListedSource(sent) as source:
        return Import(store, source, NAME, NAME, options, store._runtime).run()


@dataclass(frozen=True)
class Found:
    """All that is in the two topics."""

    records: list[Any]
    letters: list[Any]


def found_in(inner: ObjectStore) -> Found:
    store = Store(inner, FakeTime(120).runtime())
    names = store.topics()
    for name in names:
        assert store.topic(name).verify(data=True)
    columns = ("partition", "offset", "key", "a", "b", "value_schema_id")
    places = ("kafka_partition", "kafka_offset", "value", "part", "schema_id", "reason")
    return Found(
        rows(store.topic(NAME).read(), *columns) if NAME in names else [],
        sorted(rows(store.topic(LETTERS).read(), *places)) if LETTERS in names else [],
    )


def test_import_that_fails_at_any_step(registry: RegistryServer, sent: list[Sent]) -> None:
    whole = MemoryStore()
    plan = Plan(None, None)
    report = imported(whole, sent, registry.url, plan)
    expected = found_in(whole)
    assert (report.records, report.dead_letters) == (len(expected.records), len(expected.letters))
    assert (len(expected.records), len(expected.letters)) == (8, 8)
    assert report.commits >= 3
    steps = len(plan.seen)
    met = 0
    for fault in FAULTS:
        for at in sample(range(steps), 23, first=3 * FAULTS.index(fault)):
            inner = MemoryStore()
            plan = Plan(at, fault)
            with suppress(SimulatedCrash, LogTableError):
                imported(inner, sent, registry.url, plan)
            met += plan.hit
            for _ in range(3):  # what was late may come before the next one, and refuse it
                with suppress(LogTableError):
                    imported(inner, sent, registry.url, Plan(None, None))
            again = imported(inner, sent, registry.url, Plan(None, None))
            assert (again.records, again.dead_letters) == (0, 0), (fault, at)
            assert found_in(inner) == expected, (fault, at)
    assert met > steps // 10


def test_value_that_decodes_after_a_crash_stays_a_dead_letter(
    registry: RegistryServer, sent: list[Sent]
) -> None:
    """The import has died between its two commits. The dead letter is there already, so the record
    must not be in the copy as well."""
    good = next(message.body for message in sent if message.at == (0, 0))
    bodies = {(0, 0): good, (0, 1): b"damaged", (0, 2): good, (1, 0): good}
    messages = [Sent(at, body) for at, body in bodies.items()]
    inner = MemoryStore()

    def is_commit(verb: str, key: str) -> bool:
        return verb == "create" and key == f"{NAME}/_manifest/{1:020d}.json"

    with suppress(SimulatedCrash):
        imported(inner, messages, registry.url, Plan(0, Fault.CRASH_BEFORE, is_commit))
    assert places(inner) == ([], [(0, 1)])
    repaired = [replace(message, body=good) for message in messages]
    report = imported(inner, repaired, registry.url, Plan(None, None))
    assert (report.records, report.dead_letters) == (3, 0)
    assert places(inner) == ([(0, 0), (0, 2), (1, 0)], [(0, 1)])


def places(inner: ObjectStore) -> tuple[list[Any], list[Any]]:
    """Where the records of both topics are in Kafka."""
    store = Store(inner, FakeTime(120).runtime())
    return (
        rows(store.topic(NAME).read(), "partition", "offset"),
        rows(store.topic(LETTERS).read(), "kafka_partition", "kafka_offset"),
    )
