"""Makes the golden topics beside this file: `python format_spec/topics/make.py [folder]`.

Each case is a folder: `case.json` says what it shows and which rules it ties down, `topic/` is a
real topic, `expected.json` has what a reader must find, stated here by hand and not read back.
Clock and ids are fixed, so a second run gives the same manifests but for the ids in file names,
which are drawn by several threads, and for sizes, which depend on the Parquet library.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pylogtable.engine import TopicWriter
from pylogtable.format import config
from pylogtable.format.lookup import segments_between
from pylogtable.format.model import GroupChange, GroupMember, Segment
from pylogtable.format.paths import group_path, segment_path
from pylogtable.format.schema import file_schema
from pylogtable.log.group_head import GroupHead
from pylogtable.log.head import Head
from pylogtable.log.manifest import Manifest
from pylogtable.plan import index
from pylogtable.plan.swap import Swap, plan_swap_commit
from pylogtable.runtime import Runtime
from pylogtable.storage.local import LocalStore
from pylogtable.store import Store
from pylogtable.topic import Topic

#: Only the topics that say so have records in commits.
config.INLINE_MAX_BYTES = 0

T0_MS = 1_700_000_000_000
T0_US = T0_MS * 1000
UTC_US = pa.timestamp("us", tz="UTC")

Row = dict[str, Any]


@dataclass
class Place:
    """Where one case is made, with its own clock and ids."""

    folder: Path
    now_ms: int = T0_MS
    ids: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        runtime = Runtime(clock=lambda: self.now_ms, new_id=lambda: f"{next(self.ids):08x}")
        self.runtime = runtime
        self.store = Store(LocalStore(self.folder), runtime)

    @property
    def topic_folder(self) -> Path:
        return self.folder / "topic"

    def tick(self, ms: int = 1000) -> None:
        self.now_ms += ms

    def open(self) -> Topic:
        return self.store.topic("topic")

    def manifest(self, name: str) -> Path:
        return self.topic_folder / "_manifest" / name

    def group(self, group: str, number: int) -> Path:
        return self.topic_folder / group_path(group, number)

    def case(self, description: str, rules: Iterable[str], **more: object) -> None:
        body = {"description": description, "rules": sorted(rules), **more}
        _write_json(self.folder / "case.json", body)

    def expect(self, **body: object) -> None:
        _write_json(self.folder / "expected.json", body)


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def at(start: dict[int, int], end: dict[int, int], rows: Iterable[Row], **more: object) -> Row:
    """What a reader must find at one version."""
    return {"start_offsets": start, "end_offsets": end, "rows": [neutral(r) for r in rows], **more}


def neutral(value: Any) -> Any:
    """A value as expected.json writes it: bytes in hex, decimals and dates as text, a map as a list
    of pairs."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: neutral(part) for name, part in value.items()}
    if isinstance(value, list | tuple):  # a pair of a map is a tuple
        return [neutral(part) for part in value]
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def placed(partition: int, first_offset: int, rows: Iterable[Row]) -> list[Row]:
    """The rows as a reader sees them when they begin at this offset of the partition."""
    return [
        {"partition": partition, "offset": first_offset + index, **row}
        for index, row in enumerate(rows)
    ]


def kafka(rows: Iterable[Row], *, partition: int | None = None) -> pa.Table:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    types = {"timestamp": UTC_US, "key": pa.binary(), "value": pa.binary(), "headers": headers}
    return _table(rows, types, partition)


def record(us: int, key: bytes | None, value: bytes | None, headers: Any = None) -> Row:
    return {"timestamp": T0_US + us, "key": key, "value": value, "headers": headers}


def _table(rows: Iterable[Row], types: dict[str, pa.DataType], partition: int | None) -> pa.Table:
    rows = list(rows)
    if partition is not None:
        rows = [{**row, "partition": partition} for row in rows]
        types = {**types, "partition": pa.int32()}
    return pa.Table.from_pylist(rows, schema=pa.schema(list(types.items())))


