"""Appends whose rows bring their offsets: what they keep, what they refuse, what they leave."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import CommitConflictError, InvalidRequestError, SchemaMismatchError
from pylogtable.engine import plan_append
from pylogtable.format.model import COMBINED_APPENDS, GIVEN_OFFSETS
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import (
    IN_FILES,
    Clock,
    at,
    contents,
    data_files,
    ints,
    kafka,
    limited,
    make_store,
    rows,
    times,
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def given(*places: tuple[int, int], **columns: Any) -> pa.Table:
    """Rows for these partitions and offsets, with a key that tells where they are."""
    return kafka(
        [f"{partition}:{offset}" for partition, offset in places],
        partition=ints(*(partition for partition, _ in places)),
        offset=pa.array([offset for _, offset in places], pa.int64()),
        **columns,
    )


def features(topic: Topic) -> Sequence[str]:
    protocol = topic.at().snapshot.protocol
    assert {*protocol.reader_features, COMBINED_APPENDS} == {*protocol.writer_features}
    return protocol.reader_features


def test_records_keep_partition_offset_timestamp_headers_nulls_and_tombstones(
    store: Store,
) -> None:
    topic = store.create_topic("t", partitions=2)
    table = given((1, 4), (0, 0), (1, 9), (0, 7), timestamp=times(3, -5, 3.001, None))
    table = table.set_column(0, "key", pa.array([b"a", b"", None, b"a"], pa.binary()))
    table = table.set_column(1, "value", pa.array([None, b"", b"x", None], pa.binary()))
    headers = [[{"key": "h", "value": None}, {"key": "h", "value": b"\xff"}], [], None, None]
    table = table.append_column("headers", pa.array(headers, HEADERS))
    result = topic.append(table, keep_offsets=True)
    assert result.offsets == {0: (0, 8), 1: (4, 10)}
    assert topic.end_offsets() == {0: 8, 1: 10}
    names = ("partition", "offset", "timestamp", "key", "value", "headers")
    assert rows(topic.read(), *names) == [
        (0, 0, at(-5), b"", b"", []),
        (0, 7, at(0), b"a", None, None),
        (1, 4, at(3), b"a", None, headers[0]),
        (1, 9, at(3.001), None, b"x", None),
    ]
    assert rows(topic.segments(), "tombstones") == [1, 1]
    assert topic.count() == 4
    assert topic.verify(data=True)


@pytest.mark.records_in("files")
def test_holes_need_the_feature_and_rows_that_follow_the_end_do_not(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka("ab"))
    topic.append(given((0, 2), (0, 3)), keep_offsets=True)
    assert features(topic) == ()
    topic.append(given((0, 5)), keep_offsets=True)
    assert features(topic) == (GIVEN_OFFSETS,)
    topic.append(kafka("c"))
    assert rows(topic.read(), "offset") == [0, 1, 2, 3, 5, 6]


def test_rows_below_the_end_are_refused_with_both_offsets_and_leave_nothing() -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t", partitions=2)
    topic.append(given((0, 10), (0, 11)), keep_offsets=True)
    before = contents(objects)
    rejected = given((1, 0), (0, 11), (0, 12))
    with pytest.raises(CommitConflictError, match=r"partition 0: .* offset 11, .* is 12 already"):
        topic.append(rejected, keep_offsets=True)
    assert contents(objects) == before


@pytest.mark.parametrize(("offsets", "named"), [([5, 5], "5 comes after 5"), ([5, 4], "4 comes")])
def test_offsets_must_rise_inside_each_partition(
    store: Store, offsets: list[int], named: str
) -> None:
    topic = store.create_topic("t", partitions=2)
    table = given((0, offsets[0]), (1, 99), (0, offsets[1]))
    for data in (table, table.to_batches(max_chunksize=1)):
        with pytest.raises(InvalidRequestError, match=f"partition 0: offset {named}"):
            topic.append(data, keep_offsets=True)
    assert topic.version == 0


def test_offsets_must_rise_from_one_chunk_to_the_next(store: Store) -> None:
    store = limited(store, chunk_rows=2)
    topic = store.create_topic("t")
    with pytest.raises(InvalidRequestError, match="offset 3 comes after 7"):
        topic.append(given((0, 5), (0, 7), (0, 3), (0, 4)), keep_offsets=True)
    topic.append(given((0, 5), (0, 7), (0, 8), (0, 14)), keep_offsets=True)
    assert rows(topic.read(), "offset") == [5, 7, 8, 14]


WRONG: dict[str, tuple[pa.Table, type[Exception], str]] = {
    "no partition": (
        given((0, 1)).drop_columns(["partition"]),
        SchemaMismatchError,
        "column 'partition' is missing",
    ),
    "no offset": (
        given((0, 1)).drop_columns(["offset"]),
        SchemaMismatchError,
        "column 'offset' is missing",
    ),
    "null offset": (
        kafka("ab", partition=ints(0, 0), offset=ints(1, None)),
        SchemaMismatchError,
        "row 1: column 'offset' is null",
    ),
    "null partition": (
        kafka("ab", partition=ints(0, None), offset=ints(1, 2)),
        SchemaMismatchError,
        "row 1: column 'partition' is null",
    ),
    "text for offset": (
        kafka("a", partition=ints(0), offset=pa.array(["1"])),
        SchemaMismatchError,
        "column 'offset' is string",
    ),
    "negative offset": (given((0, -1)), InvalidRequestError, "row 0: offset -1 is out of range"),
    "too large": (
        given((0, 2**63 - 1)),
        InvalidRequestError,
        f"row 0: offset {2**63 - 1} ",
    ),
    "too large for 64 bits": (
        kafka("a", partition=ints(0), offset=pa.array([2**64 - 1], pa.uint64())),
        InvalidRequestError,
        f"row 0: offset {2**64 - 1} is out of range",
    ),
    "unknown partition": (given((5, 0)), InvalidRequestError, "row 0: partition 5 is out of range"),
    "a column of the log": (
        given((0, 1), topic=pa.array(["t"])),
        SchemaMismatchError,
        "column 'topic' is given by the log",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_rows_without_a_place_of_their_own_are_refused(case: str) -> None:
    table, error, named = WRONG[case]
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t")
    before = contents(objects)
    with pytest.raises(error, match=named):
        topic.append(table, keep_offsets=True)
    assert contents(objects) == before


def test_offset_without_keep_offsets_is_refused_and_the_way_is_named(store: Store) -> None:
    topic = store.create_topic("t")
    with pytest.raises(SchemaMismatchError, match="keep_offsets=True"):
        topic.append(given((0, 0)))


def test_greatest_offset_is_kept(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(given((0, 2**63 - 2)), keep_offsets=True)
    assert topic.end_offsets() == {0: 2**63 - 1}
    assert rows(topic.read(), "offset") == [2**63 - 2]


def test_files_of_segment_bytes_tile_the_range(store: Store) -> None:
    topic = store.create_topic("t", config={"segment.bytes": 14})
    topic.append(given(*((0, offset) for offset in (3, 5, 9, 10, 20))), keep_offsets=True)
    assert rows(topic.segments(), "base_offset") == [0, 4, 6, 10, 11]
    assert rows(topic.segments(), "end_offset") == [4, 6, 10, 11, 21]
    assert set(rows(topic.segments(), "records", "shift")) == {(1, 0)}
    assert rows(topic.read(start=6), "offset") == [9, 10, 20]
    assert topic.verify(data=True)


def test_files_that_are_closed_early_tile_as_well(store: Store) -> None:
    store = limited(store, open_files=1, chunk_rows=2, row_group_rows=1)
    topic = store.create_topic("t", partitions=2)
    table = given((0, 1), (1, 5), (0, 4), (1, 6), (0, 9), (1, 12))
    topic.append(table, keep_offsets=True)
    assert rows(topic.read(), "key") == [b"0:1", b"0:4", b"0:9", b"1:5", b"1:6", b"1:12"]
    assert topic.verify(data=True)


def test_timestamps_are_kept_with_log_append_time(store: Store) -> None:
    topic = store.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    topic.append(given((0, 1), timestamp=times(-77)), keep_offsets=True)
    names = ["timestamp", "timestampType"]
    assert rows(topic.read(columns=names), *names) == [(at(-77), 1)]


def test_repeat_of_a_txn_is_recognised_before_its_offsets_are_refused(store: Store) -> None:
    topic = store.create_topic("t")
    first = topic.append(given((0, 4), (0, 6)), keep_offsets=True, txn=("copy", 1))
    again = topic.append(given((0, 4), (0, 6)), keep_offsets=True, txn=("copy", 1))
    assert again.repeated
    assert again.offsets == first.offsets == {0: (4, 7)}
    with pytest.raises(CommitConflictError):
        topic.append(given((0, 4), (0, 6)), keep_offsets=True, txn=("copy", 2))
    assert topic.last_txn("copy") == 1


def test_lost_race_keeps_the_offsets_if_the_end_is_still_below_them() -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t", config=IN_FILES)
    staged = plan_append(topic, keep_offsets=True).stage(given((0, 5), (0, 6)))
    topic.append(kafka("abcde"))
    plan_append(topic).commit([staged])
    assert rows(topic.read(), "offset") == [0, 1, 2, 3, 4, 5, 6]
    assert features(topic) == ()
    late = plan_append(topic, keep_offsets=True).stage(given((0, 7)))
    topic.append(kafka("f"))
    files = data_files(objects)
    with pytest.raises(CommitConflictError, match="offset 7, and the end of the partition is 8"):
        plan_append(topic).commit([late])
    assert set(data_files(objects)) == set(files) - {f"t/{file.path}" for file in late.files}


def test_of_two_copies_at_once_one_wins_and_nothing_comes_twice() -> None:
    objects = MemoryStore()
    store = make_store(objects)
    store.create_topic("t")
    barrier = threading.Barrier(2)
    lost: list[Exception] = []

    def copy() -> None:
        topic = store.topic("t")
        barrier.wait()
        for first in range(0, 60, 3):
            table = given(*((0, first + n) for n in (0, 2)))
            try:
                topic.append(table, keep_offsets=True)
            except CommitConflictError as error:
                lost.append(error)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    topic = store.topic("t")
    wanted = [first + n for first in range(0, 60, 3) for n in (0, 2)]
    assert rows(topic.read(), "offset") == sorted(set(wanted) & set(rows(topic.read(), "offset")))
    assert len(rows(topic.read())) + 2 * len(lost) == 2 * len(wanted)
    assert len(data_files(objects)) == topic.segments().num_rows


def test_tasks_in_any_order_are_placed_by_their_offsets(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    parts = [given((0, 20), (1, 3)), given((0, 4), (0, 9)), given((0, 10), (1, 8))]
    staged = [plan_append(topic, keep_offsets=True).stage(part) for part in parts]
    assert plan_append(topic).commit(staged).offsets == {0: (4, 21), 1: (3, 9)}
    assert rows(topic.read(), "key") == [b"0:4", b"0:9", b"0:10", b"0:20", b"1:3", b"1:8"]
    assert topic.verify(data=True)


def test_tasks_that_overlap_are_refused() -> None:
    objects = MemoryStore()
    topic = make_store(objects).create_topic("t")
    parts = [given((0, 4), (0, 9)), given((0, 7))]
    staged = [plan_append(topic, keep_offsets=True).stage(part) for part in parts]
    with pytest.raises(InvalidRequestError, match="up to offset 9 and rows from offset 7"):
        plan_append(topic).plan_joins(staged)
    with pytest.raises(InvalidRequestError, match="up to offset 9 and rows from offset 7"):
        plan_append(topic).commit(staged)
    assert data_files(objects) == []


def test_joined_files_keep_their_offsets(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    parts = [given((0, 20), (1, 3)), given((0, 4), (0, 9)), given((0, 10), (1, 8))]
    staged = [plan_append(topic, keep_offsets=True).stage(part, temporary=True) for part in parts]
    joiner, joins = plan_append(topic).plan_joins(staged)
    plan_append(topic).commit([plan_append(topic).joined(staged, map(joiner, joins))])
    columns = ("partition", "base_offset", "end_offset", "records", "shift")
    assert rows(topic.segments(), *columns) == [(0, 0, 21, 4, 0), (1, 0, 9, 2, 0)]
    assert rows(topic.read(), "key") == [b"0:4", b"0:9", b"0:10", b"0:20", b"1:3", b"1:8"]
    assert topic.verify(data=True)


def test_keys_where_kafka_puts_them_are_found_by_their_hash(store: Store) -> None:
    """A copy brings all partitions. As long as they are those of the keys, a lookup may rely on
    it."""
    topic = store.create_topic("t", partitions=2)
    places = {"partition": ints(0, 0), "offset": ints(0, 1)}
    topic.append(kafka(["foobar", "21"], **places), keep_offsets=True)  # both hashes are even
    topic.append(kafka(["foobar"], partition=ints(1), offset=ints(0)), keep_offsets=True)
    snapshot = topic.at().snapshot
    promised = [[s.hashed_over for s in state.tiles] for state in snapshot.partitions]  # type: ignore[union-attr]
    assert promised == [[2], [None]]
    assert topic.latest(keys=[b"foobar"]).num_rows == 1


class TestStartOffsets:
    def test_partitions_begin_there_and_appends_follow(self, store: Store) -> None:
        topic = store.create_topic("t", partitions=3, start_offsets={0: 5000, 2: 7})
        assert topic.start_offsets() == topic.end_offsets() == {0: 5000, 1: 0, 2: 7}
        assert topic.count() == 0
        topic.append(kafka("abc", partition=ints(0, 1, 2)))
        assert rows(topic.read(), "offset") == [5000, 0, 7]
        assert topic.verify(data=True)

    def test_rows_below_the_start_are_refused(self, store: Store) -> None:
        topic = store.create_topic("t", start_offsets={0: 5000})
        with pytest.raises(CommitConflictError, match=r"4999.*5000"):
            topic.append(given((0, 4999)), keep_offsets=True)

    def test_state_survives_a_root(self, clock: Clock) -> None:
        store = make_store(MemoryStore(), clock)
        topic = store.create_topic("t", partitions=2, start_offsets={0: 5000})
        for _ in range(70):
            topic.append(kafka("a", partition=ints(1)))
        opened = store.topic("t")
        assert opened.at().snapshot.root_version is not None
        assert opened.start_offsets() == {0: 5000, 1: 0}
        assert opened.end_offsets() == {0: 5000, 1: 70}
        assert opened.verify(data=True)

    @pytest.mark.records_in("files")
    def test_zeros_need_no_feature(self, store: Store) -> None:
        assert features(store.create_topic("t", start_offsets={0: 0})) == ()
        assert features(store.create_topic("u", start_offsets={0: 1})) == (GIVEN_OFFSETS,)

    @pytest.mark.parametrize("wrong", [{1: 5}, {0: -1}, {0: 2**63}, {0: "5"}, {0: True}, [5], 7])
    def test_offsets_that_cannot_be_are_refused(self, store: Store, wrong: Any) -> None:
        with pytest.raises(InvalidRequestError, match="start_offsets"):
            store.create_topic("t", start_offsets=wrong)
        assert store.topics() == []


def test_retention_merge_and_vacuum_work_on_given_offsets(clock: Clock) -> None:
    topic = make_store(MemoryStore(), clock).create_topic("t", config={"retention.ms": 1000})
    topic.append(given((0, 100), timestamp=times(-500)), keep_offsets=True)
    topic.append(given((0, 200), timestamp=times(900)), keep_offsets=True)
    topic.append(given((0, 300), timestamp=times(950)), keep_offsets=True)
    clock.tick(1000)
    assert topic.apply_retention().log_starts == {0: 101}
    topic.merge()
    assert rows(topic.segments(), "base_offset", "end_offset") == [(101, 301)]
    assert rows(topic.read(start=150), "offset") == [200, 300]
    assert topic.delete_records({0: 250}) == {0: 250}
    assert topic.count() == 1
    assert topic.verify(data=True)


def test_lag_counts_records_and_not_holes(store: Store) -> None:
    topic = store.create_topic("t", start_offsets={0: 1000})
    topic.append(given((0, 1500), (0, 1502), (0, 9000)), keep_offsets=True)
    group = topic.group("g")
    group.commit({0: 1501})
    assert group.lag().records == 2


def test_rows_with_offsets_are_never_inline(store: Store) -> None:
    topic = store.create_topic("t", config={"inline.max.bytes": 100_000})
    topic.append(kafka("a"))
    topic.append(given((0, 5)), keep_offsets=True)
    is_file = [path.startswith("partition=0/") for path in rows(topic.segments(), "path")]
    assert is_file == [False, True]
    assert rows(topic.read(), "offset") == [0, 5]
    assert topic.verify(data=True)
