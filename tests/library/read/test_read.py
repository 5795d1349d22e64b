"""What a read returns, and how little it reads from the store."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, OffsetOutOfRangeError, Topic
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import at, ints, kafka, limited, make_holes, make_store, rows, times
from tests.stores import CountingStore

pytestmark = pytest.mark.records_in("commits", "files")

LOG = ["partition", "offset", "timestamp"]


@pytest.fixture
def topic(store: Store) -> Topic:
    """Two partitions: 0 with offsets 0..9 in three segments, 1 with 0..1 in one."""
    topic = store.create_topic("t", partitions=2)
    for first, last in ((0, 4), (4, 5), (5, 10)):
        values = [f"v{n}" for n in range(first, last)]
        part = ints(*[0] * len(values))
        topic.append(kafka(["k"] * len(values), values, partition=part))
    topic.append(kafka(["k", "k"], ["w0", "w1"], partition=ints(1, 1)))
    return topic


@pytest.fixture
def measured() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
def wide(measured: CountingStore) -> Topic:
    """One segment of eight row groups, about 1.6 MB that do not compress."""
    topic = make_store(measured, limits=Limits(row_group_rows=1000)).create_topic("t")
    chance = random.Random(7)
    values = [chance.randbytes(200) for _ in range(8000)]
    topic.append(kafka([str(n) for n in range(8000)], values))
    (segment,) = rows(topic.segments())
    assert len(segment["row_groups"]) == 8
    measured.reset()
    return topic


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, range(10)),
        (0, 10, range(10)),
        (3, 6, range(3, 6)),
        (4, 5, [4]),
        (9, None, [9]),
        (10, None, []),
        (10, 10, []),
        (0, 0, []),
        (7, 7, []),
        ("earliest", 2, [0, 1]),
        (8, "latest", [8, 9]),
        ({0: 9}, None, [9]),
        (None, {0: 1}, [0]),
        ({0: 9, "*": 0}, None, [9]),
        ({"*": 8}, {0: "latest"}, [8, 9]),
    ],
)
def test_range_includes_start_and_excludes_end(
    topic: Topic, start: object, end: object, expected: object
) -> None:
    found = topic.read(0, start, end)  # type: ignore[arg-type]
    assert rows(found, "offset", "value") == [(n, f"v{n}".encode()) for n in expected]  # type: ignore[attr-defined]


def test_partitions_are_read_in_the_requested_order(topic: Topic) -> None:
    assert rows(topic.read(), "partition") == [0] * 10 + [1] * 2
    assert rows(topic.read([1, 0], end={0: 1}), "value") == [b"w0", b"w1", b"v0"]
    assert rows(topic.read(1, start=1), "value") == [b"w1"]


def test_bounds_by_partition_may_name_all_other_partitions(topic: Topic) -> None:
    assert rows(topic.read(start={0: 8, "*": "latest"}), "value") == [b"v8", b"v9"]
    assert rows(topic.read([1], start={0: 8, "*": 1}), "value") == [b"w1"]
    assert topic.at().ranges(start={"*": "earliest"}, end={1: 1, "*": 3}) == {0: (0, 3), 1: (0, 1)}


def test_time_bounds_select_the_first_record_at_or_after(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"] * 5, timestamp=times(0, 10, 5, 20, 15)))
    assert rows(topic.read(start=at(6)), "offset") == [1, 2, 3, 4]
    assert rows(topic.read(end=at(15)), "offset") == [0, 1, 2]
    assert rows(topic.read(start=at(11), end=at(99)), "offset") == [3, 4]
    assert rows(topic.read(start=at(21)), "offset") == []
    text = at(15).isoformat()
    assert rows(topic.read(start=text.replace("+00:00", "Z")), "offset") == [3, 4]
    assert rows(topic.read(start={0: at(6)}, end={"*": text}), "offset") == [1, 2]


def test_log_with_a_single_record_at_a_high_offset(store: Store) -> None:
    """The only record is @1024. 1025 is the end, 0 and 1026 are out of range."""
    topic = store.create_topic("t")
    topic.append(kafka(["a"] * 1025, [str(n) for n in range(1025)]))
    topic.delete_records({0: 1024})
    assert rows(topic.read(start=1024), "offset", "value") == [(1024, b"1024")]
    assert rows(topic.read(start=1025)) == []
    for outside in (0, 1026):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            topic.read(start=outside)
        assert (raised.value.requested, raised.value.log_start, raised.value.end) == (
            outside,
            1024,
            1025,
        )


@pytest.mark.parametrize("group", [3, 1000])
def test_offset_in_a_hole_starts_at_the_next_record(store: Store, group: int) -> None:
    """Offsets 0 to 49, then every 7th up to 200, also across segments."""
    topic = store.create_topic("t")
    kept = [*range(50), *range(50, 200, 7)]
    for first, end in ((0, 120), (120, 200)):
        topic.append(kafka(["k"] * (end - first), timestamp=times(*range(first, end))))
    make_holes(topic, kept, row_group_rows=group)
    assert topic.verify(data=True)
    assert topic.count() == len(kept)
    assert topic.end_offsets() == {0: 200}
    for start in range(201):
        assert rows(topic.read(start=start), "offset") == [n for n in kept if n >= start]
    assert topic.offsets_for_time(at(51)) == {0: 57}
    assert topic.append(kafka(["k"])).offsets == {0: (200, 201)}


@pytest.mark.parametrize(
    "columns",
    [
        ["value"],
        ["value", "key"],
        ["offset"],
        ["partition"],
        ["timestamp", "partition"],
        ["topic", "offset", "timestampType", "partition"],
        ["topic"],
        [*LOG, "key", "value", "headers", "topic", "timestampType"],
    ],
    ids="-".join,
)
def test_selected_columns_come_in_the_requested_order(topic: Topic, columns: list[str]) -> None:
    found = topic.read(0, 3, 6, columns).read_all()
    assert found.column_names == columns
    expected = {
        "partition": [0] * 3,
        "offset": [3, 4, 5],
        "timestamp": [at(0)] * 3,
        "key": [b"k"] * 3,
        "value": [b"v3", b"v4", b"v5"],
        "headers": [None] * 3,
        "topic": ["t"] * 3,
        "timestampType": [0] * 3,
    }
    assert found.to_pydict() == {name: expected[name] for name in columns}


def test_empty_read_has_the_schema_of_the_topic(topic: Topic) -> None:
    assert topic.schema.names == [*LOG, "key", "value", "headers"]
    assert topic.schema.field("offset") == pa.field("offset", pa.int64(), nullable=False)
    assert topic.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert topic.read().schema == topic.schema == topic.read(0, 10).read_all().schema


def test_old_segments_give_nulls_for_new_columns_and_widened_values(store: Store) -> None:
    topic = store.create_topic("t", schema={"n": pa.int32(), "x": pa.float32()})
    topic.append(pa.table({"n": ints(7), "x": pa.array([0.5], pa.float32())}))
    topic.alter(
        add_columns={"note": pa.string(), "tags": pa.list_(pa.string())},
        widen_columns={"n": pa.int64(), "x": pa.float64()},
    )
    topic.append(pa.table({"n": [2**40], "x": [0.1], "note": ["new"], "tags": [["a", None]]}))
    table = topic.read().read_all()
    assert table.schema.field("n").type == pa.int64()
    assert rows(table, "n", "x", "note", "tags") == [
        (7, 0.5, None, None),
        (2**40, 0.1, "new", ["a", None]),
    ]
    assert rows(topic.read(columns=["note"]), "note") == [None, "new"]
    assert topic.verify(data=True)
    old = topic.read(version=1)
    assert old.schema.names == [*LOG, "n", "x"]
    assert old.schema.field("n").type == pa.int32()


def test_one_record_of_a_large_segment_costs_one_row_group(
    wide: Topic, measured: CountingStore
) -> None:
    (segment,) = rows(wide.segments())
    assert rows(wide.read(start=3500, end=3501), "key") == [b"3500"]
    (read,) = measured.bytes_read.values()
    assert read < segment["size_bytes"] / 3
    inside = read
    measured.reset()
    assert rows(wide.read(start=3000, end=3001), "key") == [b"3000"]
    (read,) = measured.bytes_read.values()
    assert read < inside * 1.2
    measured.reset()
    assert len(rows(wide.read(columns=["key"]))) == 8000
    (read,) = measured.bytes_read.values()
    assert read < segment["size_bytes"] / 3


def test_reading_only_partition_and_offset_opens_no_data_file(
    wide: Topic, measured: CountingStore
) -> None:
    found = wide.read(start=10, columns=["offset", "partition", "topic", "timestampType"])
    assert rows(found, "offset") == list(range(10, 8000))
    assert wide.count() == 8000
    assert measured.opened == []


def test_read_is_lazy_and_pinned_to_its_version(measured: CountingStore) -> None:
    topic = make_store(measured).create_topic("t")
    for number in range(5):
        topic.append(kafka([str(number)]))
    measured.reset()
    reader = topic.read()
    assert measured.opened == []
    first = reader.read_next_batch()
    assert first["offset"].to_pylist() == [0]
    assert len(measured.opened) <= 2
    topic.append(kafka(["later"]))
    assert [batch["offset"][0].as_py() for batch in reader] == [1, 2, 3, 4]


def test_closed_reader_opens_no_more_files(measured: CountingStore) -> None:
    topic = make_store(measured).create_topic("t")
    for number in range(5):
        topic.append(kafka([str(number)]))
    measured.reset()
    with topic.read() as reader:
        reader.read_next_batch()
    assert len(measured.opened) <= 2


@pytest.mark.records_in("files")
def test_batches_are_bounded(store: Store) -> None:
    store = limited(store, batch_rows=7)
    topic = store.create_topic("t")
    topic.append(kafka(["k"] * 40))

    def sizes(reader: pa.RecordBatchReader) -> Iterator[int]:
        return (batch.num_rows for batch in reader)

    for columns in (None, ["offset"]):
        assert max(sizes(topic.read(columns=columns))) <= 7
        assert sum(sizes(topic.read(start=3, end=38, columns=columns))) == 35


def test_wrong_bound_type_is_refused_with_the_allowed_ones(topic: Topic) -> None:
    with pytest.raises(InvalidRequestError, match="'earliest', 'latest', an offset"):
        topic.read(0, start="first")
