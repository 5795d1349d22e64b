"""What an append accepts, where rows go, what they become, and what a repeat gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pylogtable import InvalidRequestError, SchemaMismatchError
from pylogtable.append import shaping
from pylogtable.append.shaping import STICKY_ROWS
from pylogtable.engine import plan_append
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import (
    EPOCH,
    T0,
    Clock,
    at,
    data_files,
    ints,
    kafka,
    limited,
    make_store,
    rows,
    times,
)

pytestmark = pytest.mark.records_in("commits", "files")

SIX = kafka(["21", "foobar", "abc", None, "21", "abc"], ["1", "2", "3", "4", "5", None])


class Streamable:
    """Not Arrow's own, and exports an Arrow stream all the same."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "chunked table": lambda table: pa.concat_tables([table.slice(0, 2), table.slice(2)]),
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=2),
    "list of batches": lambda table: table.to_batches(max_chunksize=2),
    "generator of batches": lambda table: iter(table.to_batches(max_chunksize=4)),
    "list of tables": lambda table: [table.slice(0, 1), table.slice(1)],
    "arrow stream": Streamable,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data_is_appended_alike(store: Store, form: str) -> None:
    topic = store.create_topic("t", partitions=3)
    result = topic.append(FORMS[form](SIX))
    assert result.records == 6
    by_row = sorted(rows(topic.read(), "value", "key"), key=str)
    assert by_row == sorted(rows(SIX, "value", "key"), key=str)


WEEK = 7 * 86_400_000


@pytest.mark.filterwarnings("error")
def test_expired_records_are_told_once_with_their_count_and_the_setting(store: Store) -> None:
    topic = store.create_topic("t")
    with pytest.warns(UserWarning, match="already older") as told:
        topic.append(kafka("abc", timestamp=times(-WEEK - 2, -WEEK - 9, -WEEK - 1)))
    topic.append(kafka("d", timestamp=times(-WEEK - 1)))
    (only,) = told
    assert only.filename == __file__
    assert str(only.message).startswith(
        f"3 of 3 records appended to {topic.url} are already older than retention.ms=604800000: "
        "the next retention removes them. To keep them, call topic.alter(config={'retention.ms': "
    )
    assert topic.apply_retention(dry_run=True).records_removed == 4
    with pytest.warns(UserWarning, match="1 of 1 records"):  # another handle
        store.topic("t").append(kafka("e", timestamp=times(-WEEK - 1)))


def test_expired_records_beside_newer_ones_are_told_too(store: Store) -> None:
    """Retention removes whole segments, so they stay as long as the newest of them."""
    topic = store.create_topic("t")
    with pytest.warns(UserWarning, match=r"^some of 2 records .* when all records of their files"):
        topic.append(kafka("ab", timestamp=times(-WEEK - 1, 0)))
    assert topic.apply_retention(dry_run=True).records_removed == 0


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup.policy": "compact"},
        {"retention.ms": -1},
        {"retention.ms": WEEK + 9},
        {"message.timestamp.type": "LogAppendTime"},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_nothing_is_told_where_nothing_expires(store: Store, config: dict[str, Any]) -> None:
    store.create_topic("t", config=config).append(kafka("a", timestamp=times(-WEEK - 1)))
    store.create_topic("fresh").append(kafka("ab", timestamp=times(-WEEK, 0)))


@pytest.mark.records_in("files")
def test_staged_and_produced_records_that_are_expired_are_told(store: Store) -> None:
    topic = store.create_topic("t")
    staged = [
        plan_append(topic).stage(kafka("ab", timestamp=times(-WEEK - 1, -WEEK - 1))),
        plan_append(topic).stage(SIX),
    ]
    with pytest.warns(UserWarning, match="2 of 8 records"):
        plan_append(topic).commit(staged)
    with (
        pytest.warns(UserWarning, match="1 of 1 records"),
        store.topic("t").producer() as producer,
    ):
        producer.send(key="a", timestamp=at(-WEEK - 1)).result()


