"""The newest record of each key, and how little is read to find some keys."""

from __future__ import annotations

import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import pylogtable
from pylogtable.format.partitioner import key_bytes, partition_for
from pylogtable.limits import Limits
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import ints, kafka, limited, make_store, rows, times
from tests.stores import CountingStore

pytestmark = pytest.mark.records_in("commits", "files")


def test_the_greatest_offset_of_a_key_is_its_newest_record(store: Store) -> None:
    """Keys 0,1,0,1,0 leave 1@3 and 0@4."""
    topic = store.create_topic("t")
    topic.append(kafka(["0", "1", "0", "1", "0"], timestamp=times(9, 8, 7, 6, 5)))
    assert rows(topic.latest(), "offset", "key") == [(3, b"1"), (4, b"0")]
    assert rows(topic.latest(["0"]), "offset") == [4]


@pytest.mark.parametrize("group_rows", [7, 1000])
def test_searching_and_scanning_agree_with_a_dictionary(store: Store, group_rows: int) -> None:
    store = limited(store, row_group_rows=group_rows)
    chance = random.Random(2)
    keys = [f"k{chance.randrange(12)}" for _ in range(60)]
    topic = store.create_topic("t")
    topic.append(kafka(keys[:35]))
    topic.append(kafka(keys[35:]))
    newest = {key.encode(): offset for offset, key in enumerate(keys)}
    assert dict(rows(topic.latest(), "key", "offset")) == newest
    assert dict(rows(topic.latest(sorted(set(keys))), "key", "offset")) == newest


@pytest.mark.parametrize("budget", [100, 3000, 1 << 30])
def test_bounded_memory_for_keys_gives_the_same_result(store: Store, budget: int) -> None:
    """After a compaction, above a log start, with and without keys."""
    store = limited(store, key_budget_bytes=budget)
    chance = random.Random(budget)
    topic = store.create_topic("t", config={"cleanup.policy": "compact,delete"})
    keys: list[str] = []
    for round_number in range(4):
        more = [f"k{chance.randrange(30)}" for _ in range(50)]
        topic.append(kafka(more))
        keys += more
        newest = {key.encode(): offset for offset, key in enumerate(keys)}
        assert dict(rows(topic.latest(), "key", "offset")) == newest
        if round_number == 1:
            topic.compact(force=True)
    topic.delete_records({0: 110})
    topic.alter(config={"cleanup.policy": "delete"})
    topic.append(kafka([None, "k1", None]))
    newest = {key: offset for key, offset in newest.items() if offset >= 110} | {b"k1": 201}
    found = topic.latest()
    assert dict(rows(found, "key", "offset")) == newest
    assert rows(found, "offset") == sorted(newest.values())


def test_compacted_segments_are_not_searched_again() -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured, in_files=True).create_topic(
        "t", config={"cleanup.policy": "compact"}
    )
    for _ in range(3):
        topic.append(kafka([f"k{n}" for n in range(100)]))
    topic.compact()
    measured.reset()
    assert topic.latest().num_rows == 100
    assert {times for (verb, _), times in measured.by_key.items() if verb == "open_input"} == {1}


def test_a_partition_named_twice_is_read_once(store: Store) -> None:
    topic = store.create_topic("t", partitions=2)
    topic.append(kafka(["a", "b", "c"]))
    assert topic.at().latest(partitions=[0, 1, 0]).num_rows == 3


