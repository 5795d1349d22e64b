"""All records of some keys: the same as a scan and a filter, and how little is read for that."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pylogtable.engine import Scan, plan_append
from pylogtable.errors import CorruptTopicError, InvalidRequestError, StorageError
from pylogtable.format.leaf import segments_of
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.limits import Limits
from pylogtable.read.view import View
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import Clock, at, ints, kafka, limited, make_holes, make_store, rows, times
from tests.stores import CountingStore, FailingStore, FarStore

pytestmark = pytest.mark.records_in("commits", "files")


def scanned(topic: Topic | View, keys: Sequence[bytes], **asked: Any) -> list[Any]:
    """What `read` has to find in a topic of Kafka's shape."""
    return [row for row in rows(topic.read(**asked)) if row["key"] in keys]


def filled(store: Store, seed: int = 3) -> Topic:
    """Keys in the partitions of one, two and three of them, and where writers have put them;
    shifted segments, null keys, tombstones, holes and a log start inside of a segment."""
    chance = random.Random(seed)
    topic = store.create_topic("t")

    def some(count: int) -> pa.Table:
        keys = [chance.choice(["a", "b", "c", "d", None]) for _ in range(count)]
        values = [None if k and chance.random() < 0.2 else f"{chance.random()}" for k in keys]
        return kafka(keys, values)

    for partitions in (1, 2, 3):
        if partitions > 1:
            topic.alter(partitions=partitions)
        for _ in range(3):
            topic.append(some(17))
        plan = plan_append(topic)
        plan.commit([plan.stage(some(9)), plan.stage(some(9))])  # the second is shifted
        placed = [chance.randrange(partitions) for _ in range(30)]
        topic.append(some(30).append_column("partition", ints(*placed)))
    if not any(segment.is_inline for segment in segments_of(topic.segments())):
        make_holes(topic, [n for n in range(100) if n % 3], row_group_rows=4)
    topic.delete_records({0: 7, 1: 3})
    return topic


KEYS = [b"a", b"b", b"c", b"d"]


def add_offsets(found: list[int], reader: pa.RecordBatchReader) -> None:
    """What came before an error stays in `found`."""
    for batch in reader:
        found += batch.column("offset").to_pylist()


@pytest.mark.parametrize("group_rows", [2, 1000])
def test_all_records_of_keys_are_those_of_a_scan(store: Store, group_rows: int) -> None:
    topic = filled(limited(store, row_group_rows=group_rows))
    assert {row["partition"] for row in scanned(topic, [b"a"])} == {0, 1, 2}
    for asked in (
        {},
        {"partition": [2, 0]},
        {"start": {0: 9, "*": 5}, "end": {0: 41, "*": 12}},
        {"version": 4},
        {"version": topic.version - 3},
    ):
        every = rows(topic.read(**asked))
        for keys in ([b"a"], [b"b", b"none"], KEYS, [b"none"], []):
            wanted = [row for row in every if row["key"] in keys]
            assert rows(topic.read(**asked, keys=keys)) == wanted


