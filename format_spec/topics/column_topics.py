"""Golden topics of every kind of column, and of settings that change how records are stored."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
from golden_place import (
    T0_MS,
    T0_US,
    UTC_US,
    Place,
    Row,
    at,
    kafka,
    neutral,
    placed,
    record,
    table_of,
)

from pylogtable.engine import plan_append


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
    topic.append(table_of(first, {**times, **before}, None))
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
    topic.append(table_of(second, {**times, **after}, 1))
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
    topic.append(table_of(first, {**times, **before}, None))
    staged = plan_append(topic).stage(table_of(late, {**times, **before}, None))
    place.tick()
    topic.alter(rename_columns={"a": "b", "b": "a", "tags": "labels"}, drop_columns=["note"])
    place.tick()
    plan_append(topic).commit([staged])
    place.tick()
    topic.alter(add_columns={"note": pa.int64(), "A": pa.string()}, rename_columns={"a": "word"})
    after = {"id": pa.int32(), "b": pa.string(), "labels": tags, "word": pa.string(),
             "note": pa.int64(), "A": pa.string()}  # fmt: skip
    last = [row(5, 1, b="eins", labels=["y"], word="une", note=5, A="new")]
    place.tick()
    topic.append(table_of(last, {**times, **after}, None))
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
    topic.append(table_of(rows, {"timestamp": UTC_US, **types}, None))
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


def filtered(place: Place) -> None:
    """The files that are kept were written by pyarrow 18, to which our writer adds the filters."""
    columns = {"tags": pa.list_(pa.string()), "id": pa.int64(), "name": pa.string()}
    topic = place.store.create_topic("topic", schema=columns, key=["name", "id"])

    def row(number: int) -> Row:
        name = None if number % 4 == 3 else f"name {number % 3}"
        tags = ["t"] * (number % 3)
        return {"timestamp": T0_US + number, "tags": tags, "id": 10 * number, "name": name}

    rows = [row(number) for number in range(24)]
    for start in (0, 12):
        place.tick()
        topic.append(table_of(rows[start : start + 12], {"timestamp": UTC_US, **columns}, None))
    found = placed(0, 0, rows)
    place.expect(
        versions={"1": at({0: 0}, {0: 12}, found[:12]), "2": at({0: 0}, {0: 24}, found)},
        latest=[neutral(r) for r in found],
    )
    place.case("Key columns with Bloom filters, after a nested column and not in the key's order",
               ["SEG-4", "SUM-3"])  # fmt: skip


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


COLUMN_TOPICS = (
    kafka_shaped,
    table_shaped,
    renamed_and_dropped,
    map_column,
    lz4,
    filtered,
    log_append_time,
)