@pytest.mark.filterwarnings("error")
def test_program_that_makes_errors_of_warnings_appends_nothing(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t")
    with pytest.raises(UserWarning, match="already older"):
        topic.append(kafka("a", timestamp=times(-WEEK - 1)))
    assert (topic.version, data_files(objects)) == (0, [])


@pytest.mark.parametrize(
    ("key", "partition"),
    [("21", 0), ("foobar", 0), ("a-little-bit-long-string", 2), ("abc", 3), ("", 3)],
)
def test_keys_go_to_the_partition_that_kafka_chooses(
    store: Store, key: str, partition: int
) -> None:
    """As Kafka's own partitioner does, over six partitions; the empty key is a key."""
    topic = store.create_topic("t", partitions=6)
    assert list(topic.append(kafka([key])).offsets) == [partition]


@pytest.mark.parametrize(
    "arrow",
    [
        pa.large_binary(),
        pa.binary_view(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.binary()),
    ],
    ids=str,
)
def test_other_layouts_of_text_and_bytes_fit_binary_columns(store: Store, arrow: Any) -> None:
    topic = store.create_topic("t", partitions=6)
    table = pa.table({"key": pa.array(["abc", "21", None]).cast(arrow), "value": [b"x"] * 3})
    topic.append(table)
    where = dict(rows(topic.read(), "key", "partition"))
    assert (where[b"abc"], where[b"21"]) == (3, 0)
    assert rows(topic.latest(["abc"]), "value") == [b"x"]


def test_batches_with_different_dictionaries_are_joined(store: Store) -> None:
    topic = store.create_topic("t", schema={"name": pa.string()})
    topic.append(
        [
            pa.record_batch({"name": pa.array(names).dictionary_encode()})
            for names in (["a", "b"], ["c", "b", None])
        ]
    )
    assert rows(topic.read(), "name") == ["a", "b", "c", "b", None]


def test_narrower_types_fit_and_missing_nullable_columns_are_null(store: Store) -> None:
    schema = {"id": pa.int64(), "price": pa.float64(), "note": pa.string(), "n": pa.int32()}
    topic = store.create_topic("t", schema=schema, key="id")
    topic.append(
        pa.table(
            {
                "n": pa.array([7], pa.uint16()),
                "id": pa.array([1], pa.int32()),
                "price": pa.array([0.5], pa.float32()),
            }
        )
    )
    table = topic.read(columns=list(schema)).read_all()
    assert table.schema.types == list(schema.values())
    assert rows(table) == [{"id": 1, "price": 0.5, "note": None, "n": 7}]


def test_a_column_of_untyped_nulls_fits_any_type(store: Store) -> None:
    topic = store.create_topic("t", schema={"a": pa.int64(), "b": pa.list_(pa.string())})
    topic.append(pa.table({"a": [1], "b": pa.nulls(1)}))
    assert rows(topic.read(), "a", "b") == [(1, None)]


def test_order_is_kept_inside_a_key_across_batches_and_appends(store: Store) -> None:
    topic = store.create_topic("t", partitions=3)
    keys = [f"k{number % 7}" for number in range(300)]
    values = [str(number) for number in range(300)]
    for start in range(0, 300, 100):
        part = kafka(keys[start : start + 100], values[start : start + 100])
        topic.append(part.to_batches(max_chunksize=13))
    for key in set(keys):
        mine = [int(v) for k, v in rows(topic.read(), "key", "value") if k == key.encode()]
        assert mine == [number for number in range(300) if f"k{number % 7}" == key]


def test_all_partitions_become_visible_in_one_commit(store: Store) -> None:
    topic = store.create_topic("t", partitions=4)
    result = topic.append(kafka(["a"] * 8, partition=ints(*range(4), *range(4))))
    assert result.version == 1 == topic.version
    assert topic.end_offsets() == dict.fromkeys(range(4), 2)
    assert topic.count(version=0) == 0


def test_append_result_has_version_offsets_records_bytes_and_segments(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", partitions=2)
    topic.append(kafka(["x"], partition=ints(1)))
    result = topic.append(kafka(["x", "y", "z"], partition=ints(1, 0, 1)))
    assert (result.version, result.offsets) == (2, {0: (0, 1), 1: (1, 3)})
    assert (result.records, result.segments, result.repeated) == (3, 2, False)
    sizes = topic.segments().to_pylist()
    assert result.size_bytes == sum(s["size_bytes"] for s in sizes if s["end_offset"] != 1) + next(
        s["size_bytes"] for s in sizes if s["partition"] == 0
    )
    assert result.seconds >= 0


@pytest.mark.parametrize(
    "empty",
    [kafka([]), kafka([]).to_reader(), [], iter([]), kafka([]).to_batches()],
    ids=["table", "reader", "list", "iterator", "batches"],
)
def test_an_empty_append_commits_nothing(store: Store, objects: MemoryStore, empty: Any) -> None:
    topic = store.create_topic("t")
    before = [info.key for info in objects.list()]
    result = topic.append(empty)
    assert (result.version, result.offsets, result.records, result.segments) == (0, {}, 0, 0)
    assert [info.key for info in objects.list()] == before


def test_an_empty_append_with_a_txn_is_remembered(store: Store) -> None:
    topic = store.create_topic("t")
    first = topic.append(kafka([]), txn=("app", 1))
    assert (first.version, first.offsets) == (1, {})
    again = topic.append(kafka(["a"]), txn=("app", 1))
    assert again.repeated
    assert topic.count() == 0


# --- partitions ---


def test_an_explicit_partition_wins_and_null_leaves_it_to_the_key(store: Store) -> None:
    topic = store.create_topic("t", partitions=6)
    topic.append(kafka(["abc", "abc", "21"], ["0", "1", "2"], partition=ints(5, None, None)))
    assert rows(topic.read(), "partition", "value") == [(0, b"2"), (3, b"1"), (5, b"0")]


@pytest.mark.parametrize("arrow", [pa.int8(), pa.int64(), pa.uint32(), pa.uint64()], ids=str)
def test_any_integer_type_names_a_partition(store: Store, arrow: Any) -> None:
    topic = store.create_topic("t", partitions=3)
    topic.append(kafka(["a"], partition=pa.array([2], arrow)))
    assert topic.end_offsets() == {0: 0, 1: 0, 2: 1}


def test_null_keys_of_small_appends_rotate_over_partitions(store: Store) -> None:
    topic = store.create_topic("t", partitions=4)
    for _ in range(40):
        assert len(topic.append(kafka([None] * 5)).offsets) == 1
    assert topic.end_offsets() == dict.fromkeys(range(4), 50)


@pytest.mark.parametrize("chunk_rows", [1 << 20, STICKY_ROWS])
def test_null_keys_of_one_large_append_are_spread_evenly(store: Store, chunk_rows: int) -> None:
    store = limited(store, chunk_rows=chunk_rows)
    topic = store.create_topic("t", partitions=4)
    count = STICKY_ROWS * 16
    topic.append(kafka([None] * count, [b"v"] * count))
    ends = topic.end_offsets().values()
    assert sum(ends) == count
    assert max(ends) - min(ends) <= STICKY_ROWS


def test_a_topic_without_a_key_spreads_rows_like_null_keys(store: Store) -> None:
    topic = store.create_topic("t", partitions=2, schema={"n": pa.int64()})
    for number in range(4):
        topic.append(pa.table({"n": [number]}))
    assert topic.end_offsets() == {0: 2, 1: 2}


# --- timestamps and headers ---


def test_given_timestamps_are_kept_and_null_ones_are_the_time_of_the_append(
    store: Store, clock: Clock
) -> None:
    topic = store.create_topic("t")
    clock.tick(77)
    topic.append(kafka(["a", "b"], timestamp=times(-5, None)))
    topic.append(kafka(["c"]))
    assert rows(topic.read(), "timestamp") == [at(-5), at(77), at(77)]
    assert rows(topic.read(columns=["timestampType"]), "timestampType") == [0, 0, 0]


def test_log_append_time_overrides_given_timestamps(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    clock.tick(5)
    topic.append(kafka(["a", "b"], timestamp=times(-5, None)))
    topic.alter(config={"message.timestamp.type": "CreateTime"})
    topic.append(kafka(["c"], timestamp=times(-7)))
    assert rows(topic.read(columns=["timestamp", "timestampType"]), "timestamp", "timestampType")[
        :
    ] == [(at(5), 1), (at(5), 1), (at(-7), 0)]


@pytest.mark.parametrize(
    ("unit", "zone", "value", "expected_us"),
    [
        ("ms", "UTC", T0 + 1, (T0 + 1) * 1000),
        ("s", "UTC", T0 // 1000, T0 // 1000 * 1_000_000),
        ("ns", "UTC", T0 * 1_000_000 + 1999, T0 * 1000 + 1),
        ("us", "Asia/Tokyo", T0 * 1000 + 3, T0 * 1000 + 3),
        ("ns", "+02:00", T0 * 1_000_000, T0 * 1000),
    ],
)
def test_timestamps_of_any_unit_and_zone_become_utc_microseconds(
    store: Store, unit: str, zone: str, value: int, expected_us: int
) -> None:
    topic = store.create_topic("t")
    topic.append(kafka(["a"], timestamp=pa.array([value], pa.timestamp(unit, tz=zone))))
    table = topic.read(columns=["timestamp"]).read_all()
    assert table.schema.field(0).type == pa.timestamp("us", tz="UTC")
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [expected_us]


def test_headers_keep_their_order_duplicates_and_null_values(store: Store) -> None:
    topic = store.create_topic("t")
    given = [
        [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b""}],
        [],
        None,
    ]
    headers = pa.array(given, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    topic.append(kafka(["x", "y", "z"], headers=headers))
    assert rows(topic.read(), "headers") == given


def test_tombstones_are_counted_where_all_values_of_a_key_are_null(store: Store) -> None:
    schema = {"id": pa.int64(), "a": pa.string(), "b": pa.string()}
    topic = store.create_topic("t", schema=schema, key="id")
    topic.append(
        pa.table(
            {"id": [1, 2, None, 4], "a": ["x", None, None, None], "b": [None, None, None, "y"]}
        )
    )
    assert rows(topic.segments(), "tombstones") == [1]


# --- txns ---


def test_a_repeated_txn_appends_nothing_and_returns_the_first_offsets(
    store: Store, objects: MemoryStore
) -> None:
    """The duplicate is a success with the original offsets."""
    topic = store.create_topic("t")
    firsts = [topic.append(kafka(["a"] * (n + 1)), txn=("app", n)) for n in range(8)]
    files = data_files(objects)
    for handle in (topic, store.topic("t")):
        for n in (7, 2, 0, 5):
            again = handle.append(kafka(["other"] * 9), txn=("app", n))
            assert again.repeated
            assert (again.version, again.offsets) == (firsts[n].version, firsts[n].offsets)
            assert again.records == n + 1
    assert data_files(objects) == files
    assert topic.version == 8


def test_an_older_txn_that_was_never_applied_is_refused(store: Store) -> None:
    """Out of order."""
    topic = store.create_topic("t")
    topic.append(kafka(["a"]), txn=("app", 3))
    topic.append(kafka(["a"]), txn=("app", 7))
    for version in (0, 2, 5):
        with pytest.raises(InvalidRequestError, match=rf"txn {version} of app id 'app'.*last_txn"):
            topic.append(kafka(["b"]), txn=("app", version))
    assert topic.append(kafka(["b"]), txn=("other", 0)).version == 3


def test_txns_are_known_after_a_root_and_to_a_stale_handle(store: Store) -> None:
    topic, stale = store.create_topic("t"), store.topic("t")
    first = topic.append(kafka(["a"]), txn=("app", 1))
    for _ in range(80):
        topic.append(kafka(["b"]))
    again = stale.append(kafka(["a"]), txn=("app", 1))
    assert again.repeated
    assert again.offsets == first.offsets
    assert store.topic("t").append(kafka(["a"]), txn=("app", 1)).repeated


# --- two halves, two writers ---


@pytest.mark.records_in("files")
def test_writer_that_loses_a_race_keeps_its_files_and_shifts_their_offsets(
    store: Store, objects: MemoryStore
) -> None:
    topic, other = store.create_topic("t"), store.topic("t")
    staged = plan_append(topic).stage(kafka(["a", "b"], ["0", "1"]))
    other.append(kafka(["c"] * 3, ["x", "y", "z"]))
    before = {key: objects.read(key) for key in data_files(objects)}
    result = plan_append(topic).commit([staged], txn=("app", 0))
    assert result.offsets == {0: (3, 5)}
    assert {key: objects.read(key) for key in data_files(objects)} == before
    assert rows(topic.segments(), "base_offset", "shift") == [(0, 0), (3, 3)]
    assert rows(topic.read(start=2), "offset", "value") == [(2, b"z"), (3, b"0"), (4, b"1")]
    assert topic.verify(data=True)


def test_staged_parts_are_committed_in_the_order_given(store: Store) -> None:
    topic = store.create_topic("t")
    one, two = (
        plan_append(topic).stage(kafka(["a"], ["1"])),
        plan_append(topic).stage(kafka(["a"], ["2"])),
    )
    plan_append(topic).commit([two, one])
    assert rows(topic.read(), "value") == [b"2", b"1"]


@pytest.mark.records_in("files")
def test_discarded_files_are_gone(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t")
    staged = plan_append(topic).stage(kafka(["a"]))
    assert len(data_files(objects)) == 1
    plan_append(topic).discard([staged])
    assert data_files(objects) == []


def test_appends_interleave_from_many_handles_without_loss(objects: MemoryStore) -> None:
    store = make_store(objects)
    store.create_topic("t")
    handles = [store.topic("t") for _ in range(5)]
    for number in range(50):
        handles[number * 3 % 5].append(kafka(["k"], [str(number)]))
    assert rows(handles[0].read(), "offset", "value") == [
        (number, str(number).encode()) for number in range(50)
    ]


def test_rows_of_a_generator_are_appended_as_they_come(store: Store, clock: Clock) -> None:
    topic = store.create_topic("t", schema={"n": pa.int64(), "when": pa.timestamp("us")})

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            moment = (EPOCH + timedelta(days=number)).replace(tzinfo=None)
            yield pa.record_batch({"n": [number], "when": pa.array([moment], pa.timestamp("us"))})

    topic.append(batches())
    assert rows(topic.read(), "n") == list(range(5))
    assert rows(topic.read(), "when")[4] == datetime(1970, 1, 5, tzinfo=timezone.utc).replace(
        tzinfo=None
    )


def test_a_missing_struct_may_have_required_fields(store: Store) -> None:
    topic = store.create_topic("t", 1, {"k": "bigint", "v": "int"}, "k")
    topic.append(pa.table({"k": [1, 2]}))
    topic.alter(add_columns={"x": "struct<a:int not null, s:struct<b:string not null>>"})
    topic.append(pa.table({"k": [3]}))
    topic.merge()
    topic.erase(keys=[1])
    found = topic.read(columns=["k", "x"]).read_all()
    assert found.to_pylist() == [{"k": 2, "x": None}, {"k": 3, "x": None}]
    assert topic.verify(data=True)


def hidden(kind: pa.DataType, count: int) -> pa.Array:
    """Null structs whose fields are null too, as Spark sends them. Arrow finds them valid."""
    fields = [pa.nulls(count, field.type) for field in kind]
    array = pa.StructArray.from_arrays(fields, fields=list(kind), mask=pa.array([True] * count))
    array.validate(full=True)
    return array


INNER = pa.struct([pa.field("b", pa.string(), nullable=False)])
REQUIRED = pa.struct(
    [
        pa.field("a", pa.int32(), nullable=False),
        pa.field("s", INNER, nullable=False),
        pa.field("l", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
        pa.field("n", pa.float64()),
    ]
)
NULLABLE = pa.struct(
    [("a", pa.int32()), ("s", INNER), ("l", pa.list_(pa.int64())), ("n", pa.float64())]
)
WHOLE = {"a": 1, "s": {"b": "x"}, "l": [1], "n": None}


@pytest.mark.parametrize("inline_bytes", [0, 10_000])
@pytest.mark.parametrize("given", [REQUIRED, NULLABLE], ids=["same type", "nullable fields"])
@pytest.mark.parametrize("wrap", ["struct", "list", "map"])
def test_a_null_struct_may_have_nulls_inside(
    store: Store, inline_bytes: int, given: pa.DataType, wrap: str
) -> None:
    mixed = pa.concat_arrays([hidden(given, 2), pa.array([WHOLE], given), hidden(given, 1)])
    ends = pa.array([0, 1, None, 3, 4], pa.int32())
    columns: dict[str, pa.Array] = {
        "struct": mixed,
        "list": pa.ListArray.from_arrays(ends, mixed),
        "map": pa.MapArray.from_arrays(ends, pa.array(list("abcd")), mixed),
    }
    topic_types = {
        "struct": REQUIRED,
        "list": pa.list_(REQUIRED),
        "map": pa.map_(pa.string(), REQUIRED),
    }
    column = columns[wrap].slice(1)
    schema = pa.schema([("k", pa.int64()), ("x", topic_types[wrap])])
    topic = store.create_topic("t", 1, schema, "k", config={"inline.max.bytes": inline_bytes})
    data = pa.table({"k": [1, 2, 3], "x": column})
    for _ in range(2):
        topic.append(data)
    topic.merge()
    assert rows(topic.read(), "x") == column.to_pylist() * 2
    assert topic.verify(data=True)


@pytest.mark.parametrize("given", [REQUIRED, NULLABLE], ids=["same type", "nullable fields"])
def test_a_required_field_that_everybody_sees_must_not_be_null(
    store: Store, given: pa.DataType
) -> None:
    fields = [pa.nulls(1, field.type) for field in given]
    seen = pa.StructArray.from_arrays(fields, fields=list(given))
    topic = store.create_topic("t", 1, pa.schema([("x", REQUIRED)]))
    with pytest.raises(SchemaMismatchError, match=r"column 'x': .*field 'a' .*has nulls"):
        topic.append(pa.table({"x": pa.concat_arrays([hidden(given, 1), seen])}))
    assert topic.version == 0


def test_a_commit_of_an_older_writer_may_have_nulls_inside_of_nulls(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"inline.max.bytes": 10_000}
    topic = store.create_topic("t", 1, pa.schema([("x", REQUIRED)]), config=config)
    with monkeypatch.context() as older:
        older.setattr(shaping, "cast_without_hidden_nulls", lambda column, _: column)
        topic.append(pa.table({"x": hidden(REQUIRED, 2)}))
    topic.append(pa.table({"x": [WHOLE]}, pa.schema([("x", REQUIRED)])))
    topic.merge()
    assert rows(topic.read(), "x") == [None, None, WHOLE]
    assert topic.verify(data=True)


def test_nulls_that_an_older_writer_should_have_refused_are_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"inline.max.bytes": 10_000}
    schema = pa.schema([("k", pa.int64()), ("x", INNER)])
    topic = store.create_topic("t", 1, schema, config=config)
    seen = pa.StructArray.from_arrays([pa.nulls(1, pa.string())], fields=list(INNER))
    with monkeypatch.context() as older:
        older.setattr(shaping, "cast_without_hidden_nulls", lambda column, _: column)
        topic.append(pa.table({"k": [1], "x": seen}))
    topic.append(pa.table({"k": [2], "x": [{"b": "x"}]}, schema))
    assert rows(topic.read(), "x") == [{"b": None}, {"b": "x"}]
    (problem,) = topic.verify(data=True).problems
    assert (problem.rule, problem.path) == ("SEG-3", topic.segments()["path"][0].as_py())
    with pytest.raises(SchemaMismatchError, match=r"'b' .* erase removes them"):
        topic.merge()
    topic.erase(where=pc.field("k") == 1)
    topic.merge()
    assert rows(topic.read(), "x") == [{"b": "x"}]
    assert topic.verify(data=True)


def test_an_append_that_is_refused_for_expired_records_is_refused_again(store: Store) -> None:
    topic = store.create_topic("t", 1, {"n": pa.int64()})
    old = pa.table({"n": [1], "timestamp": pa.array([0], pa.timestamp("us", "UTC"))})
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="already older than"):
                topic.append(old)
    assert topic.count() == 0