def _write_json(path: Path, body: object) -> None:
    text = json.dumps(body, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest object as no writer would. It loses its checksum, which would differ."""
    body = json.loads(path.read_bytes())
    body.pop("checksum", None)
    change(body)
    path.write_bytes(json.dumps(body, separators=(",", ":")).encode())


# --- sound topics ---------------------------------------------------------------------------


def kafka_shaped(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    # foobar and 21 are in the partitioner's vectors; their hashes are even, so partition 0.
    first = [
        record(10, b"foobar", b"one", [{"key": "trace", "value": b"\x00\xff"}]),
        record(5, b"21", b"", []),
        record(20, b"foobar", None),
    ]
    place.tick()
    topic.append(kafka(first))
    second = [
        record(30, None, b"no key", [{"key": None, "value": None}, {"key": "", "value": b""}]),
        record(31, None, None),
        record(-(10**15), b"", b"an empty key"),
    ]
    place.tick()
    topic.append(kafka(second, partition=1))
    place.tick()
    untimed = kafka([record(0, b"foobar", b"back")]).drop_columns(["timestamp"])
    topic.append(untimed)
    last = {**record(0, b"foobar", b"back"), "timestamp": place.now_ms * 1000}
    zero, one = placed(0, 0, first), placed(1, 0, second)
    place.expect(
        versions={
            "0": at({0: 0, 1: 0}, {0: 0, 1: 0}, []),
            "2": at({0: 0, 1: 0}, {0: 3, 1: 3}, [*zero, *one]),
            "3": at({0: 0, 1: 0}, {0: 4, 1: 3}, [*zero, *placed(0, 3, [last]), *one]),
        },
        latest=[neutral(r) for r in [*placed(0, 1, first[1:2]), *placed(0, 3, [last]), one[2]]],
        offsets_for_time=[
            {"timestamp_us": T0_US + 6, "offsets": {0: 0, 1: 0}},
            {"timestamp_us": T0_US + 11, "offsets": {0: 2, 1: 0}},
            {"timestamp_us": T0_US + 32, "offsets": {0: 3, 1: None}},
            {"timestamp_us": T0_US + 10**12, "offsets": {0: None, 1: None}},
        ],
        tombstones={"0": 1, "1": 0},
    )
    place.case(
        "Kafka's shape: binary key and value, headers, null keys, tombstones, explicit partitions, "
        "timestamps out of order and one given by the append",
        ["APPEND-2", "APPEND-4", "LOG-1", "LOG-5", "META-1", "PART-1", "PART-5",
         "READ-1", "READ-3", "READ-4", "READ-5", "READ-6", "REC-1", "REC-2", "REC-3", "REC-4",
         "SEG-1", "SEG-2", "SEG-3", "SEG-5", "SEG-6", "SEG-8"],
    )  # fmt: skip


def table_shaped(place: Place) -> None:
    before = {"tenant": pa.string(), "id": pa.int32(), "day": pa.date32(), "n": pa.int32(),
              "price": pa.decimal128(9, 2), "tags": pa.list_(pa.string())}  # fmt: skip
    topic = place.store.create_topic("topic", schema=before, key=["tenant", "id"])
    times = {"timestamp": UTC_US}

    def row(us: int, tenant: str | None, number: int | None, **values: Any) -> Row:
        blank = dict.fromkeys(["day", "n", "price", "tags"])
        return {"timestamp": T0_US + us, "tenant": tenant, "id": number, **blank, **values}

    first = [
        row(1, "a", 1, day=date(2024, 2, 29), n=2**31 - 1, price=Decimal("10.50"), tags=["x"]),
        row(2, "a", None, n=7, tags=[None]),
        row(3, "a", 1),
    ]
    place.tick()
    topic.append(_table(first, {**times, **before}, None))
    place.tick()
    topic.alter(partitions=2, add_columns={"note": pa.string()})
    place.tick()
    topic.alter(widen_columns={"n": pa.int64(), "price": pa.decimal128(12, 3)})
    after = {**before, "n": pa.int64(), "price": pa.decimal128(12, 3), "note": pa.string()}
    second = [
        {**row(4, "b", 2, n=2**40, price=Decimal("0.125")), "note": "new"},
        {**row(1, "a", None, n=8), "note": "older than the same key in partition 0"},
        {**row(3, "a", 1, n=9), "note": "as old as the same key in partition 0"},
    ]
    place.tick()
    topic.append(_table(second, {**times, **after}, 1))
    old, added = placed(0, 0, first), placed(1, 0, second)
    widened = [{**r, "note": None} for r in old]
    widened[0] = {**widened[0], "price": Decimal("10.500")}
    place.expect(
        versions={
            "1": at({0: 0}, {0: 3}, old),
            "2": at({0: 0, 1: 0}, {0: 3, 1: 0}, [{**r, "note": None} for r in old]),
            "4": at({0: 0, 1: 0}, {0: 3, 1: 3}, [*widened, *added]),
        },
        latest=[neutral(r) for r in [widened[1], widened[2], added[0]]],
        tombstones={"0": 1, "1": 0},
    )
    place.case(
        "Any columns under a key of two; then a column added, two widened, a partition added: "
        "older files lack the new column and keep their types",
        ["META-3", "META-4", "PART-4", "READ-3", "READ-5", "READ-6", "REC-3", "SEG-3", "TYPE-1",
         "TYPE-2", "TYPE-3", "TYPE-4"],
    )  # fmt: skip


def renamed_and_dropped(place: Place) -> None:
    tags = pa.list_(pa.string())
    before = {"id": pa.int32(), "a": pa.string(), "tags": tags, "b": pa.string(),
              "note": pa.string()}  # fmt: skip
    times = {"timestamp": UTC_US}
    topic = place.store.create_topic("topic", partitions=1, schema=before, key="id")

    def row(us: int, number: int, **values: Any) -> Row:
        return {"timestamp": T0_US + us, "id": number, **values}

    first = [
        row(1, 1, a="one", tags=["x"], b="uno", note="dropped later"),
        row(2, 2, a="two", tags=None, b="due", note=None),
        row(3, 3, a=None, tags=None, b=None, note="its only value"),
    ]
    late = [row(4, 4, a="four", tags=[], b="quattro", note="written before the drop")]
    place.tick()
    topic.append(_table(first, {**times, **before}, None))
    staged = TopicWriter(topic).stage(_table(late, {**times, **before}, None))
    place.tick()
    topic.alter(rename_columns={"a": "b", "b": "a", "tags": "labels"}, drop_columns=["note"])
    place.tick()
    TopicWriter(topic).commit([staged])
    place.tick()
    topic.alter(add_columns={"note": pa.int64(), "A": pa.string()}, rename_columns={"a": "word"})
    after = {"id": pa.int32(), "b": pa.string(), "labels": tags, "word": pa.string(),
             "note": pa.int64(), "A": pa.string()}  # fmt: skip
    last = [row(5, 1, b="eins", labels=["y"], word="une", note=5, A="new")]
    place.tick()
    topic.append(_table(last, {**times, **after}, None))
    place.tick()
    topic.merge()

    def altered(old: Row) -> Row:
        kept = {name: old[name] for name in ("timestamp", "id")}
        return {**kept, "b": old["a"], "labels": old["tags"], "a": old["b"]}

    def newest(old: Row) -> Row:
        kept = {name: altered(old)[name] for name in ("timestamp", "id", "b", "labels")}
        return {**kept, "word": old["b"], "note": None, "A": None}

    both = [*first, *late]
    rows = placed(0, 0, [*map(newest, both), *last])
    place.expect(
        versions={
            "1": at({0: 0}, {0: 3}, placed(0, 0, first)),
            "2": at({0: 0}, {0: 3}, placed(0, 0, map(altered, first))),
            "3": at({0: 0}, {0: 4}, placed(0, 0, map(altered, both))),
            "4": at({0: 0}, {0: 4}, placed(0, 0, map(newest, both))),
            "5": at({0: 0}, {0: 5}, rows, segments=[[0, 3, 3, 0, None], [3, 4, 1, 0, None],
                                                    [4, 5, 1, 0, None]]),
            # By the columns that are left, the third record looks like a tombstone.
            "6": at({0: 0}, {0: 5}, rows, segments=[[0, 5, 5, 1, None]]),
        },
        latest=[neutral(r) for r in rows[1:]],
    )  # fmt: skip
    place.case(
        "Two columns swap their names, one is renamed, one dropped, and its name added again; "
        "a file that was written before is committed after; then a merge",
        ["META-4", "META-6", "META-7", "META-8", "PROTO-1", "PROTO-4", "READ-3", "READ-5", "REC-3",
         "SEG-3"],
    )  # fmt: skip


def given_offsets(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2, start_offsets={0: 5000})

    def given(us: int, partition: int, offset: int, *rest: Any) -> Row:
        return {"partition": partition, "offset": offset, **record(us, *rest)}

    def table(rows: list[Row]) -> pa.Table:
        plain = [{name: row[name] for name in row if name != "offset"} for row in rows]
        offsets = pa.array([row["offset"] for row in rows], pa.int64())
        numbers = pa.array([row["partition"] for row in rows], pa.int32())
        both = kafka(plain).append_column("partition", numbers)
        return both.append_column("offset", offsets)

    # foobar belongs into partition 0, but the log that is copied may have had other writers.
    first = [
        given(10, 0, 5000, b"foobar", b"one", [{"key": "trace", "value": b"\x00\xff"}]),
        given(5, 0, 5001, b"21", b"", []),
        given(20, 1, 7, b"foobar", b"elsewhere"),
    ]
    second = [
        given(30, 0, 5009, b"foobar", None),
        given(31, 1, 9, None, b"no key", [{"key": None, "value": None}]),
        given(-(10**15), 0, 5020, b"", b"an empty key"),
    ]
    late = [given(40, 1, 15, b"21", b"after a lost race")]
    place.tick()
    topic.append(table(first), keep_offsets=True)
    place.tick()
    topic.append(table(second), keep_offsets=True)
    staged = TopicWriter(topic).stage(table(late), keep_offsets=True)
    place.tick()
    plain = [record(35, b"21", b"its offset is given by the log")]
    topic.append(kafka(plain, partition=1))
    place.tick()
    TopicWriter(topic).commit([staged])
    place.tick()
    topic.merge()
    zero = [row for row in (*first, *second) if row["partition"] == 0]
    one = [row for row in (*first, *second) if row["partition"] == 1]
    both = [*zero, *one, *placed(1, 10, plain), *late]
    ends = {0: 5021, 1: 16}
    claims = [[5000, 5002, 2, 0, None], [5002, 5021, 2, 1, None], [0, 8, 1, 0, None],
              [8, 10, 1, 0, None], [10, 11, 1, 0, None], [11, 16, 1, 0, None]]  # fmt: skip
    place.expect(
        versions={
            "0": at({0: 5000, 1: 0}, {0: 5000, 1: 0}, []),
            "1": at({0: 5000, 1: 0}, {0: 5002, 1: 8}, [*first]),
            "2": at({0: 5000, 1: 0}, {0: 5021, 1: 10}, [*zero, *one]),
            "4": at({0: 5000, 1: 0}, ends, both, segments=claims),
            "5": at({0: 5000, 1: 0}, ends, both,
                    # Segments with and without `hashed_over` are not merged [SEG-7].
                    segments=[*claims[:4], [10, 16, 2, 0, None]]),
        },
        latest=[neutral(r) for r in [zero[2], zero[3], late[0]]],
        offsets_for_time=[
            {"timestamp_us": T0_US + 6, "offsets": {0: 5000, 1: 7}},
            {"timestamp_us": T0_US + 25, "offsets": {0: 5009, 1: 9}},
            {"timestamp_us": T0_US + 32, "offsets": {0: None, 1: 10}},
        ],
        tombstones={"0": 1, "1": 0},
    )  # fmt: skip
    place.case(
        "Records that came with their offsets: a partition that begins above 0, holes before, "
        "between and after them, an append between that lets the log give its offset; then a merge",
        ["APPEND-5", "LOG-1", "LOG-4", "LOG-11", "META-9", "PROTO-4", "READ-3", "READ-4", "READ-5",
         "SEG-6", "SEG-10", "SEG-11"],
    )  # fmt: skip


def map_column(place: Place) -> None:
    types = {"id": pa.int64(), "labels": pa.map_(pa.string(), pa.int64()),
             "prices": pa.map_(pa.int32(), pa.list_(pa.decimal128(9, 2)))}  # fmt: skip
    topic = place.store.create_topic("topic", schema=types, key="id")
    rows = [
        {"timestamp": T0_US + 1, "id": 1, "labels": [("b", 2), ("a", None)],
         "prices": [(7, [Decimal("1.50"), None]), (8, [])]},
        {"timestamp": T0_US + 2, "id": 2, "labels": [], "prices": None},
        {"timestamp": T0_US + 3, "id": 1, "labels": None, "prices": None},
    ]  # fmt: skip
    place.tick()
    topic.append(_table(rows, {"timestamp": UTC_US, **types}, None))
    found = placed(0, 0, rows)
    place.expect(
        versions={"1": at({0: 0}, {0: 3}, found)},
        latest=[neutral(r) for r in found[1:]],
        tombstones={"0": 1},
    )
    place.case(
        "Columns of maps: pairs keep their order, and null, empty and a null value differ",
        ["SEG-3", "SUM-3", "TYPE-1", "TYPE-2"],
    )


def lz4(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=1, config={"compression.type": "lz4"})
    rows = [record(n, b"k%d" % (n % 3), b"value " * 20 + b"%d" % n) for n in range(8)]
    place.tick()
    topic.append(kafka(rows))
    place.expect(versions={"1": at({0: 0}, {0: 8}, placed(0, 0, rows))})
    place.case("Files that are compressed with LZ4, which is LZ4_RAW in Parquet",
               ["CONF-1", "SEG-8", "SUM-3"])  # fmt: skip


def log_append_time(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=1)
    given = [record(n, b"k", b"%d" % n) for n in range(3)]
    place.tick()
    topic.append(kafka(given))
    place.tick()
    topic.alter(config={"message.timestamp.type": "LogAppendTime"})
    place.tick()
    stamped = (place.now_ms - T0_MS) * 1000
    topic.append(kafka([record(0, b"k", b"later")]))
    found = [*placed(0, 0, given), *placed(0, 3, [record(stamped, b"k", b"later")])]
    place.expect(
        versions={
            "1": at({0: 0}, {0: 3}, found[:3]),
            "2": at({0: 0}, {0: 3}, found[:3]),
            "3": at({0: 0}, {0: 4}, found),
        },
        offsets_for_time=[{"timestamp_us": T0_US + stamped, "offsets": {"0": 3}}],
    )
    place.case("A topic that begins to give timestamps itself: what producers gave before stays",
               ["REC-1", "SEG-9", "READ-4"])  # fmt: skip


def shifted(place: Place) -> None:
    place.store.create_topic("topic", partitions=1)
    slow, fast = place.open(), place.open()
    late = [record(1, b"k", b"slow 0"), record(2, b"k", b"slow 1")]
    early = [record(3, b"k", b"fast 0"), record(4, b"k", b"fast 1"), record(5, b"k", b"fast 2")]
    place.tick()
    staged = TopicWriter(slow).stage(kafka(late))
    fast.append(kafka(early))
    place.tick()
    TopicWriter(slow).commit([staged])
    both = [*placed(0, 0, early), *placed(0, 3, late)]
    place.expect(
        versions={"1": at({0: 0}, {0: 3}, both[:3]), "2": at({0: 0}, {0: 5}, both)},
        latest=[neutral(both[4])],
        offsets_for_time=[{"timestamp_us": T0_US + 1, "offsets": {0: 0}},
                          {"timestamp_us": T0_US + 5, "offsets": {0: 2}}],
        shifts=[0, 3],
    )  # fmt: skip
    place.case(
        "Two writers predicted offset 0; the one that lost kept its file and got a shift of 3",
        ["COMMIT-4", "LOG-1", "LOG-2", "LOG-3", "PATH-3", "READ-3", "READ-4", "SEG-1"],
    )


def holes(place: Place) -> None:
    topic = place.store.create_topic(
        "topic", partitions=1, config={"cleanup.policy": "compact,delete"}
    )
    rows = [record(n, b"a" if n % 3 else b"b", f"v{n}".encode()) for n in range(12)]
    for start in (0, 4, 8):
        place.tick()
        topic.append(kafka(rows[start : start + 4]))
    manifest = Manifest(LocalStore(place.topic_folder))
    snapshot = manifest.load()
    assert snapshot is not None
    inputs = list(segments_between(snapshot, manifest.leaf, 0, 0, 8))
    # Of offsets 0 to 7 the newest of each key: b at 6, a at 7; 1 and 2 are kept to show row groups.
    kept = [1, 2, 6, 7]
    path = segment_path(0, 0, "c0ffee")
    target = place.topic_folder / path
    schema = file_schema(snapshot.info.fields)
    with pq.ParquetWriter(
        target,
        schema,
        compression="zstd",
        use_dictionary=["key", "value"],
        column_encoding={"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
        store_schema=False,
    ) as writer:
        for group in (kept[:2], kept[2:]):
            part = [{"offset": n, **rows[n]} for n in group]
            writer.write_table(pa.Table.from_pylist(part, schema=schema))
    output = Segment(
        partition=0,
        base_offset=0,
        end_offset=8,
        records=len(kept),
        size_bytes=target.stat().st_size,
        min_timestamp_us=T0_US + 1,
        max_timestamp_us=T0_US + 7,
        path=path,
        row_groups=(1, 6),
        hashed_over=1,
    )
    place.tick()
    head = Head(manifest, place.runtime, snapshot, "the golden topic")
    swap = Swap(tuple(inputs), (output,))
    head.change(lambda s: plan_swap_commit(s, manifest.leaf, "compact", [swap]))
    place.tick()
    place.open().delete_records({0: 2})
    full = placed(0, 0, rows)
    left = [full[n] for n in kept] + full[8:]
    place.expect(
        versions={
            "3": at({0: 0}, {0: 12}, full),
            "4": at({0: 0}, {0: 12}, left),
            "5": at({0: 2}, {0: 12}, left[1:]),
        },
        latest=[neutral(full[n]) for n in (9, 11)],
        offsets_for_time=[{"timestamp_us": T0_US + 3, "offsets": {0: 6}},
                          {"timestamp_us": T0_US + 8, "offsets": {0: 8}}],
        reads=[
            {"version": 5, "start": {0: 3}, "end": {0: 7}, "offsets": {0: [6]}},
            {"version": 5, "start": {0: 3}, "end": {0: 6}, "offsets": {0: []}},
            {"version": 4, "start": {0: 0}, "end": {0: 2}, "offsets": {0: [1]}},
        ],
        count={"4": 8, "5": 7},
    )  # fmt: skip
    place.case(
        "A compacted range: one segment claims [0, 8) and holds four records in two row groups, "
        "none at its first offset; then a log start inside it",
        ["LOG-4", "LOG-6", "LOG-7", "LOG-8", "READ-2", "READ-3", "READ-4", "READ-5", "READ-6",
         "SEG-1", "SEG-5", "SEG-6", "SEG-7"],
    )  # fmt: skip


def compacted(place: Place) -> None:
    topic = place.store.create_topic("topic", config={"cleanup.policy": "compact"})
    keys = [b"a", b"b", b"c", b"a", b"b", b"d", b"e", b"f", b"c", b"d"]
    deletes = {4, 7, 8}
    rows = [record(n, k, None if n in deletes else b"v%d" % n) for n, k in enumerate(keys)]
    for start, end in ((0, 4), (4, 6), (6, 8)):
        place.tick()
        topic.append(kafka(rows[start:end]))
    place.tick()
    first_clean_ms = place.now_ms
    topic.compact()  # version 4: offsets 0 and 1 go; two entries get a time for their tombstones
    place.tick(24 * 3_600_000)
    topic.compact()  # version 5: their time has come
    place.tick()
    topic.append(kafka(rows[8:]))
    place.tick()
    second_clean_ms = place.now_ms
    topic.compact(force=True)  # version 7
    place.tick()
    topic.merge()  # version 8
    full = placed(0, 0, rows)

    def left(*offsets: int) -> list[Row]:
        return [full[n] for n in offsets]

    day = 24 * 3_600_000
    place.expect(
        versions={
            "3": at({0: 0}, {0: 8}, full[:8], clean_ends={0: 0}),
            "4": at({0: 0}, {0: 8}, left(2, 3, 4, 5, 6, 7), clean_ends={0: 8},
                    segments=[[0, 4, 2, 0, None], [4, 6, 2, 1, first_clean_ms + day],
                              [6, 8, 2, 1, first_clean_ms + day]]),
            "5": at({0: 0}, {0: 8}, left(2, 3, 5, 6), clean_ends={0: 8},
                    segments=[[0, 4, 2, 0, None], [4, 8, 2, 0, None]]),
            "7": at({0: 0}, {0: 10}, left(3, 6, 8, 9), clean_ends={0: 10},
                    segments=[[0, 8, 2, 0, None], [8, 10, 2, 1, second_clean_ms + day]]),
            "8": at({0: 0}, {0: 10}, left(3, 6, 8, 9), clean_ends={0: 10},
                    segments=[[0, 10, 4, 1, second_clean_ms + day]]),
        },
        latest=[neutral(r) for r in left(3, 6, 8, 9)],
        offsets_for_time=[{"timestamp_us": T0_US + 4, "offsets": {0: 6}}],
        reads=[{"version": 8, "start": {0: 4}, "end": {0: 9}, "offsets": {0: [6, 8]}}],
        tombstones={"0": 1},
        shifts=[0],
    )  # fmt: skip
    place.case(
        "A changelog compacted three times and merged: tombstones get a time without a new file, "
        "are dropped a day later, and keep theirs when segments are joined",
        ["CLEAN-3", "CLEAN-4", "LOG-7", "LOG-9", "MERGE-1", "READ-6", "REC-3", "SEG-1", "SEG-6"],
    )


def erased(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    keys = [b"a", b"b", b"c", b"a"]
    rows = [record(n, keys[n % 4], b"v%d" % n) for n in range(12)]
    for start in (0, 4, 8):
        place.tick()
        topic.append(kafka(rows[start : start + 4], partition=0))
    place.tick()
    topic.append(kafka([record(20, b"a", b"x")], partition=1))
    place.tick()
    topic.delete_records({0: 2})  # version 5: the record at 0 is in a file that is live
    place.tick()
    topic.erase(keys=[b"a"])  # versions 6 and 7, one for each partition
    place.tick()
    topic.erase(where=(pc.field("partition") == 0) & (pc.field("offset") >= 8))  # version 8
    place.tick()
    topic.append(kafka([record(30, b"a", b"again")], partition=1))
    full = placed(0, 0, rows)
    other = placed(1, 0, [record(20, b"a", b"x"), record(30, b"a", b"again")])

    def left(*offsets: int) -> list[Row]:
        return [full[n] for n in offsets]

    start, end = {0: 2, 1: 0}, {0: 12, 1: 1}
    place.expect(
        versions={
            "5": at(start, end, [*full[2:], other[0]]),
            "7": at(start, end, left(2, 5, 6, 9, 10),
                    segments=[[0, 4, 1, 0, None], [4, 8, 2, 0, None], [8, 12, 2, 0, None],
                              [0, 1, 0, 0, None]]),
            "8": at(start, end, left(2, 5, 6)),
            "9": at(start, {0: 12, 1: 2}, [*left(2, 5, 6), other[1]]),
        },
        latest=[neutral(full[5]), neutral(full[6]), neutral(other[1])],
        offsets_for_time=[{"timestamp_us": T0_US + 3, "offsets": {0: 5, 1: 1}}],
        reads=[
            {"version": 9, "start": {0: 3, 1: 0}, "end": {0: 12, 1: 1},
             "offsets": {0: [5, 6], 1: []}},
        ],
        count={"5": 11, "7": 5, "8": 3, "9": 4},
    )  # fmt: skip
    place.case(
        "A topic that is not compacted, with records erased by key and by a condition: holes, a "
        "segment without records at the end of each partition, a key that is appended again",
        ["ERASE-1", "LOG-4", "LOG-7", "LOG-8", "READ-3", "READ-4", "READ-6", "SEG-5", "SEG-6"],
    )


def inline(place: Place) -> None:
    topic = place.store.create_topic(
        "topic", partitions=2, config={"inline.max.bytes": "4096", "cleanup.policy": "delete"}
    )
    headers = [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}]
    rows = [record(n, b"k%d" % n, b"v%d" % n) for n in range(6)]
    rows[2] = record(2, b"k2", None, headers)
    large = b"".join(sha256(b"%d" % n).digest() for n in range(160))

    def append(zero: list[Row], one: list[Row]) -> None:
        place.tick()
        topic.append([kafka(zero, partition=0), kafka(one, partition=1)])

    append(rows[:2], rows[2:3])  # version 1, in the commit
    append([record(10, b"a", large)], [])  # version 2, a file
    append(rows[3:4], rows[4:5])  # version 3, in the commit
    place.tick()
    topic.merge()  # versions 4 and 5, one for each partition
    place.tick()
    topic.alter(add_columns={"note": "string"})
    append(rows[5:6], [])  # version 7, in the commit
    place.tick()
    noted = {**record(20, b"k0", b"new"), "note": "x"}
    also = {**record(21, b"k0", b"newer"), "note": None}
    schema = kafka([]).schema.append(pa.field("note", pa.string()))
    schema = schema.append(pa.field("partition", pa.int32()))
    given = [{**row, "partition": 1} for row in (noted, also)]
    topic.append(pa.Table.from_pylist(given, schema=schema))  # version 8, in the commit
    place.tick()
    topic.delete_records({1: 3})  # version 9: it cuts records in a commit
    zero = placed(0, 0, [*rows[:2], record(10, b"a", large), rows[3], rows[5]])
    one = placed(1, 0, [rows[2], rows[4], noted, also])
    wide = [{**row, "note": row.get("note")} for row in [*zero, *one]]
    start = {0: 0, 1: 0}
    place.expect(
        versions={
            "1": at(start, {0: 2, 1: 1}, [*zero[:2], one[0]],
                    segments=[[0, 2, 2, 0, None], [0, 1, 1, 1, None]]),
            "3": at(start, {0: 4, 1: 2}, [*zero[:4], *one[:2]],
                    segments=[[0, 2, 2, 0, None], [2, 3, 1, 0, None], [3, 4, 1, 0, None],
                              [0, 1, 1, 1, None], [1, 2, 1, 0, None]]),
            "5": at(start, {0: 4, 1: 2}, [*zero[:4], *one[:2]],
                    segments=[[0, 4, 4, 0, None], [0, 2, 2, 1, None]]),
            "8": at(start, {0: 5, 1: 4}, wide),
            "9": at({0: 0, 1: 3}, {0: 5, 1: 4}, [*wide[:5], wide[8]]),
        },
        latest=[neutral(row) for row in (*wide[1:5], wide[8])],
        offsets_for_time=[{"timestamp_us": T0_US + 5, "offsets": {0: 2, 1: 3}}],
        reads=[
            {"version": 8, "start": {0: 1, 1: 1}, "end": {0: 4, 1: 3},
             "offsets": {0: [1, 2, 3], 1: [1, 2]}},
        ],
        count={"1": 3, "5": 6, "9": 6},
    )  # fmt: skip
    place.case(
        "Small appends are in their commits, a large one is in a file, and a merge makes files of "
        "all; a column is added, and a log start cuts records in a commit",
        ["INL-1", "INL-2", "INL-3", "INL-4", "INL-6", "LOG-6", "LOG-7", "MERGE-1", "PROTO-4",
         "READ-3", "READ-4", "READ-6", "REC-2", "REC-3"],
    )  # fmt: skip


def grouped(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    rows = [record(n, b"k", b"v%d" % n) for n in range(5)]
    place.tick()
    topic.append(kafka(rows, partition=0))
    billing = topic.group("billing")
    for offset in range(66):  # numbers 0 to 65; at 64 those below 32 are removed
        place.tick()
        billing.commit({1: offset} if offset % 2 else {0: offset % 6}, metadata=f"try {offset}")
    gone = topic.group("gone")
    gone.commit({0: 5})
    gone.delete()
    shared = GroupHead(topic._store, place.runtime, "shared", topic.topic_id)
    shared.change(
        lambda state, now_ms: GroupChange(
            operation="join",
            generation=1,
            members={"a": GroupMember(lease_until_ms=now_ms + 30_000, owned=(1,))},
        )
    )
    (place.topic_folder / "_groups" / "shared" / "notes.txt").write_text("no state, so ignored\n")
    place.expect(
        versions={"1": at({0: 0, 1: 0}, {0: 5, 1: 0}, placed(0, 0, rows))},
        groups={
            "billing": {"number": 65, "positions": {0: [4, "try 64"], 1: [65, "try 65"]},
                        "lag": {0: 1, 1: 0}},
            "shared": {"number": 0, "positions": {}, "lag": {}},
        },
        group_states={"billing": list(range(32, 66)), "gone": [0, 1], "shared": [0]},
    )  # fmt: skip
    place.case(
        "Three groups: one of 66 commits whose older states were cleaned up, one deleted, one with "
        "a member and no position; and a file that is no state",
        ["GRP-2", "GRP-4", "GRP-5", "GRP-7", "GRP-10", "GRP-11", "GRP-12"],
    )


def log_start(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    rows = [record(n, b"k%d" % n, b"v") for n in range(6)]
    for start in (0, 3):
        place.tick()
        topic.append(kafka(rows[start : start + 3], partition=0))
    other = [record(9, b"o", b"o")]
    topic.append(kafka(other, partition=1))
    place.tick()
    topic.delete_records({0: 4})
    place.tick()
    topic.delete_records({1: None})
    full, one = placed(0, 0, rows), placed(1, 0, other)
    place.expect(
        versions={
            "3": at({0: 0, 1: 0}, {0: 6, 1: 1}, [*full, *one]),
            "4": at({0: 4, 1: 0}, {0: 6, 1: 1}, [*full[4:], *one]),
            "5": at({0: 4, 1: 1}, {0: 6, 1: 1}, full[4:]),
        },
        latest=[neutral(r) for r in full[4:]],
        offsets_for_time=[{"timestamp_us": T0_US, "offsets": {0: 4, 1: None}}],
        count={"4": 3, "5": 2},
    )
    place.case(
        "Log starts moved inside a segment, and up to the end: the partition is empty and its end "
        "stays",
        ["LOG-4", "LOG-5", "LOG-6", "READ-1", "READ-2", "READ-4"],
    )


def recreated(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    place.tick()
    topic.append(kafka([record(1, b"old", b"old")]), txn=("etl", 7))
    place.tick()
    place.store.delete_topic("topic")
    place.tick()
    topic = place.store.create_topic("topic", partitions=1)
    place.tick()
    rows = [record(2, b"new", b"new")]
    topic.append(kafka(rows), txn=("etl", 7))
    place.expect(
        versions={"3": at({0: 0}, {0: 0}, []), "4": at({0: 0}, {0: 1}, placed(0, 0, rows))},
        latest=[neutral(r) for r in placed(0, 0, rows)],
        unreadable_versions=[0, 1, 2],
    )
    place.case(
        "Deleted and created again: versions go on, offsets and txns begin anew under another id",
        ["COMMIT-7", "META-2", "META-5", "READ-5", "ROOT-1", "TXN-2"],
    )


def indexed(place: Place) -> None:
    rows, _ = _make_indexed(place, appends=4, rows_each=68)
    full = placed(0, 0, rows)
    place.expect(
        versions={"66": at({0: 30}, {0: 276}, full[30:])},
        offsets_for_time=[{"timestamp_us": T0_US + 100, "offsets": {0: 100}},
                          {"timestamp_us": T0_US + 275, "offsets": {0: 275}}],
        reads=[{"version": 66, "start": {0: 270}, "end": {0: 275},
                "offsets": {0: [270, 271, 272, 273, 274]}}],
        leaves=1,
    )  # fmt: skip
    place.case(
        "A root at version 64, a leaf with 272 entries of one record each, two commits after it",
        ["HINT-1", "LEAF-1", "LEAF-2", "LOOK-1", "LOOK-2", "ROOT-1", "ROOT-2", "ROOT-3", "ROOT-4",
         "ROOT-5", "TXN-2"],
    )  # fmt: skip


def _make_indexed(place: Place, *, appends: int, rows_each: int) -> tuple[list[Row], Topic]:
    """Version 64 is a root; versions 65 and 66 follow it. Each record is staged by itself, as if
    by a task of its own, and so gets a segment of its own: the first sealed, the others shifted."""
    topic = place.store.create_topic("topic", schema={"n": pa.int32()})
    rows = [{"timestamp": T0_US + n, "n": n} for n in range(appends * rows_each + 4)]
    types = {"timestamp": UTC_US, "n": pa.int32()}
    for number in range(64 - appends):
        place.tick()
        topic.alter(config={"retention.bytes": 10**9 + number})
    for number in range(appends):
        place.tick()
        part = rows[number * rows_each : (number + 1) * rows_each]
        staged = [TopicWriter(topic).stage(_table([row], types, None)) for row in part]
        TopicWriter(topic).commit(staged, txn=("indexed", number))
    place.tick()
    topic.append(_table(rows[appends * rows_each :], types, None))
    place.tick()
    topic.delete_records({0: min(30, rows_each)})
    return rows, topic


def _write_root(place: Place, leaf: str) -> None:
    """Write a root now, with a leaf for tails of more than 4 entries."""
    topic = place.open()
    kept, index.TAIL_MAX = index.TAIL_MAX, 4
    try:
        topic._manifest.write_root(topic._head.known, lambda: leaf)
    finally:
        index.TAIL_MAX = kept


def _append_one_by_one(topic: Topic, rows: Iterable[Row]) -> None:
    """One commit with a segment for each row."""
    writer = TopicWriter(topic)
    writer.commit([writer.stage(kafka([row], partition=row["partition"])) for row in rows])


def two_leaves(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    rows = [{**record(n, b"k%d" % n, b"v"), "partition": n % 2} for n in range(14)]
    for start in (0, 6):
        place.tick()
        _append_one_by_one(topic, rows[start : start + 6])
        _write_root(place, f"leaf{start}")
    place.tick()
    _append_one_by_one(topic, rows[12:])
    full = [row for p in (0, 1) for row in placed(p, 0, [r for r in rows if r["partition"] == p])]
    place.expect(
        versions={"3": at({0: 0, 1: 0}, {0: 7, 1: 7}, full)},
        offsets_for_time=[{"timestamp_us": T0_US + 5, "offsets": {0: 3, 1: 2}},
                          {"timestamp_us": T0_US + 13, "offsets": {0: None, 1: 6}}],
        reads=[{"version": 3, "start": {0: 2, 1: 2}, "end": {0: 4, 1: 4},
                "offsets": {0: [2, 3], 1: [2, 3]}}],
        leaves=2,
    )  # fmt: skip
    place.case(
        "Two leaves, each with runs of both partitions, and a commit after them",
        ["LEAF-1", "LEAF-2", "LEAF-3", "LOOK-1", "ROOT-3", "ROOT-6", "SUM-1", "SUM-2"],
    )


def run_split(place: Place) -> None:
    topic = place.store.create_topic("topic", config={"cleanup.policy": "compact"})
    keys = [b"a", b"b", b"c", b"d", b"b", b"e"]
    rows = [{**record(n, key, b"v%d" % n), "partition": 0} for n, key in enumerate(keys)]
    place.tick()
    _append_one_by_one(topic, rows)
    _write_root(place, "leaf")
    place.tick()
    topic.compact(force=True)
    _write_root(place, "another")
    full = placed(0, 0, rows)
    left = [row for row in full if row["offset"] != 1]
    place.expect(
        versions={"1": at({0: 0}, {0: 6}, full), "2": at({0: 0}, {0: 6}, left)},
        latest=[neutral(row) for row in left],
        leaves=1,
    )
    place.case(
        "Compaction replaces a segment in the middle of a run, which becomes two runs of one leaf",
        ["CLEAN-3", "LEAF-2", "LEAF-3", "LOG-7", "ROOT-3", "ROOT-6"],
    )


def _rooted(place: Place) -> list[Row]:
    """Version 2 has a root, and version 3 follows it."""
    rows = _small(place)
    _write_root(place, "none")
    place.tick()
    more = [record(4, b"k", b"v4")]
    place.open().append(kafka(more))
    return [*rows, *placed(0, 4, more)]


def old_hint(place: Place) -> None:
    rows = _rooted(place)
    for version in range(3):
        place.manifest(commit_name(version)).unlink()
    place.manifest("_head.json").write_bytes(b'{"root_version":null}')
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    place.case(
        "The hint says that there is no root, and a vacuum has removed the first commits: the "
        "roots are listed",
        ["HINT-1", "COMMIT-7"],
    )


# --- damaged topics -------------------------------------------------------------------------


def _small(place: Place) -> list[Row]:
    topic = place.store.create_topic("topic", partitions=1)
    rows = [record(n, b"k", b"v%d" % n) for n in range(4)]
    for start in (0, 2):
        place.tick()
        topic.append(kafka(rows[start : start + 2]))
    return placed(0, 0, rows)


def _fails(
    place: Place, what: str, rules: list[str], when: str, error: str, rule: str | None = None
) -> None:
    body = {"class": error} if rule is None else {"class": error, "rule": rule}
    place.case(what, rules, when=when, error=body)


def corrupt_truncated_commit(place: Place) -> None:
    _small(place)
    path = place.manifest(commit_name(2))
    path.write_bytes(path.read_bytes()[:-40])
    _fails(place, "The newest commit is cut short", ["COMMIT-1"], "open", "CorruptTopicError",
           "COMMIT-1")  # fmt: skip


def corrupt_gap_in_commits(place: Place) -> None:
    _small(place)
    place.manifest(commit_name(1)).unlink()
    _fails(place, "Commit 1 is gone and commit 2 is there", ["COMMIT-3", "COMMIT-7"], "verify",
           "CorruptTopicError", "COMMIT-3")  # fmt: skip


def corrupt_version_in_body(place: Place) -> None:
    _small(place)
    _edit(place.manifest(commit_name(2)), lambda body: body.update(version=3))
    _fails(place, "The commit named 2 says that it is 3", ["COMMIT-2"], "open",
           "CorruptTopicError", "COMMIT-2")  # fmt: skip


def corrupt_reader_feature(place: Place) -> None:
    _small(place)
    protocol = {"format": 1, "reader_features": ["deletion-vectors"]}
    _edit(place.manifest(commit_name(2)), lambda body: body.update(protocol=protocol))
    _fails(place, "A commit asks of readers what none knows", ["PROTO-2"], "open",
           "UnsupportedFormatError")  # fmt: skip


def corrupt_writer_feature(place: Place) -> None:
    rows = _small(place)
    protocol = {"format": 1, "writer_features": ["sorted-segments"]}
    _edit(place.manifest(commit_name(2)), lambda body: body.update(protocol=protocol))
    place.expect(versions={"2": at({0: 0}, {0: 4}, rows)})
    _fails(place, "A commit asks of writers what none knows: it can be read, not appended to",
           ["PROTO-3"], "append", "UnsupportedFormatError")  # fmt: skip


def corrupt_escaping_path(place: Place) -> None:
    _small(place)

    def escape(body: dict[str, Any]) -> None:
        body["add"][0]["path"] = "partition=0/../../../secret-0.parquet"

    _edit(place.manifest(commit_name(2)), escape)
    _fails(place, "A segment's path leads out of the topic", ["PATH-4"], "open",
           "CorruptTopicError", "PATH-4")  # fmt: skip


def corrupt_row_count(place: Place) -> None:
    _small(place)

    def claim_more(body: dict[str, Any]) -> None:
        body["ends"]["0"] += 1
        body["add"][0]["end_offset"] += 1
        body["add"][0]["records"] += 1

    _edit(place.manifest(commit_name(2)), claim_more)
    _fails(place, "The manifest counts one record more than the file has", ["SEG-5"], "read",
           "CorruptTopicError", "SEG-5")  # fmt: skip


def corrupt_segment_truncated(place: Place) -> None:
    _small(place)
    for path in (place.topic_folder / "partition=0").glob("*2-*.parquet"):
        path.write_bytes(path.read_bytes()[:-8])
    _fails(place, "A segment file lacks its last bytes", ["SEG-2"], "read", "CorruptTopicError",
           "SEG-2")  # fmt: skip


def corrupt_segment_copied(place: Place) -> None:
    _small(place)
    first, second = sorted((place.topic_folder / "partition=0").glob("*.parquet"))
    shutil.copy(first, second)

    def fit(body: dict[str, Any]) -> None:
        body["add"][0]["size_bytes"] = first.stat().st_size
        body["add"][0].pop("footer_checksum", None)

    _edit(place.manifest(commit_name(2)), fit)
    _fails(place, "A segment file has the bytes of another one with as many records",
           ["SEG-11"], "read", "CorruptTopicError", "SEG-11")  # fmt: skip


def corrupt_field_id(place: Place) -> None:
    _small(place)
    _edit(place.manifest(commit_name(0)), _swap_columns)
    _fails(place, "The columns of a file have other ids than those of the topic", ["META-6"],
           "read", "CorruptTopicError", "META-6")  # fmt: skip


def _swap_columns(body: dict[str, Any]) -> None:
    """Two columns of one type change places, and so their ids."""
    key, value, *others = body["topic"]["fields"]
    body["topic"]["fields"] = [{**value, "id": key["id"]}, {**key, "id": value["id"]}, *others]


def corrupt_footer(place: Place) -> None:
    _small(place)
    for path in (place.topic_folder / "partition=0").glob("*2-*.parquet"):
        data = path.read_bytes()
        at_name = data.rindex(b"parquet-cpp")
        path.write_bytes(data[:at_name] + b"Parquet-cpp" + data[at_name + 11 :])
    _fails(place, "A footer was changed in a place that means nothing: it can be parsed, and its "
           "checksum is wrong", ["SUM-3"], "read", "CorruptTopicError", "SUM-3")  # fmt: skip


def corrupt_segment_missing(place: Place) -> None:
    _small(place)
    for path in (place.topic_folder / "partition=0").glob("*2-*.parquet"):
        path.unlink()
    _fails(place, "A live segment has no file", ["SEG-1"], "verify", "CorruptTopicError", "SEG-1")


def corrupt_overlap(place: Place) -> None:
    _small(place)
    _edit(place.manifest(commit_name(2)), lambda body: body["add"][0].update(base_offset=1))
    _fails(place, "An append begins below the end of its partition", ["LOG-2"], "open",
           "CorruptTopicError", "LOG-2")  # fmt: skip


def corrupt_leaf_truncated(place: Place) -> None:
    _make_indexed(place, appends=4, rows_each=68)
    shutil.rmtree(place.topic_folder / "partition=0")
    for version in range(64):
        place.manifest(commit_name(version)).unlink()
    for path in (place.topic_folder / "_manifest").glob("leaf-*"):
        path.write_bytes(path.read_bytes()[:2000])
    _fails(place, "A leaf that the root names is cut short (manifest only: no data files)",
           ["LEAF-1"], "read", "CorruptTopicError", "LEAF-1")  # fmt: skip


def _indexed_small(place: Place) -> list[Row]:
    rows, _ = _make_indexed(place, appends=2, rows_each=1)
    return placed(0, 0, rows)[1:]


def corrupt_root(place: Place) -> None:
    rows = _indexed_small(place)
    path = place.manifest(f"{64:020d}.root.json")
    path.write_bytes(path.read_bytes()[:-50])
    place.expect(versions={"66": at({0: 1}, {0: 6}, rows)})
    what = "The root is cut short: readers pass over it and replay"
    place.case(what, ["ROOT-2"])


def corrupt_root_not_tiled(place: Place) -> None:
    rows = _rooted(place)

    def lose(root: dict[str, Any]) -> None:
        del root["partitions"][0]["tail"][0]

    _edit(place.manifest(f"{2:020d}.root.json"), lose)
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    what = "The root lacks a segment: readers pass over it and replay"
    place.case(what, ["ROOT-6"], problems=["ROOT-6"])


def corrupt_root_end(place: Place) -> None:
    rows = _rooted(place)

    def lengthen(root: dict[str, Any]) -> None:
        # It agrees with itself, but not with the commits after it.
        root["partitions"][0].update(log_start=9, end=9, live={}, tail=[])

    _edit(place.manifest(f"{2:020d}.root.json"), lengthen)
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    what = "The root has another end than the commits after it: readers begin with an older one"
    place.case(what, ["ROOT-5", "ROOT-6"], problems=["ROOT-5"])


def corrupt_ends_alone(place: Place) -> None:
    _small(place)
    _edit(place.manifest(commit_name(2)), lambda body: body.pop("add"))
    _fails(place, "A commit moves an end without a segment", ["LOG-2"], "open",
           "CorruptTopicError", "LOG-2")  # fmt: skip


def corrupt_no_row_groups(place: Place) -> None:
    _small(place)
    _edit(place.manifest(commit_name(2)), lambda body: body["add"][0].update(row_groups=[]))
    _fails(place, "A segment has records and no row groups", ["SEG-10"], "open",
           "CorruptTopicError", "SEG-10")  # fmt: skip


def corrupt_checksum(place: Place) -> None:
    _small(place)
    path = place.manifest(commit_name(2))
    path.write_bytes(path.read_bytes().replace(b'"records":2', b'"records":1'))
    _fails(place, "A digit of a commit has changed since its checksum was taken", ["SUM-1"], "open",
           "CorruptTopicError", "SUM-1")  # fmt: skip


def _with_leaf(place: Place, lose_entry: bool, edit: Callable[[dict[str, Any]], None]) -> None:
    """A topic whose first segments are known from a leaf alone, since their commits are gone."""
    topic = place.store.create_topic("topic")
    place.tick()
    _append_one_by_one(topic, [{**record(n, b"k", b"v"), "partition": 0} for n in range(6)])
    _write_root(place, "leaf")
    for version in range(2):
        place.manifest(commit_name(version)).unlink()
    if lose_entry:
        path = place.manifest("leaf-leaf.parquet")
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table.slice(0, 2), table.slice(3)]), path)
    _edit(place.manifest(f"{1:020d}.root.json"), edit)


def corrupt_leaf_checksum(place: Place) -> None:
    _with_leaf(place, True, lambda root: None)
    _fails(place, "A leaf has changed since the root was written", ["SUM-2"], "read",
           "CorruptTopicError", "SUM-2")  # fmt: skip


def corrupt_leaf_entries(place: Place) -> None:
    def edit(root: dict[str, Any]) -> None:
        del root["leaf_checksums"]

    _with_leaf(place, True, edit)
    _fails(place, "A leaf has fewer entries than its root says", ["LEAF-3"], "read",
           "CorruptTopicError", "LEAF-3")  # fmt: skip


def corrupt_run_gap(place: Place) -> None:
    def edit(root: dict[str, Any]) -> None:
        del root["leaf_checksums"]
        root["leaves"][0][1] = 5
        root["partitions"][0]["live"]["segments"] = 5

    _with_leaf(place, True, edit)
    _fails(place, "The entries of a run have a gap", ["LEAF-3"], "read",
           "CorruptTopicError", "LEAF-3")  # fmt: skip


def corrupt_run_time(place: Place) -> None:
    _with_leaf(place, False, lambda root: root["partitions"][0]["runs"][0].__setitem__(3, 1))
    _fails(place, "A run has records later than its greatest time", ["LEAF-3"], "read",
           "CorruptTopicError", "LEAF-3")  # fmt: skip


def corrupt_hint(place: Place) -> None:
    rows = _small(place)
    place.manifest("_head.json").write_bytes(b"{\x00 not a hint")
    place.expect(versions={"2": at({0: 0}, {0: 4}, rows)})
    place.case("The hint is garbage: readers look for themselves", ["HINT-1"])


def corrupt_hint_to_nowhere(place: Place) -> None:
    rows = _small(place)
    place.manifest("_head.json").write_bytes(b'{"root_version":128}')
    place.expect(versions={"2": at({0: 0}, {0: 4}, rows)})
    place.case("The hint names a root that is not there", ["HINT-1"])


def corrupt_group_number(place: Place) -> None:
    _small(place)
    place.open().group("g").commit({0: 1})
    _edit(place.group("g", 0), lambda body: body.update(number=1))
    _fails(place, "The state named 0 says that it is 1", ["GRP-2"], "verify", "CorruptTopicError",
           "GRP-2")  # fmt: skip


def corrupt_group_topic(place: Place) -> None:
    _small(place)
    place.open().group("g").commit({0: 1})
    _edit(place.group("g", 0), lambda body: body.update(topic_id="another"))
    _fails(place, "A state is of another topic: it is no position of this one", ["GRP-3"], "verify",
           "CorruptTopicError", "GRP-3")  # fmt: skip


def _inline_small(place: Place, change: Callable[[bytes], bytes]) -> None:
    """Two records in commit 1, whose packed rows are changed."""
    topic = place.store.create_topic("topic", partitions=1, config={"inline.max.bytes": "4096"})
    place.tick()
    topic.append(kafka([record(1, b"k", b"v1"), record(2, b"k", b"v2")]))
    path = place.manifest(commit_name(1))
    body = json.loads(path.read_bytes())
    del body["checksum"]
    packed = change(base64.b64decode(body["rows"]))
    body["rows"] = base64.b64encode(packed).decode()
    body["add"][0]["size_bytes"] = len(packed)
    text = json.dumps(body, separators=(",", ":"))[:-1]
    path.write_text(f'{text},"checksum":"{zlib.crc32(text.encode()):08x}"}}')


def corrupt_inline_rows(place: Place) -> None:
    _inline_small(place, lambda packed: packed[: len(packed) // 2])
    _fails(place, "The rows of a commit are cut short, and its checksum fits them", ["INL-2"],
           "read", "CorruptTopicError", "INL-2")  # fmt: skip


def corrupt_inline_size(place: Place) -> None:
    _inline_small(place, lambda _: pa.compress(bytes(65 << 20), codec="zstd", asbytes=True))
    _fails(place, "The rows of a commit have 65 MiB when they are unpacked", ["INL-5"],
           "read", "CorruptTopicError", "INL-5")  # fmt: skip


def corrupt_inline_count(place: Place) -> None:
    def one_less(packed: bytes) -> bytes:
        unpacked = pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read()
        rows = pa.ipc.open_stream(unpacked).read_all().slice(0, 1)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        return bytes(pa.compress(sink.getvalue(), codec="zstd", asbytes=True))

    _inline_small(place, one_less)
    _fails(place, "A commit has one row, and its entries say two", ["INL-3"],
           "read", "CorruptTopicError", "INL-3")  # fmt: skip


CASES: dict[str, Callable[[Place], None]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        kafka_shaped, table_shaped, shifted, holes, compacted, grouped, log_start, recreated,
        indexed, renamed_and_dropped,
        corrupt_truncated_commit, corrupt_gap_in_commits, corrupt_version_in_body,
        corrupt_reader_feature, corrupt_writer_feature, corrupt_escaping_path, corrupt_row_count,
        corrupt_segment_truncated, corrupt_segment_missing, corrupt_overlap,
        corrupt_leaf_truncated, corrupt_root, corrupt_hint, corrupt_hint_to_nowhere,
        corrupt_group_number, corrupt_group_topic, corrupt_segment_copied,
        two_leaves, run_split, old_hint, corrupt_root_not_tiled, corrupt_root_end,
        corrupt_ends_alone, corrupt_no_row_groups, corrupt_checksum, corrupt_leaf_checksum,
        corrupt_leaf_entries, corrupt_run_gap, corrupt_run_time,
        corrupt_field_id,
        corrupt_footer, map_column, lz4, log_append_time, erased, given_offsets,
        inline, corrupt_inline_rows, corrupt_inline_size, corrupt_inline_count,
    )
}  # fmt: skip


def make_all(folder: Path) -> None:
    for name, make in CASES.items():
        make(Place(folder / name))


if __name__ == "__main__":
    make_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
