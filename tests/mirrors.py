"""What the tests of mirrors share: random work on a source, and what a copy has to be like."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pylogtable.engine import plan_append
from pylogtable.errors import InvalidRequestError
from pylogtable.limits import DEFAULT_LIMITS, Limits
from pylogtable.mirror.report import MirrorProgress, MirrorReport
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import IN_FILES, T0, UTC_US, Clock, put_back, runtime
from tests.stores import CountingStore

DAY_MS = 86_400_000
KEYS = ["a", "b", "c", "dd", "é", ""]
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Names of a column that comes, goes, and gets other names.
NUMBER_NAMES = ["n", "m", "N"]


def everything(topic: Topic, version: int | None = None) -> pa.Table:
    """All records, with all columns."""
    columns = ["partition", "offset", "timestamp", "timestampType"]
    view = topic.at(version)
    names = [*columns, *(name for name in view.schema.names if name not in columns)]
    return topic.read(columns=names, version=version).read_all().combine_chunks()


def last_txns(topic: Topic) -> dict[str, int]:
    snapshot = topic.at().snapshot
    return {app_id: mark.txn_version for app_id, mark in snapshot.txns.items()}


def check_equal(source: Topic, copy: Topic) -> None:
    """The copy is what its source is: records, offsets, columns, settings and txns."""
    assert copy.version >= 0
    assert source.version >= 0
    assert copy.start_offsets() == source.start_offsets()
    assert copy.end_offsets() == source.end_offsets()
    records = everything(source)
    assert everything(copy) == records
    assert copy.count() == source.count() == records.num_rows
    if records.num_rows:
        middle = records["timestamp"][records.num_rows // 2].as_py()
        assert copy.offsets_for_time(middle) == source.offsets_for_time(middle)
    if source.at().snapshot.info.key:
        order = [("partition", "ascending"), ("offset", "ascending")]
        assert copy.latest().sort_by(order) == source.latest().sort_by(order)
    mine, theirs = copy.at().snapshot, source.at().snapshot
    assert mine.info == theirs.info
    assert last_txns(copy) == last_txns(source)
    assert mine.topic_id != theirs.topic_id
    assert mine.mirror is not None
    assert mine.mirror.source_id == theirs.topic_id
    check_sound(copy)


def check_sound(topic: Topic) -> None:
    report = topic.verify(data=True)
    assert report, str(report)


def check_has_all(source: Topic, copy: Topic) -> None:
    """A copy with its own retention has all records of its source from its log start on."""
    starts = copy.start_offsets()
    assert copy.end_offsets() == source.end_offsets()
    mine, theirs = everything(copy), everything(source)
    lowest = pa.array([starts[number] for number in theirs["partition"].to_pylist()], pa.int64())
    theirs = theirs.filter(pc.greater_equal(theirs["offset"], lowest))
    there = set(zip(theirs["partition"].to_pylist(), theirs["offset"].to_pylist(), strict=True))
    places = zip(mine["partition"].to_pylist(), mine["offset"].to_pylist(), strict=True)
    kept = mine.filter(pa.array([place in there for place in places], pa.bool_()))
    assert kept == theirs
    assert last_txns(copy) == last_txns(source)
    check_sound(copy)


def after_steps(take: Callable[[MirrorProgress], object]) -> Callable[[MirrorProgress], None]:
    """`on_progress` that is only told of steps that are through. While files are copied, the bytes
    grow each time."""
    size = 0

    def tell(told: MirrorProgress) -> None:
        nonlocal size
        before, size = size, told.size_bytes
        if size == before:
            take(told)

    return tell


class Pair:
    """A topic `t` in one store, and another store for its copy. Both count what is asked."""

    def __init__(
        self, clock: Clock | None = None, *, limits: Limits = DEFAULT_LIMITS, **topic: Any
    ) -> None:
        self.clock = clock or Clock()
        self.near = CountingStore(MemoryStore(clock=self.clock).with_limits(limits))
        self.far = CountingStore(MemoryStore(clock=self.clock).with_limits(limits))
        options = {"partitions": 1, "config": IN_FILES, **topic}
        self.source = Store(self.near, runtime(self.clock)).create_topic("t", **options)

    @property
    def target(self) -> Store:
        return Store(self.far, runtime(self.clock))

    @property
    def copy(self) -> Topic:
        return self.target.topic("t")

    def mirror(self, **options: Any) -> MirrorReport:
        return self.source.mirror(self.target, **options)

    def restore(self, backup: dict[str, bytes | None]) -> None:
        """Put an older state of all objects in the place of the source."""
        put_back(self.near, backup)
        self.source = Store(self.near, runtime(self.clock)).topic("t")

    def check(self) -> None:
        check_equal(self.source, self.copy)


class Work:
    """Random operations on a topic of Kafka's shape, one after the other. `done` says which."""

    def __init__(self, topic: Topic, clock: Clock, chance: random.Random) -> None:
        self.topic = topic
        self.clock = clock
        self.chance = chance
        self.done: list[str] = []
        self._serial = itertools.count()
        self._txns = {"x": 0, "y": 0, "z": 0}
        self._weights: dict[Callable[[], object], int] = {
            self.append: 8,
            self.append_with_txn: 4,
            self.append_in_parts: 2,
            self.append_with_given_offsets: 3,
            self.alter_settings: 2,
            self.alter_columns: 2,
            self.more_partitions: 1,
            self.delete_records: 2,
            self.expire: 1,
            self.compact: 3,
            self.merge: 3,
            self.erase: 2,
            self.vacuum: 2,
            self.wait: 2,
        }

    def step(self) -> None:
        works = list(self._weights)
        work = self.chance.choices(works, list(self._weights.values()))[0]
        self.done.append(work.__name__)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of records without a key
            work()

    def rows(self, count: int | None = None) -> pa.Table:
        chance, snapshot = self.chance, self.topic.at().snapshot
        count = chance.randrange(1, 12) if count is None else count
        keys = [chance.choice(KEYS).encode() for _ in range(count)]
        if not snapshot.config.is_compacted and chance.random() < 0.3:
            keys = [None if chance.random() < 0.3 else key for key in keys]  # type: ignore[misc]
        values = [
            None if key is not None and chance.random() < 0.2 else f"{next(self._serial)}".encode()
            for key in keys
        ]
        headers = [
            None if chance.random() < 0.7 else [{"key": "h", "value": chance.choice([None, b"1"])}]
            for _ in keys
        ]
        stamps = [T0 * 1000 + chance.randrange(-(10**6), 10**6) for _ in keys]
        columns: dict[str, Any] = {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS_TYPE),
            "timestamp": pa.array(stamps, pa.int64()).cast(UTC_US),
        }
        for name in snapshot.info.fields:
            if name.name in NUMBER_NAMES:
                numbers = [chance.choice([None, 1, -7]) for _ in keys]
                columns[name.name] = pa.array(numbers, pa.int32())
        return pa.table(columns)

    def with_partitions(self, table: pa.Table) -> pa.Table:
        count = len(self.topic.end_offsets())
        numbers = [self.chance.randrange(count) for _ in range(table.num_rows)]
        return table.append_column("partition", pa.array(numbers, pa.int32()))

    def append(self) -> None:
        table = self.rows()
        self.topic.append(self.with_partitions(table) if self.chance.random() < 0.5 else table)

    def append_with_txn(self) -> None:
        app = self.chance.choice([*self._txns])
        self._txns[app] += self.chance.choice([1, 1, 3])
        self.topic.append(self.rows(), txn=(app, self._txns[app]))

    def append_in_parts(self) -> None:
        """Files that were written before others were committed get a shift."""
        parts = [plan_append(self.topic).stage(self.rows()) for _ in range(2)]
        self.append()
        plan_append(self.topic).commit(parts)

    def append_with_given_offsets(self) -> None:
        table = self.with_partitions(self.rows())
        table = table.sort_by("partition")
        ends = self.topic.end_offsets()
        offsets = []
        for number in table["partition"].to_pylist():
            ends[number] += self.chance.choice([0, 0, 0, 1, 6])
            offsets.append(ends[number])
            ends[number] += 1
        column = pa.array(np.array(offsets, np.int64))
        self.topic.append(table.append_column("offset", column), keep_offsets=True)

    def alter_settings(self) -> None:
        name, value = self.chance.choice(
            [
                ("inline.max.bytes", "0"),
                ("inline.max.bytes", "16384"),
                ("message.timestamp.type", "LogAppendTime"),
                ("message.timestamp.type", "CreateTime"),
                ("segment.bytes", "14"),
                ("segment.bytes", None),
                ("retention.bytes", "4000"),
                ("retention.bytes", None),
                ("cleanup.policy", "delete"),
                ("cleanup.policy", "compact,delete"),
                ("cleanup.policy", "compact"),
            ]
        )
        self._allowed(lambda: self.topic.alter(config={name: value}))

    def alter_columns(self) -> None:
        known = [f.name for f in self.topic.at().snapshot.info.fields if f.name in NUMBER_NAMES]
        free = [name for name in NUMBER_NAMES if name not in known]
        changes: list[Callable[[], object]] = []
        if free:
            changes.append(lambda: self.topic.alter(add_columns={free[0]: pa.int32()}))
        if known:
            changes.append(lambda: self.topic.alter(widen_columns={known[0]: pa.int64()}))
            changes.append(lambda: self.topic.alter(drop_columns=[known[0]]))
        if known and free:
            changes.append(lambda: self.topic.alter(rename_columns={known[0]: free[-1]}))
        self._allowed(self.chance.choice(changes))

    def more_partitions(self) -> None:
        count = len(self.topic.end_offsets())
        if count < 4:
            self.topic.alter(partitions=count + 1)

    def delete_records(self) -> None:
        number, end = self.chance.choice([*self.topic.end_offsets().items()])
        offset = self.chance.choice([None, self.chance.randrange(end + 1)])
        self._allowed(lambda: self.topic.delete_records({number: offset}))

    def expire(self) -> None:
        self._allowed(self.topic.apply_retention)

    def compact(self) -> None:
        self._allowed(lambda: self.topic.compact(force=True, threads=1))

    def merge(self) -> None:
        self.topic.merge(threads=1)

    def erase(self) -> None:
        self.topic.erase(keys=[self.chance.choice(KEYS).encode()], threads=1)

    def vacuum(self) -> None:
        self.clock.tick(10)
        self.topic.vacuum(dry_run=False, retention_ms=0, force=True)

    def wait(self) -> None:
        self.clock.tick(self.chance.choice([1, 1000, DAY_MS, 4 * DAY_MS]))

    def _allowed(self, work: Callable[[], object]) -> None:
        """Do what the topic may refuse as it is."""
        try:
            work()
        except InvalidRequestError:
            self.done[-1] += " (refused)"