def test_tombstones_are_returned_and_null_keys_are_skipped(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", None, "b"], ["1", "2", "3"]))
    topic.append(kafka(["a"], [None]))
    found = dict(rows(topic.latest(), "key", "value"))
    assert found == {b"a": None, b"b": b"3"}
    assert rows(topic.latest(["a"]), "value") == [None]


def test_records_below_the_log_start_are_not_found(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", "b", "c"]))
    topic.delete_records({0: 2})
    assert rows(topic.latest(), "key") == [b"c"]
    assert topic.latest(["a", "b"]).num_rows == 0


@pytest.mark.parametrize(("first", "second", "winner"), [(1, 2, b"2"), (2, 1, b"1"), (1, 1, b"1")])
def test_across_partitions_the_latest_timestamp_wins(
    store: Store, first: int, second: int, winner: bytes
) -> None:
    """Of equal timestamps, the record in the key's own partition wins: 0 for `a`."""
    topic = store.create_topic("t", partitions=2)
    topic.append(kafka(["a"], ["1"], timestamp=times(first), partition=ints(0)))
    topic.append(kafka(["a"], ["2"], timestamp=times(second), partition=ints(1)))
    for found in (topic.latest(), topic.latest(["a"])):
        assert rows(found, "value") == [winner]


def test_key_is_found_in_old_and_new_partition_after_adding_partitions(store: Store) -> None:
    topic = store.create_topic("t")
    keys = [f"k{n}" for n in range(40)]
    topic.append(kafka(keys, ["old"] * 40, timestamp=times(*[0] * 40)))
    topic.alter(partitions=7)
    topic.append(kafka(keys[:20], ["new"] * 20, timestamp=times(*[1] * 20)))
    expected = {k.encode(): b"new" if n < 20 else b"old" for n, k in enumerate(keys)}
    for found in (topic.latest(), topic.latest(keys), topic.latest(keys[::-1] + keys)):
        assert dict(rows(found, "key", "value")) == expected
        assert found.num_rows == 40


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
def test_keys_can_be_lists_arrays_and_tables(store: Store, keys: Any) -> None:
    topic = store.create_topic("t", partitions=3)
    topic.append(kafka(["a", "b", "c"]))
    assert sorted(rows(topic.latest(keys), "key")) == [b"a", b"b"]


def test_empty_keys_give_no_records(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"]))
    assert topic.latest([]).num_rows == 0
    assert topic.latest([]).schema == topic.schema


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
    topic = store.create_topic(
        "t", partitions=3, schema={**schema, "v": pa.int64()}, key=names if len(names) > 1 else "k"
    )
    for value in range(3):
        keys = [one, two, one]
        table = pa.table(
            {
                **{
                    name: pa.array([key[i] for key in keys], schema[name])
                    for i, name in enumerate(names)
                },
                "v": [10 * value, 10 * value + 1, 10 * value + 2],
            }
        )
        topic.append(table)
    asked = [one, two] if len(names) > 1 else [one[0], two[0]]
    for found in (topic.latest(), topic.latest(asked)):
        assert {tuple(row[n] for n in names): row["v"] for row in rows(found)} == {one: 22, two: 21}
    assert rows(topic.latest(asked[:1]), "v") == [22]


def test_columns_without_the_key_can_be_selected(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a", "a"], ["1", "2"]))
    for keys in (None, ["a"]):
        found = topic.latest(keys, columns=["value"])
        assert rows(found) == [{"value": b"2"}]
        assert rows(topic.latest(keys, columns=["topic", "offset"])) == [
            {"topic": "t", "offset": 1}
        ]


def test_latest_of_an_older_version(store: Store) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"], ["1"]))
    topic.append(kafka(["a"], ["2"]))
    assert rows(topic.latest(version=1), "value") == [b"1"]
    assert rows(topic.latest(["a"], version=1), "value") == [b"1"]


def test_partitions_that_cannot_have_a_key_are_not_opened() -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured, in_files=True).create_topic("t", partitions=8)
    topic.append(kafka([f"k{n}" for n in range(500)]))
    measured.reset()
    assert rows(topic.latest(["k42"]), "key") == [b"k42"]
    (where,) = partition_for(key_bytes([pa.array([b"k42"])]), 8)
    assert [path.split("/")[1] for path in measured.opened] == [f"partition={where}"]


def test_search_stops_at_the_newest_segment_with_the_key() -> None:
    measured = CountingStore(MemoryStore())
    topic = make_store(measured, in_files=True).create_topic("t")
    for number in range(10):
        topic.append(kafka(["a", f"b{number}"], [str(number)] * 2))
    measured.reset()
    assert rows(topic.latest(["a"]), "value") == [b"9"]
    assert measured.counts["open_input"] == 1  # and its footer is read once


def test_statistics_and_bloom_filters_skip_row_groups() -> None:
    measured = CountingStore(MemoryStore())
    limits = Limits(row_group_rows=2000, footer_bytes=4096)  # the filters need a read of their own
    topic = make_store(measured, limits=limits, in_files=True).create_topic("t")
    chance = random.Random(5)
    keys = [chance.randbytes(16) for _ in range(16_000)]
    topic.append(kafka(keys, [chance.randbytes(60) for _ in keys]))
    size = rows(topic.segments(), "size_bytes")[0]
    measured.reset()
    assert topic.latest([bytes(16), b"\xff" * 17]).num_rows == 0
    by_statistics = sum(measured.bytes_read.values())
    measured.reset()
    assert topic.latest([chance.randbytes(16)]).num_rows == 0
    by_bloom = sum(measured.bytes_read.values())
    measured.reset()
    assert rows(topic.latest([keys[2500]]), "offset") == [2500]
    one_group = sum(measured.bytes_read.values())
    assert by_statistics < by_bloom < one_group < size / 2
    assert by_statistics < size / 10
    assert by_bloom < by_statistics + 16 * len(keys) / 2  # not the keys themselves


LATEST_PROGRAM = """
import sys
import pyarrow.parquet, pyarrow.compute
import pylogtable
from tests.memory import peak_bytes

topic = pylogtable.open(sys.argv[1]).topic("t")
before = peak_bytes()
found = topic.latest()
print(found.num_rows, found.nbytes, peak_bytes() - before)
"""


def test_memory_of_latest_depends_on_its_result_and_not_on_the_log(tmp_path: Path) -> None:
    """500 MB of records are read for a result of 1 MB."""
    topic = pylogtable.open(tmp_path).create_topic("t")
    rows_each, width, keys = 50_000, 1000, 1000
    for number in range(10):
        values = pa.array([b"%010d" % (number * rows_each + row) for row in range(rows_each)])
        padded = pc.binary_join_element_wise(values, b"x" * width, b"")
        topic.append(
            pa.table({"key": [b"%d" % (n % keys) for n in range(rows_each)], "value": padded})
        )
    done = subprocess.run(
        [sys.executable, "-c", LATEST_PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    count, size, grown = map(int, done.stdout.split())
    assert count == keys
    assert size < 2 << 20
    assert grown < 200 << 20, f"{grown >> 20} MiB more than before"