def test_tombstones_and_all_older_records_of_a_key_come_in_offset_order(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", None, "b", "a"], ["1", "2", "3", "4"]))
    topic.append(kafka(["a", "a"], [None, "5"]))
    found = rows(topic.read(keys=["a"]), "offset", "value")
    assert found == [(0, b"1"), (3, b"4"), (4, None), (5, b"5")]
    assert topic.read(keys=["a"]).schema == topic.schema
    assert rows(topic.latest(["a"]), "offset") == [5]


def test_a_range_may_be_of_times(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", "b", "a", "a"], timestamp=times(1, 2, 3, 4)))
    assert rows(topic.read(start=at(2), end=at(4), keys=["a"]), "offset") == [2]


@pytest.mark.parametrize(
    "columns", [["value"], ["offset"], ["partition", "offset"], ["topic"], ["value", "key"]]
)
def test_key_columns_need_not_be_among_the_columns(store: Store, columns: list[str]) -> None:
    topic = filled(store)
    found = topic.read(columns=columns, keys=["a"], start={"*": 9}).read_all()
    assert found.column_names == columns
    everything = topic.read(columns=["key", *(c for c in columns if c != "key")], start={"*": 9})
    wanted = [row for row in rows(everything) if row["key"] == b"a"]
    assert rows(found) == [{name: row[name] for name in columns} for row in wanted]


@pytest.mark.parametrize(
    "keys",
    [
        ["a", b"b", "absent"],
        pa.array(["a", "b", "absent"]),
        pa.chunked_array([["a"], ["b"], []], pa.string()),
        pa.table({"key": [b"b", b"a", b"a"], "other": [1, 2, 3]}),
        pa.record_batch({"key": [b"b", b"a"]}),
        (b"a", b"b"),
    ],
    ids=["list", "array", "chunked", "table", "batch", "tuple"],
)
def test_keys_have_the_forms_that_latest_takes(store: Store, keys: Any) -> None:
    topic = store.create_topic("t", partitions=3)
    topic.append(kafka(["a", "b", "c"] * 2))
    assert sorted(rows(topic.read(keys=keys), "key")) == [b"a", b"a", b"b", b"b"]


@pytest.mark.parametrize(
    ("schema", "one", "two"),
    [
        ({"k": pa.int32()}, (-5,), (2**31 - 1,)),
        ({"k": pa.int64()}, (0,), (-(2**63),)),
        ({"k": pa.bool_()}, (True,), (False,)),
        ({"k": pa.string()}, ("",), ("höhe",)),
        ({"k": pa.decimal128(10, 2)}, (Decimal("1.50"),), (Decimal("-2.00"),)),
        ({"k": pa.int64(), "l": pa.string()}, (1, "a"), (1, None)),
        ({"k": pa.binary(), "l": pa.binary()}, (b"a", b"bc"), (b"ab", b"c")),
    ],
    ids=lambda v: str(v)[:30] if isinstance(v, dict) else "",
)  # fmt: skip
def test_keys_of_every_type_and_of_several_columns(
    store: Store, schema: dict[str, Any], one: tuple[Any, ...], two: tuple[Any, ...]
) -> None:
    names = list(schema)
    topic = store.create_topic("t", 3, {"v": pa.int64(), **schema}, key=names)
    for value in range(3):
        keys = [one, two, one, (None,) * len(names)]
        columns = {
            name: pa.array([key[i] for key in keys], schema[name]) for i, name in enumerate(names)
        }
        topic.append(pa.table({**columns, "v": [10 * value + n for n in range(4)]}))
    asked = [one, two] if len(names) > 1 else [one[0], two[0]]
    for wanted, values in ((asked[:1], [0, 2, 10, 12, 20, 22]), (asked[1:], [1, 11, 21])):
        assert sorted(rows(topic.read(keys=wanted), "v")) == values
    assert sorted(rows(topic.read(keys=asked, columns=["v"]), "v")) == [
        *(0, 1, 2, 10, 11, 12, 20, 21, 22)
    ]


def test_what_is_no_key_is_refused_before_anything_is_read(store: Store) -> None:
    topic = store.create_topic("t")
    keyless = store.create_topic("keyless", schema={"n": pa.int64()})
    keyless.append(pa.table({"n": [1]}))
    for keys, said in (
        (["a", None], "null key"),
        ("a", "`keys` must be a list of keys"),
        ([1], "do not fit key column 'key'"),
        ([("a", "b")], r"must have 1 part.s.: key"),
        (pa.table({"k": ["a"]}), "no key column"),
    ):
        with pytest.raises(InvalidRequestError, match=said):
            topic.read(keys=keys)
    with pytest.raises(InvalidRequestError, match="topic 'keyless' has no key columns"):
        keyless.read(keys=[])
    assert rows(keyless.read(keys=None), "n") == [1]


def test_renamed_and_added_columns_are_read_by_key(store: Store) -> None:
    topic = store.create_topic("t", schema={"k": pa.int64(), "old": pa.string()}, key="k")
    topic.append(pa.table({"k": [1, 2, 1], "old": ["a", "b", "c"]}))
    topic.alter(rename_columns={"old": "new"}, add_columns={"old": pa.int32()})
    topic.append(pa.table({"k": [1, 2], "new": ["d", "e"], "old": ints(7, 8)}))
    found = rows(topic.read(keys=[1], columns=["new", "old"]), "new", "old")
    assert found == [("a", None), ("c", None), ("d", 7)]


class TestParallel:
    """Parts of a scan, and stores where requests take a while."""

    def test_parts_of_a_scan_have_all_records_of_the_keys(self, store: Store) -> None:
        topic = filled(limited(store, row_group_rows=2, part_bytes=1, open_bytes=1))
        view = topic.at()
        scan = Scan(view, ["a", "c"])
        reader = pickle.loads(pickle.dumps(scan.reader(["partition", "offset", "value"])))
        parts = pickle.loads(pickle.dumps(scan.parts()))
        assert len(parts) > 3
        found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        wanted = scanned(view, [b"a", b"c"])
        assert found == [{n: row[n] for n in ("partition", "offset", "value")} for row in wanted]

    @pytest.fixture
    def far(self, clock: Clock, in_files: bool) -> Topic:
        return filled(limited(make_store(FarStore(clock), clock, in_files=in_files), batch_rows=3))

    def test_several_segments_are_searched_at_once(self, far: Topic) -> None:
        for keys in ([b"a"], KEYS, [b"none"]):
            assert rows(far.read(keys=keys)) == scanned(far, keys)

    @pytest.mark.parametrize("limits", [{"prefetch_bytes": 1}, {"begun_ahead": 1}])
    def test_little_is_made_before_its_turn(self, far: Topic, limits: dict[str, int]) -> None:
        assert rows(limited(far, **limits).read(keys=KEYS)) == scanned(far, KEYS)

    def test_a_read_may_stop_early(self, far: Topic) -> None:
        reader = far.read(keys=KEYS)
        assert rows(pa.table(reader.read_next_batch()))[:1] == scanned(far, KEYS)[:1]
        reader.close()

    def test_records_before_a_damaged_file_come_first(self, clock: Clock) -> None:
        objects = FarStore(clock)
        topic = make_store(objects, clock, in_files=True).create_topic("t")
        for number in range(12):
            topic.append(kafka(["a", f"b{number}"]))
        paths = rows(topic.segments(), "path")
        objects.write(f"t/{paths[5]}", bytes(rows(topic.segments(), "size_bytes")[5]))
        found: list[int] = []
        with pytest.raises(CorruptTopicError) as caught:
            add_offsets(found, topic.read(keys=["a"]))
        assert caught.value.path == paths[5]
        assert found == [0, 2, 4, 6, 8]

    def test_records_before_a_damaged_row_group_come_first(self, clock: Clock) -> None:
        objects = FarStore(clock)
        limits = Limits(row_group_rows=2)
        topic = make_store(objects, clock, limits=limits, in_files=True).create_topic("t")
        topic.append(kafka(["a", "b"] * 3))
        (path,) = rows(topic.segments(), "path")
        data = bytearray(objects.read(f"t/{path}") or b"")
        group = pq.read_metadata(pa.BufferReader(bytes(data))).row_group(2)
        data[group.column(3).data_page_offset + group.column(3).total_compressed_size - 1] ^= 1
        objects.write(f"t/{path}", bytes(data))
        found: list[int] = []
        with pytest.raises(CorruptTopicError):
            add_offsets(found, topic.read(keys=["a"]))
        assert found == [0, 2]

    def test_a_failure_of_the_plan_comes_after_what_was_planned(self, clock: Clock) -> None:
        """A leaf that cannot be read."""
        objects = FailingStore(FarStore(clock))
        store = limited(make_store(objects, clock), tail_max=2, leaf_max=2, root_interval=4)
        topic = store.create_topic("t")
        for number in range(30):
            topic.append(kafka(["a", f"b{number}"]))
        objects.reset()
        view = store.topic("t").at()
        opened = [key for verb, key in objects.by_key if "leaf" in key]
        rows(view.read(keys=["a"]))
        leaves = [key for verb, key in objects.by_key if "leaf" in key and key not in opened]
        objects.fails = staticmethod(lambda verb, key: key == leaves[-1])  # type: ignore[assignment]
        again = make_store(objects, clock).topic("t").at()
        found: list[int] = []
        with pytest.raises(StorageError, match="leaf"):
            add_offsets(found, again.read(keys=["a"]))
        scan: list[int] = []
        with pytest.raises(StorageError, match="leaf"):
            add_offsets(scan, make_store(objects, clock).topic("t").at().read())
        assert len(found) > 10
        assert found == scan[::2]


class TestHowLittleIsRead:
    def test_segments_of_other_partitions_are_not_opened(self) -> None:
        measured = CountingStore(MemoryStore())
        topic = make_store(measured, in_files=True).create_topic("t", partitions=8)
        keys = [f"k{n}" for n in range(500)]
        topic.append(kafka(keys))
        (home,) = partition_for(key_bytes([pa.array([b"k42"])]), 8)
        other = (int(home) + 1) % 8
        topic.append(kafka(["k42"], partition=ints(other)))  # where its key does not belong
        measured.reset()
        assert sorted(rows(topic.read(keys=["k42"]), "partition")) == sorted([home, other])
        assert sorted(path.split("/")[1] for path in measured.opened) == sorted(
            [f"partition={home}", f"partition={other}"]
        )

    def test_statistics_and_bloom_filters_skip_row_groups(self) -> None:
        measured = CountingStore(MemoryStore())
        limits = Limits(row_group_rows=2000, footer_bytes=4096)
        topic = make_store(measured, limits=limits, in_files=True).create_topic("t")
        chance = random.Random(5)
        keys = [chance.randbytes(16) for _ in range(16_000)]
        topic.append(kafka(keys, [chance.randbytes(60) for _ in keys]))
        size = rows(topic.segments(), "size_bytes")[0]

        def read_for(key: bytes) -> int:
            measured.reset()
            found = rows(topic.read(keys=[key]), "offset")
            assert found == [n for n, other in enumerate(keys) if other == key]
            return sum(measured.bytes_read.values())

        by_statistics = read_for(bytes(16))
        by_bloom = read_for(chance.randbytes(16))
        one_group = read_for(keys[2500])
        assert by_statistics < by_bloom < one_group < size / 2
        assert by_statistics < size / 10

    def test_without_a_filter_values_are_read_only_where_the_key_is(self) -> None:
        """A filter of decimals cannot be used, and the statistics of mixed ones say nothing."""
        measured = CountingStore(MemoryStore())
        limits = Limits(row_group_rows=1000)
        schema = {"k": pa.decimal128(30, 2), "v": pa.binary()}
        topic = make_store(measured, limits=limits, in_files=True).create_topic(
            "t", schema=schema, key="k"
        )
        chance = random.Random(6)
        keys = [Decimal(chance.randrange(10**6)) / 4 for _ in range(8000)]
        values = [chance.randbytes(100) for _ in keys]
        topic.append(pa.table({"k": pa.array(keys, schema["k"]), "v": values}))
        measured.reset()
        scan = rows(topic.read(columns=["k"]))
        only_keys = sum(measured.bytes_read.values())
        measured.reset()
        found = rows(topic.read(keys=[keys[4500]]), "v")
        assert found == [v for v, row in zip(values, scan, strict=True) if row["k"] == keys[4500]]
        assert sum(measured.bytes_read.values()) < 1.5 * only_keys + 150_000
