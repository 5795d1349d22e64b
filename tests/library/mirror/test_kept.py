"""What a copy has in common with its source: all of it, whatever was done at both since the last
mirror."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.engine import plan_append
from pylogtable.errors import InvalidRequestError, LogTableError
from pylogtable.format.leaf import segments_of
from pylogtable.store import Store
from tests.builders import (
    IN_FILES,
    SMALL,
    fill,
    ints,
    kafka,
    make_holes,
    make_store,
    rows,
    runtime,
    times,
)
from tests.conformance.corpus import TOPICS, golden_cases
from tests.depth import DEEP
from tests.mirrors import HEADERS_TYPE, Pair, after_steps, check_equal, everything

COMPACTED = {"cleanup.policy": "compact,delete", "inline.max.bytes": 0}
IN_COMMITS = {"inline.max.bytes": 16384}


def keep(pair: Pair, *works: Callable[[], object]) -> None:
    """Mirror after each of these, and once more."""
    for work in works:
        work()
        pair.mirror()
        pair.check()
    version = pair.copy.version
    pair.mirror()
    assert pair.copy.version == version


def test_an_empty_topic() -> None:
    pair = Pair(partitions=3)
    report = pair.mirror()
    assert (report.records, report.source_version, report.version) == (0, 0, 1)
    pair.check()
    keep(pair, lambda: fill(pair.source))


def test_nulls_headers_tombstones_and_timestamps() -> None:
    pair = Pair(partitions=2, config=IN_COMMITS)
    headers = pa.array([None, [], [{"key": "h", "value": None}]], HEADERS_TYPE)

    def append() -> None:
        table = kafka([None, "a", ""], [None, None, ""], headers=headers)
        pair.source.append(table.append_column("timestamp", times(-5, None, 7.001)))

    keep(
        pair,
        append,
        lambda: pair.source.alter(config={"message.timestamp.type": "LogAppendTime"}),
        append,
        lambda: pair.source.alter(config=IN_FILES),
        append,
        lambda: pair.source.alter(config={"message.timestamp.type": "CreateTime"}),
        append,
        pair.source.merge,
    )
    assert sorted(set(rows(everything(pair.copy), "timestampType"))) == [0, 1]


def test_nested_types() -> None:
    point = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
    schema = {"id": pa.int64(), "at": point, "more": pa.map_(pa.string(), pa.decimal128(9, 2))}
    pair = Pair(schema=schema, key="id")

    def append() -> None:
        data = [{"id": 1, "at": {"x": 1.5, "tags": ["a", None]}, "more": [("k", 2)]}, {"id": None}]
        pair.source.append(pa.Table.from_pylist(data, schema=pa.schema(schema)))

    keep(pair, append, lambda: pair.source.alter(config=IN_COMMITS), append, pair.source.merge)


def test_columns_that_came_went_and_got_other_names_since() -> None:
    pair = Pair()
    source = pair.source
    pair.mirror()

    def many() -> None:
        source.append(kafka(["a"]))
        source.alter(add_columns={"n": pa.int32(), "m": pa.string()})
        source.append(kafka(["b"], n=ints(1), m=["x"]))
        source.alter(rename_columns={"n": "k"})
        source.alter(widen_columns={"k": pa.int64()}, drop_columns=["m"])
        source.alter(add_columns={"m": pa.int32(), "n": pa.int32()})
        source.append(kafka(["c"], k=pa.array([5], pa.int64()), m=ints(2), n=ints(3)))
        source.alter(drop_columns=["n"], rename_columns={"m": "n"})

    keep(pair, many, many_again(pair))


def many_again(pair: Pair) -> Callable[[], None]:
    def again() -> None:
        pair.source.alter(drop_columns=["k"], add_columns={"o": pa.int32()})
        pair.source.alter(rename_columns={"o": "k", "n": "o"})
        pair.source.append(kafka(["d"], o=ints(9)))

    return again


def test_more_partitions_and_settings() -> None:
    pair = Pair()
    keep(
        pair,
        lambda: fill(pair.source, 1),
        lambda: pair.source.alter(partitions=4),
        lambda: pair.source.alter(config={"retention.ms": 7, "segment.bytes": 100}),
        lambda: fill(pair.source),
        lambda: pair.source.alter(config={"retention.ms": None}, partitions=5),
    )


def test_a_new_partition_whose_first_records_are_gone_already() -> None:
    pair = Pair()
    pair.mirror()
    pair.source.alter(partitions=2)
    pair.source.append(kafka(["a", "b", "c"], partition=ints(1, 1, 1)))
    pair.source.append(kafka(["d", "e"], partition=ints(1, 1)))
    pair.source.delete_records({1: 3})
    keep(pair, lambda: None)
    assert pair.copy.start_offsets() == {0: 0, 1: 3}


def test_a_log_start_inside_a_segment() -> None:
    pair = Pair()
    fill(pair.source)
    pair.source.delete_records({0: 4})
    keep(
        pair,
        lambda: None,
        lambda: fill(pair.source, 2),
        lambda: pair.source.delete_records({0: 16}),
        pair.source.merge,
        lambda: fill(pair.source, 1),
    )


def test_a_log_start_beyond_what_was_copied() -> None:
    pair = Pair()
    fill(pair.source, 1)
    pair.mirror()
    fill(pair.source, 3)
    keep(pair, lambda: pair.source.delete_records({0: 7}), lambda: fill(pair.source, 1))
    assert pair.copy.start_offsets() == {0: 7}


def test_a_log_start_between_segments_beyond_what_was_copied() -> None:
    """The first file that comes is moved down over the hole, with a shift as well."""
    pair = Pair()
    fill(pair.source, 1)
    pair.mirror()
    parts = [plan_append(pair.source).stage(kafka(["s", "t"])) for _ in range(3)]
    plan_append(pair.source).commit(parts)
    third = segments_of(pair.source.segments())[2]
    assert third.shift
    pair.source.delete_records({0: third.base_offset})
    report = pair.mirror()
    assert report.files_copied == 2
    keep(pair, lambda: None, pair.source.merge, lambda: fill(pair.source, 1))


def test_a_partition_whose_records_have_all_expired() -> None:
    pair = Pair()
    fill(pair.source, 1)
    pair.mirror()
    fill(pair.source, 1)
    keep(pair, lambda: pair.source.delete_records({0: None}), lambda: fill(pair.source, 1))
    other = Pair()
    fill(other.source, 1)
    keep(other, lambda: other.source.delete_records({0: None}))
    assert other.copy.end_offsets() == {0: 3}


def test_shifted_segments_and_given_offsets() -> None:
    pair = Pair(start_offsets={0: 5})

    def race() -> None:
        parts = [plan_append(pair.source).stage(kafka(["a", "b"])) for _ in range(2)]
        pair.source.append(kafka(["first"]))
        plan_append(pair.source).commit(parts)

    def given() -> None:
        end = pair.source.end_offsets()[0]
        offsets = pa.array([end + 3, end + 4, end + 9], pa.int64())
        table = kafka(["x", "y", "z"], partition=ints(0, 0, 0)).append_column("offset", offsets)
        pair.source.append(table, keep_offsets=True)

    keep(pair, race, given, race, pair.source.merge, given)


@pytest.mark.parametrize("config", [COMPACTED, {**COMPACTED, **IN_COMMITS}])
def test_records_that_the_source_has_removed(config: dict[str, object]) -> None:
    pair = Pair(partitions=2, config=config)
    source = pair.source

    def more() -> None:
        fill(source, 3)

    keep(
        pair,
        more,
        lambda: source.erase(keys=["a"]),
        more,
        lambda: source.compact(force=True),
        more,
        source.merge,
        lambda: source.erase(keys=["b", "c0", "c1", "c2"]),
        lambda: source.erase(keys=["a"]),
    )
    assert pair.copy.count() == 0


def test_borders_that_do_not_fit() -> None:
    """Both sides merge, each at another time."""
    pair = Pair(config=COMPACTED)
    source = pair.source
    fill(source, 2)
    pair.mirror()
    pair.copy.merge()
    fill(source, 1)
    source.merge()
    keep(pair, lambda: source.erase(keys=["c1"]))
    fill(source, 2)
    pair.mirror()
    pair.copy.merge()
    make_holes(source, kept={1, 2, 5, 6, 8, 11, 12})
    source.delete_records({0: 2})
    keep(pair, lambda: source.merge(), lambda: source.erase(keys=["a"]))
    pair.copy.merge()
    keep(pair, lambda: fill(source, 1), lambda: source.compact(force=True), pair.copy.merge)


def test_many_steps() -> None:
    """A commit brings two units; readers see the beginning of the source meanwhile."""
    limits = replace(SMALL, mirror_units=2, mirror_first_units=2)
    pair = Pair(partitions=3, config=COMPACTED, limits=limits)
    fill(pair.source, 7)
    seen = []
    report = pair.mirror(on_progress=after_steps(seen.append))
    assert report.commits > 5
    assert [one.commits for one in seen] == sorted({one.commits for one in seen})
    assert seen[-1].lag == {0: 0, 1: 0, 2: 0}
    assert sum(seen[0].lag.values()) > 0
    assert seen[-1].records == report.records == 21
    pair.check()
    marks = [pair.copy.at(v).snapshot.mirror.version for v in range(pair.copy.version + 1)]
    assert marks == [None] * (len(marks) - 1) + [pair.source.version]
    keep(pair, lambda: pair.source.compact(force=True), lambda: fill(pair.source, 5))


def test_an_index_with_leaves() -> None:
    pair = Pair(partitions=2, config=COMPACTED, limits=replace(SMALL, row_group_rows=2))
    fill(pair.source, 14)
    assert pair.source.at().snapshot.leaves
    keep(pair, lambda: None, lambda: fill(pair.source, 5))
    for _ in range(5):
        fill(pair.source, 1)
        pair.mirror()
    assert pair.copy.at().snapshot.leaves
    keep(
        pair,
        lambda: pair.source.delete_records({0: 9, 1: 3}),
        lambda: pair.source.compact(force=True),
        pair.source.merge,
        pair.copy.merge,
        lambda: pair.source.erase(keys=["b"]),
    )


def test_vacuum_on_both_sides() -> None:
    pair = Pair(config=COMPACTED)
    source = pair.source
    for _ in range(3):
        fill(source, 2)
        pair.mirror()
        source.compact(force=True)
        source.merge()
        pair.copy.merge()
        pair.clock.tick(10)
        for topic in (source, pair.copy):
            topic.vacuum(dry_run=False, retention_ms=0, force=True)
        keep(pair, lambda: fill(source, 1))


def test_old_versions_of_a_copy() -> None:
    pair = Pair(config=COMPACTED)
    seen = {}
    for number in range(4):
        fill(pair.source, 1)
        if number == 2:
            pair.source.compact(force=True)
        pair.mirror()
        seen[pair.copy.version] = everything(pair.source)
    for version, table in seen.items():
        assert everything(pair.copy, version) == table


def test_the_clean_end_and_the_version_are_noted() -> None:
    """So that nobody looks at these commits again."""
    pair = Pair(config=COMPACTED)
    fill(pair.source)
    pair.mirror()
    pair.source.compact(force=True)
    pair.mirror()
    mine, theirs = pair.copy.at().snapshot, pair.source.at().snapshot
    assert mine.partitions[0].clean_end == theirs.partitions[0].clean_end == 12
    assert mine.mirror is not None
    assert mine.mirror.version == theirs.version
    pair.source.erase(keys=["b"])
    pair.mirror()
    assert pair.copy.at().snapshot.mirror.version == pair.source.version
    for number in range(40):
        pair.source.alter(config={"retention.ms": 1000 + number})
        pair.source.alter(config={"retention.ms": None})
    pair.mirror()
    assert pair.copy.at().snapshot.mirror.version == pair.source.version


def test_a_promoted_copy_is_a_topic_like_any_other() -> None:
    pair = Pair(config=COMPACTED)
    fill(pair.source)
    pair.mirror()
    pair.source.alter(config=IN_COMMITS)
    pair.mirror()
    copy = pair.copy
    copy.promote()
    copy.append(kafka(["own"], ["x"]))
    assert rows(copy.read(), "key")[-1] == b"own"
    assert segments_of(copy.segments())[-1].is_inline
    copy.compact(force=True)
    assert copy.verify(data=True)


def test_a_copy_of_a_copy() -> None:
    pair = Pair(partitions=2, config=COMPACTED)
    fill(pair.source)
    pair.source.append(kafka(["t"]), txn=("app", 4))
    pair.mirror()
    third = make_store()
    for _ in range(2):
        pair.copy.mirror(third)
        check_equal(pair.copy, third.topic("t"))
        pair.source.compact(force=True)
        fill(pair.source, 1)
        pair.mirror()
    again = third.topic("t")
    again.promote()
    first = pair.source.append(kafka(["t"]), txn=("app", 4))
    repeat = again.append(kafka(["t"]), txn=("app", 4))
    assert repeat.repeated
    assert repeat.offsets == first.offsets


def test_the_way_back_after_a_failover() -> None:
    """The old source is behind now: it gets a copy of the copy."""
    pair = Pair(partitions=2, config=COMPACTED)
    fill(pair.source)
    pair.mirror()
    fill(pair.source, 1)  # too late
    copy = pair.copy
    copy.promote()
    fill(copy, 2)
    back = Store(pair.near, runtime(pair.clock))
    with pytest.raises(InvalidRequestError, match="is no copy"):
        copy.mirror(back)
    copy.mirror(back, name="t.back")
    check_equal(copy, back.topic("t.back"))
    copy.compact(force=True)
    copy.mirror(back, name="t.back")
    check_equal(copy, back.topic("t.back"))


DAMAGED = [case for case in golden_cases() if case.startswith("corrupt-")]


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_topics(case: str, tmp_path: Path) -> None:
    """They fail with an error of ours before anything is visible, or files come as they are."""
    store = pylogtable.open(tmp_path / "store")
    folder = shutil.copytree(TOPICS / case / "topic", tmp_path / "source")
    try:
        source = pylogtable.open_topic(folder)
        source.mirror(store, name="copy")
    except LogTableError:
        assert [store.topic(name).count() for name in store.topics()] in ([], [0])
    else:
        copy = store.topic("copy")
        assert copy.end_offsets() == source.end_offsets()
        assert copy.count() == source.count()


GOLDEN = [case for case in golden_cases() if not case.startswith("corrupt-")]


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_topics(case: str, tmp_path: Path) -> None:
    """Topics of all ages of the format, on a disk."""
    source = pylogtable.open_topic(shutil.copytree(TOPICS / case / "topic", tmp_path / "source"))
    store = pylogtable.open(tmp_path / "store")
    source.mirror(store, name="copy")
    copy = store.topic("copy")
    check_equal(source, copy)
    if DEEP:
        source.mirror(store, name="own", retention="own")
        assert everything(store.topic("own")) == everything(source)
    if "delete" in source.at().snapshot.config.cleanup_policy:
        number, end = max(source.end_offsets().items(), key=lambda item: item[1])
        source.delete_records({number: end - 1})
    source.merge()
    source.mirror(store, name="copy")
    check_equal(source, copy)
    copy.merge()
    check_equal(source, copy)
