"""Small sound topics that the mutation tests damage: every kind of object, in many shapes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa

from pylogtable.engine import plan_append
from pylogtable.format.paths import object_of
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.runtime import Runtime
from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.topic import Topic
from tests.builders import SMALL, T0, Clock, StoreInFiles, contents, kafka, make_holes, times
from tests.conformance.corpus import TOPICS

NAME = "t"
HOUR_MS = 3_600_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Limits of the topics that need others than users have.
LIMITS = {
    **dict.fromkeys(("indexed", "vacuumed", "inline", "inline-vacuumed"), SMALL),
    "row-groups": Limits(row_group_rows=4),
}
# Topics of the version before checksums, parents and field ids.
OLD = ("kafka-shaped", "table-shaped", "compacted", "holes", "shifted", "log-start", "recreated")


@dataclass
class Place:
    """A store in memory with a clock and ids of its own. Its topics are in files, or say so."""

    objects: ObjectStore = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.store = StoreInFiles(
            self.objects,
            Runtime(
                clock=self.clock,
                new_id=lambda: f"{next(self.ids):08x}",
                pause=lambda seconds: None,
                chance=lambda: 0.5,
                patience_seconds=0,
            ),
        )

    def append(self, topic: Topic, table: pa.Table, **options: Any) -> None:
        self.clock.tick(1000)
        topic.append(table, **options)


@dataclass(frozen=True)
class Base:
    """The objects of a sound topic, the time at which it is used, and rows that fit it."""

    name: str
    objects: dict[str, bytes]
    now_ms: int
    more: pa.Table


def records(numbers: Iterable[int], keys: int = 5) -> pa.Table:
    """Kafka's shape: a few keys, some tombstones, headers, and times that go back and forth."""
    of = list(numbers)
    return kafka(
        [f"k{n % keys}" for n in of],
        [None if n % 4 == 3 else f"value {n}" for n in of],
        headers=pa.array([[("h", b"%d" % n)] if n % 2 else None for n in of], HEADERS),
        timestamp=times(*(n * 10 - (n % 3) * 25 for n in of)),
    )


def rows(numbers: Iterable[int]) -> pa.Table:
    of = list(numbers)
    return pa.table(
        {
            "id": pa.array([n % 4 for n in of], pa.int32()),
            "name": pa.array([None if n % 5 == 4 else f"name {n}" for n in of], pa.string()),
            "price": pa.array([(n % 5 == 4 and None) or n for n in of], pa.decimal128(9, 2)),
            "timestamp": times(*(n * 10 for n in of)),
        }
    )


def _kafka_shaped(place: Place) -> None:
    topic = place.store.create_topic(NAME, partitions=2)
    for first in (0, 5, 9):
        place.append(topic, records(range(first, first + 4)))


def _table_shaped(place: Place) -> None:
    """Compacted twice, so that there are holes and delete horizons; then a column is added."""
    schema = {"id": pa.int32(), "name": pa.string(), "price": pa.decimal128(9, 2)}
    topic = place.store.create_topic(
        NAME, schema=schema, key="id", config={"cleanup.policy": "compact"}
    )
    for first in (0, 6, 10):
        place.append(topic, rows(range(first, first + 5)))
    topic.compact(force=True)
    place.append(topic, rows(range(14, 20)))
    place.clock.tick(1000)
    topic.compact(force=True)
    place.clock.tick(1000)
    topic.alter(add_columns={"note": pa.string()}, widen_columns={"price": pa.decimal128(12, 3)})
    place.append(topic, rows(range(20, 23)))


def _renamed(place: Place) -> None:
    """Columns have other names than in the files, and one is dropped."""
    schema = {"id": pa.int32(), "name": pa.string(), "price": pa.decimal128(9, 2)}
    topic = place.store.create_topic(NAME, schema=schema, key="id")
    place.append(topic, rows(range(18, 23)))
    place.clock.tick(1000)
    topic.alter(rename_columns={"name": "title"})
    place.append(topic, _titled(range(23, 26)))
    place.clock.tick(1000)
    topic.alter(drop_columns=["price"])
    place.clock.tick(1000)
    topic.alter(add_columns={"price": pa.string()})
    place.append(topic, _titled(range(26, 28)).drop_columns(["price"]))


def _titled(numbers: Iterable[int]) -> pa.Table:
    return rows(numbers).rename_columns(["id", "title", "price", "timestamp"])


def _shifted(place: Place) -> None:
    topic = place.store.create_topic(NAME, partitions=1)
    slow = place.store.topic(NAME)
    staged = plan_append(slow).stage(records(range(3)))
    place.append(topic, records(range(3, 7)))
    place.clock.tick(1000)
    plan_append(slow, refresh=False).commit([staged], keep_files=True)
    place.append(topic, records(range(7, 9)))


