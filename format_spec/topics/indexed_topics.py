"""Golden topics with roots, leaves and hints."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from golden_place import (
    T0_US,
    UTC_US,
    Place,
    Row,
    at,
    commit_name,
    kafka,
    neutral,
    placed,
    record,
    small,
    table_of,
)

from pylogtable.engine import plan_append
from pylogtable.limits import Limits
from pylogtable.log.manifest import Manifest
from pylogtable.topic import Topic


def indexed(place: Place) -> None:
    rows, _ = make_indexed(place, appends=4, rows_each=68)
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


def make_indexed(place: Place, *, appends: int, rows_each: int) -> tuple[list[Row], Topic]:
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
        staged = [plan_append(topic).stage(table_of([row], types, None)) for row in part]
        plan_append(topic).commit(staged, txn=("indexed", number))
    place.tick()
    topic.append(table_of(rows[appends * rows_each :], types, None))
    place.tick()
    topic.delete_records({0: min(30, rows_each)})
    return rows, topic


def write_root(place: Place, leaf: str) -> None:
    """Write a root now, with a leaf for tails of more than 4 entries."""
    topic = place.open()
    manifest = Manifest(topic._store.with_limits(Limits(tail_max=4)))
    manifest.write_root(topic._log.known, lambda: leaf)


def append_one_by_one(topic: Topic, rows: Iterable[Row]) -> None:
    """One commit with a segment for each row."""
    plan_append(topic).commit(
        [plan_append(topic).stage(kafka([row], partition=row["partition"])) for row in rows]
    )


def two_leaves(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    rows = [{**record(n, b"k%d" % n, b"v"), "partition": n % 2} for n in range(14)]
    for start in (0, 6):
        place.tick()
        append_one_by_one(topic, rows[start : start + 6])
        write_root(place, f"leaf{start}")
    place.tick()
    append_one_by_one(topic, rows[12:])
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
    append_one_by_one(topic, rows)
    write_root(place, "leaf")
    place.tick()
    topic.compact(force=True)
    write_root(place, "another")
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


def inline_indexed(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2, config={"inline.max.bytes": "4096"})
    rows = [record(n, b"k%d" % n, b"v%d" % n) for n in range(14)]

    def append(*numbers: int) -> None:
        for number in numbers:
            place.tick()
            topic.append([kafka([rows[2 * number + p]], partition=p) for p in (0, 1)])

    append(0, 1, 2, 3)  # versions 1 to 4, in commits
    write_root(place, "leaf")
    topic = place.open()
    append(4)
    place.tick()
    topic.delete_records({0: 2})  # version 6, with a root: it drops entries of a leaf
    place.tick()
    topic.merge()  # versions 7 and 8: in each partition, entries of a leaf and another one
    append(5, 6)
    zero, one = (placed(p, 0, rows[p::2]) for p in (0, 1))
    place.expect(
        versions={
            "4": at({0: 0, 1: 0}, {0: 4, 1: 4}, [*zero[:4], *one[:4]], inline=[8, 8]),
            "6": at({0: 2, 1: 0}, {0: 5, 1: 5}, [*zero[2:5], *one[:5]], inline=[8, 8]),
            "7": at({0: 2, 1: 0}, {0: 5, 1: 5}, [*zero[2:5], *one[:5]], inline=[5, 5]),
            "8": at({0: 2, 1: 0}, {0: 5, 1: 5}, [*zero[2:5], *one[:5]], inline=[0, 0]),
            "10": at({0: 2, 1: 0}, {0: 7, 1: 7}, [*zero[2:], *one], inline=[4, 4]),
        },
        leaves=1,
    )
    place.case(
        "Roots, a log start and merges tell how much is inline: the leaf need not be loaded",
        ["INL-6", "INL-7", "LEAF-1", "LOG-6", "LOG-7", "ROOT-3", "ROOT-6"],
    )


def rooted(place: Place) -> list[Row]:
    """Version 2 has a root, and version 3 follows it."""
    rows = small(place)
    write_root(place, "none")
    place.tick()
    more = [record(4, b"k", b"v4")]
    place.open().append(kafka(more))
    return [*rows, *placed(0, 4, more)]


def old_hint(place: Place) -> None:
    rows = rooted(place)
    for version in range(3):
        place.manifest(commit_name(version)).unlink()
    place.manifest("_head.json").write_bytes(b'{"root_version":null}')
    place.expect(versions={"3": at({0: 0}, {0: 5}, rows)})
    place.case(
        "The hint says that there is no root, and a vacuum has removed the first commits: the "
        "roots are listed",
        ["HINT-1", "COMMIT-7"],
    )


INDEXED_TOPICS = (
    indexed,
    two_leaves,
    run_split,
    inline_indexed,
    old_hint,
)
