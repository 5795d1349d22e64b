"""Golden topics of what a log may look like: offsets, holes, groups, log starts."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from golden_place import T0_US, Place, Row, at, kafka, neutral, placed, record

from pylogtable.engine import plan_append
from pylogtable.format.group_model import GroupChange, GroupMember
from pylogtable.format.model import Segment
from pylogtable.format.paths import segment_path
from pylogtable.format.schema import file_schema
from pylogtable.jobs.replace_plan import Swap, plan_swap_commit
from pylogtable.log.group_log import GroupLog
from pylogtable.log.manifest import Manifest
from pylogtable.log.topic_log import TopicLog
from pylogtable.storage.local import LocalStore


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
    staged = plan_append(topic, keep_offsets=True).stage(table(late))
    place.tick()
    plain = [record(35, b"21", b"its offset is given by the log")]
    topic.append(kafka(plain, partition=1))
    place.tick()
    plan_append(topic).commit([staged])
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


def shifted(place: Place) -> None:
    place.store.create_topic("topic", partitions=1)
    slow, fast = place.open(), place.open()
    late = [record(1, b"k", b"slow 0"), record(2, b"k", b"slow 1")]
    early = [record(3, b"k", b"fast 0"), record(4, b"k", b"fast 1"), record(5, b"k", b"fast 2")]
    place.tick()
    staged = plan_append(slow).stage(kafka(late))
    fast.append(kafka(early))
    place.tick()
    plan_append(slow).commit([staged])
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
    inputs = list(manifest.state(snapshot).segments(0, 0, 8))
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
    log = TopicLog(manifest, place.runtime, snapshot)
    swap = Swap(tuple(inputs), (output,))
    log.change(lambda s: plan_swap_commit(s, "compact", [swap]))
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
    shared = GroupLog(topic._store, place.runtime, "shared", topic.topic_id)
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


LOG_TOPICS = (
    given_offsets,
    shifted,
    holes,
    inline,
    grouped,
    log_start,
    recreated,
)