def _log_start(place: Place) -> None:
    topic = place.store.create_topic(NAME, partitions=2)
    for first in (0, 6, 12):
        place.append(topic, records(range(first, first + 6)))
    place.clock.tick(1000)
    ends = topic.end_offsets()
    topic.delete_records({number: end // 2 for number, end in ends.items()})


def _indexed(place: Place) -> None:
    """Roots at every fourth commit, several leaves, holes, a log start, txns."""
    topic = place.store.create_topic(NAME, partitions=2)
    for number in range(11):
        place.append(topic, records(range(number * 3, number * 3 + 3)), txn=("etl", number))
    place.clock.tick(1000)
    topic.delete_records({0: 2})
    place.append(topic, records(range(40, 43)))
    place.append(topic, records(range(43, 46)))


def _long(place: Place) -> None:
    """More than 64 commits, so that the usual root is written; then a few more."""
    topic = place.store.create_topic(NAME, partitions=2)
    for number in range(66):
        some = range(number, number + 2) if number % 16 == 0 or number > 63 else range(0)
        place.append(topic, records(some), txn=("etl", number))


def _row_groups(place: Place) -> None:
    topic = place.store.create_topic(NAME, partitions=1)
    place.append(topic, records(range(11)))
    place.append(topic, records(range(11, 16)))
    place.clock.tick(1000)
    make_holes(topic, {0, 2, 3, 5, 7, 8, 9, 12, 13, 15}, row_group_rows=3)


def _grouped(place: Place) -> None:
    _kafka_shaped(place)
    topic = place.store.topic(NAME)
    plain = topic.group("plain")
    for offset in (1, 2, 3):
        plain.commit({0: offset}, metadata="batch")
        place.clock.tick(10)
    for member in ("first", "second"):
        consumer = topic.consumer("shared", member)
        consumer.poll()
        consumer.commit()
        place.clock.tick(10)
    topic.group("gone").commit({1: 1})
    topic.group("gone").delete()


def _recreated(place: Place) -> None:
    _kafka_shaped(place)
    place.clock.tick(1000)
    place.store.delete_topic(NAME)
    place.clock.tick(1000)
    topic = place.store.create_topic(NAME, partitions=1)
    place.append(topic, records(range(30, 35)))
    place.append(topic, records(range(35, 38)))


def _vacuumed(place: Place) -> None:
    """What a vacuum leaves: the newest root and the commits after it."""
    _indexed(place)
    _remove_old_manifest(place, set())


def _remove_old_manifest(place: Place, kept: set[str]) -> None:
    below = place.objects.below(NAME)
    versions = sorted(int(key[10:30]) for key in contents(below) if key.endswith(".root.json"))
    for key in contents(below):
        if key.startswith("_manifest/0") and int(key[10:30]) < versions[-1] and key not in kept:
            below.delete(key)


def _inline(place: Place) -> None:
    """Records in commits, in files and in merged files. Roots and leaves have entries of all."""
    small = {"inline.max.bytes": 4096}
    topic = place.store.create_topic(NAME, partitions=2, config=small)
    for number in range(4):
        place.append(topic, records(range(number * 3, number * 3 + 3)))
    place.clock.tick(1000)
    topic.merge(threads=1)
    place.append(topic, records(range(12, 16)))
    topic.alter(config={"inline.max.bytes": 0})
    place.append(topic, records(range(16, 20)))
    topic.alter(config=small)
    for number in range(7):
        place.append(topic, records(range(20 + number * 2, 23 + number * 2)), txn=("etl", number))


def _inline_vacuumed(place: Place) -> None:
    """What a vacuum leaves of it: the newest root, the commits after it, and those that have live
    records."""
    _inline(place)
    live = place.store.topic(NAME).segments()["path"].to_pylist()
    _remove_old_manifest(place, {object_of(path) for path in live})


MAKERS: dict[str, tuple[Callable[[Place], None], Callable[[Iterable[int]], pa.Table]]] = {
    "kafka-shaped": (_kafka_shaped, records),
    "table-shaped": (_table_shaped, rows),
    "renamed": (_renamed, lambda numbers: _titled(numbers).drop_columns(["price"])),
    "shifted": (_shifted, records),
    "log-start": (_log_start, records),
    "indexed": (_indexed, records),
    "long": (_long, records),
    "row-groups": (_row_groups, records),
    "grouped": (_grouped, records),
    "recreated": (_recreated, records),
    "vacuumed": (_vacuumed, records),
    "inline": (_inline, records),
    "inline-vacuumed": (_inline_vacuumed, records),
}
NAMES = (*MAKERS, *(f"old-{case}" for case in OLD))


@cache
def base(name: str) -> Base:
    if name not in MAKERS:
        return _golden(name)
    make, more = MAKERS[name]
    place = Place(MemoryStore().with_limits(LIMITS.get(name, DEFAULT_LIMITS)))
    make(place)
    objects = {key: data or b"" for key, data in contents(place.objects.below(NAME)).items()}
    return Base(name, objects, place.clock.now_ms + 1000, more(range(50, 53)))


def _golden(name: str) -> Base:
    case = name.removeprefix("old-")
    folder = TOPICS / case / "topic"
    objects = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    more = records(range(50, 53))
    if case == "table-shaped":
        more = pa.table({"tenant": ["z"], "id": pa.array([1], pa.int32()), "n": [5]})
    return Base(name, objects, T0 + 100 * 24 * HOUR_MS, more)
