"""Invalid calls raise the right error class with a clear message, and write nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pylogtable
from pylogtable import (
    InvalidRequestError,
    LogTableError,
    OffsetOutOfRangeError,
    SchemaMismatchError,
    Topic,
    TopicExistsError,
    TopicNotFoundError,
)
from pylogtable.engine import Scan, plan_append
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import contents, ints, kafka, limited

TABLE = {"id": pa.int64(), "amount": pa.int32(), "note": pa.string()}
STRICT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int32())])
NOT_UTF8 = pa.array([b"good", b"\xff"]).view(pa.string())


@pytest.fixture
def kafka_topic(store: Store) -> Topic:
    topic = store.create_topic("kafka", partitions=3)
    topic.append(kafka(["a"] * 10, partition=ints(*[0] * 10)))
    topic.delete_records({0: 2})
    return topic


@pytest.fixture
def table_topic(store: Store) -> Topic:
    return store.create_topic("table", partitions=3, schema=TABLE, key="id")


@pytest.fixture
def strict_topic(store: Store) -> Topic:
    return store.create_topic("strict", schema=STRICT, key="id")


@pytest.fixture
def compacted_topic(store: Store) -> Topic:
    return store.create_topic("compacted", config={"cleanup.policy": "compact"})


def refused(
    objects: MemoryStore, error: type[Exception], message: str, call: Callable[[], Any]
) -> None:
    before = contents(objects)
    with pytest.raises(error, match=message) as raised:
        call()
    assert type(raised.value) is error
    assert contents(objects) == before


def batches_then(problem: Callable[[], Any], good: int = 3) -> Iterator[Any]:
    for _ in range(good):
        yield pa.record_batch({"key": [b"a"], "value": [b"b"]})
    yield problem()


Append = tuple[str, type[Exception], str, Any]
APPENDS: list[Append] = [
    ("kafka", SchemaMismatchError, r"no column 'valeu'; did you mean 'value'\?.*alter", {"valeu": [b""]}),  # noqa: E501
    ("kafka", SchemaMismatchError, r"no column 'zzz'; it has key, value, headers", {"zzz": [1]}),
    ("kafka", SchemaMismatchError, r"'value' is double .*the topic has binary; cast", {"value": [1.5]}),  # noqa: E501
    ("kafka", SchemaMismatchError, r"'offset' is given by the log.*drop it", {"offset": [1]}),
    ("kafka", SchemaMismatchError, r"'topic' is given by the log", {"topic": ["t"]}),
    ("kafka", SchemaMismatchError, r"'timestamp' is int64; .*time zone", {"timestamp": [1]}),
    (
        "kafka",
        SchemaMismatchError,
        r"'timestamp' is timestamp\[us\]; .*tz=UTC",
        {"timestamp": pa.array([1], pa.timestamp("us"))},
    ),
    ("kafka", SchemaMismatchError, r"'partition' is string; .*integer", {"partition": ["0"]}),
    (
        "kafka",
        InvalidRequestError,
        r"row 1: partition 3 is out of range: the topic has 3 partition\(s\), 0 to 2",
        {"partition": [0, 3]},
    ),
    ("kafka", InvalidRequestError, r"row 0: partition -1 is out of range", {"partition": [-1]}),
    ("kafka", InvalidRequestError, r"row 0: partition 4294967296 ", {"partition": [2**32]}),
    (
        "kafka",
        InvalidRequestError,
        r"row 0: partition 9223372036854775808 ",
        {"partition": pa.array([2**63], pa.uint64())},
    ),
    ("table", SchemaMismatchError, r"'amount' is bigint .*the topic has int;", {"amount": [1]}),
    (
        "table",
        SchemaMismatchError,
        r"'note' is struct<a:array<int>,b:map<string,bigint>> \(Arrow .*the topic has string",
        {"note": pa.array([{"a": [1]}], pa.struct({"a": pa.list_(pa.int32()), "b": pa.map_(pa.string(), pa.int64())}))},  # noqa: E501
    ),
    ("table", SchemaMismatchError, r"'note' is binary .*the topic has string", {"note": [b"x"]}),
    ("table", SchemaMismatchError, r"'note'.*list<", {"note": [[1]]}),
    (
        "table",
        SchemaMismatchError,
        r"column 'amount': a topic cannot have a column of Arrow type uint64",
        {"amount": pa.array([1], pa.uint64())},
    ),
    ("table", SchemaMismatchError, r"'note' is not valid: .*UTF8.*binary", {"note": NOT_UTF8}),
    (
        "table",
        SchemaMismatchError,
        r"'note' is not valid: .*UTF8",
        {"note": NOT_UTF8.dictionary_encode()},
    ),
    (
        "table",
        SchemaMismatchError,
        r"'note' is not valid: .*ut of bounds",
        {
            "note": pa.DictionaryArray.from_arrays(
                pa.array([0, 7], pa.int8()), pa.array(["x", "y"]), safe=False
            )
        },
    ),
    ("strict", SchemaMismatchError, r"column\(s\) id must not be missing or null", {"amount": ints(1)}),  # noqa: E501
    ("strict", SchemaMismatchError, r"row 2: column 'id' must not be null", {"id": [1, 2, None]}),
    (
        "compacted",
        InvalidRequestError,
        r"row 1: .* without a key: 2 row\(s\) have none",
        {"key": [b"a", None, b"b", None]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "error", "message", "columns"), APPENDS, ids=[f"{a[0]}-{a[2][:30]}" for a in APPENDS]
)
@pytest.mark.parametrize("form", ["table", "batches"])
def test_records_that_do_not_fit_the_schema_are_refused(
    request: pytest.FixtureRequest,
    objects: MemoryStore,
    name: str,
    error: type[Exception],
    message: str,
    columns: Any,
    form: str,
) -> None:
    topic = request.getfixturevalue(f"{name}_topic")
    table = pa.table(columns)
    data = table if form == "table" else table.to_batches()
    refused(objects, error, message, lambda: topic.append(data))
    refused(objects, error, message, lambda: topic.append(data, txn=("app", 1)))


def test_duplicate_column_is_refused(kafka_topic: Topic, objects: MemoryStore) -> None:
    twice = pa.Table.from_arrays([pa.array([b"a"])] * 2, names=["key", "key"])
    refused(objects, SchemaMismatchError, "twice: key", lambda: kafka_topic.append(twice))


@pytest.mark.parametrize(
    ("problem", "error", "message"),
    [
        (
            lambda: pa.record_batch({"key": [b"a"], "velue": [b"b"]}),
            SchemaMismatchError,
            "did you mean 'value'",
        ),
        (
            lambda: pa.record_batch({"key": [b"a", b"a"], "partition": [0, 9]}),
            InvalidRequestError,
            "row 4: partition 9 ",
        ),
        (lambda: {"key": b"a"}, SchemaMismatchError, "cannot append dict among batches"),
        (lambda: 1 // 0, ZeroDivisionError, "division"),
    ],
    ids=["column", "partition", "type", "raises"],
)
def test_bad_later_batch_leaves_no_files(
    kafka_topic: Topic, objects: MemoryStore, problem: Any, error: type[Exception], message: str
) -> None:
    refused(objects, error, message, lambda: kafka_topic.append(batches_then(problem)))


@pytest.mark.parametrize("chunk_rows", [1, 1 << 20])
def test_null_key_in_a_later_batch_is_named_by_its_row_and_leaves_no_files(
    compacted_topic: Topic,
    objects: MemoryStore,
    chunk_rows: int,
) -> None:
    compacted_topic = limited(compacted_topic, chunk_rows=chunk_rows, row_group_rows=1)
    late = pa.record_batch({"key": pa.array([b"x", None], pa.binary()), "value": [b"", b""]})
    reader = pa.RecordBatchReader.from_batches(late.schema, batches_then(lambda: late))
    refused(
        objects,
        InvalidRequestError,
        r"row 4: .*: 1 row\(s\) have none",
        lambda: compacted_topic.append(reader),
    )


@pytest.mark.parametrize("roll", [14, 2**30], ids=["many files", "one file"])
def test_iterable_that_raises_midway_leaves_no_files(
    store: Store, objects: MemoryStore, roll: int
) -> None:
    store = limited(store, chunk_rows=1, row_group_rows=1)
    topic = store.create_topic("t", partitions=2, config={"segment.bytes": roll})
    refused(
        objects,
        ZeroDivisionError,
        "division",
        lambda: topic.append(batches_then(lambda: 1 // 0, good=20)),
    )
    assert topic.append(kafka(["a"])).version == 1


@pytest.mark.parametrize("data", [7, None, "rows", b"rows", {"key": [b"a"]}], ids=repr)
def test_data_that_is_not_arrow_is_refused(
    kafka_topic: Topic, objects: MemoryStore, data: Any
) -> None:
    message = f"cannot append {type(data).__name__}: give an Arrow table"
    refused(objects, SchemaMismatchError, message, lambda: kafka_topic.append(data))


@pytest.mark.parametrize(
    "txn",
    [
        ("app",),
        ("", 1),
        ("app", -1),
        ("app", "1"),
        (1, "app"),
        "app",
        ("a", 1, 2),
        ("a", 1.0),
        ("a", True),
        ("a", 2**63),
    ],
)
def test_malformed_txn_is_refused(kafka_topic: Topic, objects: MemoryStore, txn: Any) -> None:
    refused(
        objects,
        InvalidRequestError,
        r"txn must be \(app_id, version from 0 to 2\*\*63 - 1\), not " + re.escape(repr(txn)),
        lambda: kafka_topic.append(kafka(["a"]), txn=txn),
    )


@pytest.mark.parametrize("last", [-1, "7", True, 1.0, (1,)], ids=repr)
def test_malformed_expected_last_is_refused(
    kafka_topic: Topic, objects: MemoryStore, last: Any
) -> None:
    message = "`expected_last` must be a whole number, 0 or more, not " + re.escape(repr(last))
    calls: list[Callable[[], object]] = [
        lambda: kafka_topic.append(kafka(["a"]), txn=("app", 1), expected_last=last),
        lambda: plan_append(kafka_topic).commit([], txn=("app", 1), expected_last=last),
        lambda: plan_append(kafka_topic).find_txn("app", 1, expected_last=last),
    ]
    for call in calls:
        refused(objects, InvalidRequestError, message, call)


@pytest.mark.parametrize("last", [None, 7])
def test_expected_last_without_a_txn_is_refused(
    kafka_topic: Topic, objects: MemoryStore, last: int | None
) -> None:
    message = f"expected_last={last} is given without a txn"
    for call in (
        lambda: kafka_topic.append(kafka(["a"]), expected_last=last),
        lambda: plan_append(kafka_topic).commit([], expected_last=last),
    ):
        refused(objects, InvalidRequestError, message, call)


READS: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (OffsetOutOfRangeError, r"offset 11 of partition 0.*\[2, 10\)", {"partition": 0, "start": 11}),
    (OffsetOutOfRangeError, r"offset 11 of partition 0", {"partition": 0, "end": 11}),
    (OffsetOutOfRangeError, r"offset 1 of partition 0.*\[2, 10\)", {"partition": 0, "start": 1}),
    (OffsetOutOfRangeError, r"offset 0 of partition 0", {"partition": 0, "end": 0}),
    (OffsetOutOfRangeError, r"offset -1 of partition 0", {"partition": 0, "start": -1}),
    (OffsetOutOfRangeError, r"offset 5 of partition 1", {"start": 5}),
    (OffsetOutOfRangeError, r"offset 99 of partition 0", {"start": {0: 99}}),
    (InvalidRequestError, "start 6 is greater than end 4", {"partition": 0, "start": 6, "end": 4}),
    (InvalidRequestError, "no partition 3; the topic has 3, 0 to 2", {"partition": 3}),
    (InvalidRequestError, "no partition -1", {"partition": -1}),
    (InvalidRequestError, "no partition 7", {"partition": [0, 7]}),
    (InvalidRequestError, "no partition 7", {"start": {7: 0}}),
    (InvalidRequestError, "no column 'valeu'; the topic has partition,", {"columns": ["valeu"]}),
    (InvalidRequestError, "named twice in `columns`: key, key", {"columns": ["key", "key"]}),
    (InvalidRequestError, "has no time zone", {"start": datetime(2024, 1, 1)}),
    (InvalidRequestError, "'newest' is not a position", {"start": "newest"}),
    (InvalidRequestError, "True is not a position", {"partition": 0, "end": True}),
    (InvalidRequestError, "1.5 is not a position", {"partition": 0, "start": 1.5}),
    (InvalidRequestError, "None is not a position", {"start": {0: None}}),
    (InvalidRequestError, "True is not a position", {"start": {0: True}}),
    (InvalidRequestError, "None is not a position", {"start": {"*": None}}),
    (InvalidRequestError, "no partition 'all'", {"start": {"all": 0}}),
    (InvalidRequestError, "'--5' is not a position", {"start": "--5"}),
    (OffsetOutOfRangeError, r"offset 11 of partition 0", {"partition": 0, "end": "11"}),
    (InvalidRequestError, "'1y' is not a duration", {"start": "1y"}),
    (InvalidRequestError, "is negative", {"start": timedelta(seconds=-1)}),
    (InvalidRequestError, "has no time zone; write 2024-05-01T00:00:00Z", {"end": "2024-05-01"}),
    (InvalidRequestError, "'2024-13-01' is not a time", {"end": "2024-13-01"}),
    (InvalidRequestError, "'0' is not a partition", {"partition": "0"}),
    (InvalidRequestError, "`columns` is empty", {"columns": []}),
    (InvalidRequestError, r"a list of names: \['value'\]", {"columns": "value"}),
    (InvalidRequestError, "'1' is not a version", {"version": "1"}),
    (InvalidRequestError, "True is not a version", {"version": True}),
    (InvalidRequestError, "no version 99; the newest is 2", {"version": 99}),
    (InvalidRequestError, "no version -1", {"version": -1}),
    (InvalidRequestError, "has no time zone", {"version": datetime(2024, 1, 1)}),
]


@pytest.mark.parametrize(("error", "message", "asked"), READS, ids=[str(r[2]) for r in READS])
def test_invalid_reads_are_refused_before_reading(
    kafka_topic: Topic,
    objects: MemoryStore,
    error: type[Exception],
    message: str,
    asked: dict[str, Any],
) -> None:
    refused(objects, error, message, lambda: kafka_topic.read(**asked))


@pytest.mark.parametrize("when", [datetime(2024, 1, 1), "now", 1.5, True, None], ids=str)
def test_invalid_time_is_refused(kafka_topic: Topic, objects: MemoryStore, when: Any) -> None:
    for call in (kafka_topic.offsets_for_time, kafka_topic.version_at):
        refused(objects, InvalidRequestError, "no time zone|is not a time", lambda c=call: c(when))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([None], "null key cannot be looked up"),
        ([1.5], "do not fit key column 'id'"),
        (["x"], "do not fit key column 'id'"),
        ([(1, 2)], r"must have 1 part\(s\): id"),
        (7, "must be a list of keys"),
        ("abc", "must be a list of keys"),
        (pa.table({"x": [1]}), r"has no key column\(s\) id"),
    ],
    ids=str,
)
def test_keys_of_wrong_shape_or_type_are_refused(
    table_topic: Topic, objects: MemoryStore, keys: Any, message: str
) -> None:
    refused(objects, InvalidRequestError, message, lambda: table_topic.latest(keys))


def test_latest_needs_a_key(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", schema={"n": pa.int64()})
    refused(objects, InvalidRequestError, "'t' has no key columns", topic.latest)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "/a",
        "a/",
        "../a",
        "a\\b",
        "höhe",
        "a b",
        "a" * 250,
        "a\n",
        "a\0",
        "a:b",
    ],
)
@pytest.mark.parametrize("call", ["create_topic", "topic", "delete_topic"])
def test_invalid_names_are_refused(
    store: Store, objects: MemoryStore, name: str, call: str
) -> None:
    refused(
        objects,
        InvalidRequestError,
        re.escape(f"topic name {name!r} is not allowed: 1 to 249 characters"),
        lambda: getattr(store, call)(name),
    )


Create = tuple[str, dict[str, Any]]
CREATES: list[Create] = [
    ("1 to 10000 partitions, not 0", {"partitions": 0}),
    ("1 to 10000 partitions, not -1", {"partitions": -1}),
    ("1 to 10000 partitions, not 10001", {"partitions": 10_001}),
    ("whole number, not 2.5", {"partitions": 2.5}),
    ("whole number, not True", {"partitions": True}),
    ("unknown topic config 'retention.mz'; did you mean 'retention.ms'", {"config": {"retention.mz": 1}}),  # noqa: E501
    ("unknown topic config 'qqq'; known: cleanup.policy", {"config": {"qqq": 1}}),
    ("retention.ms='soon': is not a whole number", {"config": {"retention.ms": "soon"}}),
    ("retention.ms='-2': must be -1 to 9223372036854775807", {"config": {"retention.ms": -2}}),
    ("cleanup.policy='purge': must be delete", {"config": {"cleanup.policy": "purge"}}),
    ("cleanup.policy='': must be delete", {"config": {"cleanup.policy": ""}}),
    ("ratio='1.1': must be between 0 and 1", {"config": {"min.cleanable.dirty.ratio": 1.1}}),
    ("type='brotli': must be one of", {"config": {"compression.type": "brotli"}}),
    ("segment.bytes='13': must be 14 to 9223372036854775807", {"config": {"segment.bytes": 13}}),
    (
        "min.compaction.lag.ms 5 is greater than max.compaction.lag.ms 4",
        {"config": {"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4}},
    ),
    ("unknown column type 'decimal(3,9)'", {"schema": {"a": pa.decimal128(3, 9)}}),
    ("unknown column type {'type': 'struct', 'fields': []}", {"schema": {"a": pa.struct([])}}),
    ("retention.ms='1_000': is not a whole number", {"config": {"retention.ms": "1_000"}}),
    ("offset belong to the log itself", {"schema": {"a": pa.int64(), "offset": pa.int64()}}),
    ("timestampType, topic belong", {"schema": {"timestampType": pa.int32(), "topic": pa.string()}}),  # noqa: E501
    ("'headers' is for record headers", {"schema": {"headers": pa.string()}}),
    ("at least one column", {"schema": {}}),
    ("a column name is empty", {"schema": {"": pa.int64(), "a": pa.int64()}}),
    ("occur twice: a", {"schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])}),
    ("key column 'b' is not among a", {"schema": {"a": pa.int64()}, "key": "b"}),
    ("key columns occur twice: a, a", {"schema": {"a": pa.int64()}, "key": ["a", "a"]}),
    ("key column 'a' is double; a key is made of", {"schema": {"a": pa.float64()}, "key": "a"}),
    ("key column 'a' is array<int>; a key is", {"schema": {"a": pa.list_(pa.int32())}, "key": "a"}),
    (
        "a compacted topic needs a key",
        {"schema": {"a": pa.int64()}, "config": {"cleanup.policy": "compact"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "asked"), CREATES, ids=[c[0][:40] for c in CREATES])
def test_invalid_topics_are_not_created(
    store: Store, objects: MemoryStore, message: str, asked: dict[str, Any]
) -> None:
    refused(
        objects, InvalidRequestError, re.escape(message), lambda: store.create_topic("t", **asked)
    )


def test_unsupported_column_type_is_refused(store: Store, objects: MemoryStore) -> None:
    refused(
        objects,
        SchemaMismatchError,
        "column 'a': a topic cannot have a column of Arrow type time64",
        lambda: store.create_topic("t", schema={"a": pa.time64("us")}),
    )


def test_existing_or_colliding_name_is_refused(store: Store, objects: MemoryStore) -> None:
    store.create_topic("a.b")
    refused(
        objects, TopicExistsError, "open it with store.topic", lambda: store.create_topic("a.b")
    )
    refused(
        objects,
        InvalidRequestError,
        "'a_b' collides with existing topic 'a.b'",
        lambda: store.create_topic("a_b"),
    )


def test_error_for_missing_topic_says_how_to_create_it(store: Store, objects: MemoryStore) -> None:
    refused(objects, TopicNotFoundError, r"create_topic\('t'", lambda: store.topic("t"))
    refused(objects, TopicNotFoundError, "no topic at memory", lambda: store.delete_topic("t"))


Alter = tuple[str, str, dict[str, Any]]
ALTERS: list[Alter] = [
    ("kafka", "already has 3 partition(s)", {"partitions": 3}),
    ("kafka", "currently has 3 partition(s); 2 would not be an increase", {"partitions": 2}),
    ("kafka", "1 to 10000 partitions, not 0", {"partitions": 0}),
    ("kafka", "nothing to alter", {}),
    ("kafka", "did you mean 'retention.ms'", {"config": {"retention.sm": None}}),
    ("kafka", "is not a whole number", {"config": {"retention.ms": "x"}}),
    ("kafka", "already has a column 'value'", {"add_columns": {"value": pa.int64()}}),
    ("kafka", "partition belong to the log", {"add_columns": {"partition": pa.int64()}}),
    ("kafka", "a column name is empty", {"add_columns": {"": pa.int64()}}),
    ("table", "a column name is empty", {"rename_columns": {"note": ""}}),
    (
        "kafka",
        "column 'n' must be nullable: older records have no value for it",
        {"add_columns": pa.schema([pa.field("n", pa.int64(), nullable=False)])},
    ),
    ("table", "'amount' cannot be widened from int to smallint", {"widen_columns": {"amount": pa.int16()}}),  # noqa: E501
    ("table", "'amount' cannot be widened from int to string", {"widen_columns": {"amount": pa.string()}}),  # noqa: E501
    ("table", "'amount' cannot be widened from int to struct<a:bigint>", {"widen_columns": {"amount": "struct<a:bigint>"}}),  # noqa: E501
    ("table", "no column 'x' to widen", {"widen_columns": {"x": pa.int64()}}),
    ("strict", "key column 'id' cannot be widened", {"widen_columns": {"id": pa.int64()}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "message", "asked"), ALTERS, ids=[a[1][:40] for a in ALTERS])
def test_invalid_alterations_are_refused(
    request: pytest.FixtureRequest,
    objects: MemoryStore,
    name: str,
    message: str,
    asked: dict[str, Any],
) -> None:
    topic = request.getfixturevalue(f"{name}_topic")
    refused(objects, InvalidRequestError, re.escape(message), lambda: topic.alter(**asked))


def test_adding_value_columns_cannot_turn_records_into_tombstones(
    store: Store, objects: MemoryStore
) -> None:
    topic = store.create_topic("t", schema={"id": pa.int32()}, key="id")
    topic.append(pa.table({"id": ints(1, 2)}))
    topic.delete_records({0: 2})
    for column in ("note", "other"):
        refused(
            objects,
            InvalidRequestError,
            rf"column '{column}' would be the first value column .* its 2 record\(s\) would become",
            lambda column=column: topic.alter(add_columns={column: pa.string()}),
        )


def test_empty_topic_can_get_its_first_value_column(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", schema={"id": pa.int32()}, key="id")
    written_before = plan_append(topic).stage(pa.table({"id": ints(1)}))
    topic.alter(add_columns={"note": pa.string()})
    refused(
        objects,
        InvalidRequestError,
        "written before the topic had value columns",
        lambda: plan_append(topic).commit([written_before], keep_files=True),
    )
    topic.append(pa.table({"id": ints(1, 2), "note": ["x", None]}))
    assert topic.segments()["tombstones"].to_pylist() == [1]


def test_topic_without_key_cannot_become_compacted(store: Store, objects: MemoryStore) -> None:
    topic = store.create_topic("t", schema={"a": pa.int64()})
    refused(
        objects,
        InvalidRequestError,
        "without key columns cannot be compacted",
        lambda: topic.alter(config={"cleanup.policy": "compact"}),
    )


@pytest.mark.parametrize(
    ("error", "message", "offsets"),
    [
        (OffsetOutOfRangeError, r"offset 11 of partition 0.*\[2, 10\)", {0: 11}),
        (OffsetOutOfRangeError, "offset -1 of partition 0", {0: -1}),
        (InvalidRequestError, "no partition 3; the topic has 3", {3: 0}),
        (OffsetOutOfRangeError, "offset 1 of partition 1", {0: 5, 1: 1}),
    ],
)
def test_invalid_delete_records_changes_nothing(
    kafka_topic: Topic, objects: MemoryStore, error: Any, message: str, offsets: dict[int, int]
) -> None:
    refused(objects, error, message, lambda: kafka_topic.delete_records(offsets))


ODD: list[Any] = [5, "x", b"x", 1.5, [1], {1}, {"a": 1}, object(), True, pa.table({"a": [1]})]
ASKED: dict[str, Callable[[Store, Topic, Any], object]] = {
    "delete_records": lambda _, topic, odd: topic.delete_records(odd),
    "delete_records of a partition": lambda _, topic, odd: topic.delete_records({0: (odd,)}),
    "setting": lambda _, topic, odd: topic.alter(config={"retention.ms": (odd,)}),
    "last_txn": lambda _, topic, odd: topic.last_txn((odd,)),
    "positions": lambda _, topic, odd: topic.group("g").commit((odd,)),
    "linger_ms": lambda _, topic, odd: topic.producer(linger_ms=(odd,)),
    "batch_bytes": lambda _, topic, odd: topic.producer(batch_bytes=(odd,)),
    "report": lambda _, __, odd: pylogtable.report_html(odd),
    "alter config": lambda _, topic, odd: topic.alter(config=odd),
    "alter add_columns": lambda _, topic, odd: topic.alter(add_columns=odd),
    "alter add_columns type": lambda _, topic, odd: topic.alter(add_columns={"n": odd}),
    "alter widen_columns": lambda _, topic, odd: topic.alter(widen_columns=odd),
    "alter widen_columns type": lambda _, topic, odd: topic.alter(widen_columns={"value": odd}),
    "schema": lambda store, _, odd: store.create_topic("new", schema=odd),
    "schema type": lambda store, _, odd: store.create_topic("new", schema={"a": odd}),
    "key": lambda store, _, odd: store.create_topic("new", key=[odd]),
    "config": lambda store, _, odd: store.create_topic("new", config=odd),
    "topic name": lambda store, _, odd: store.create_topic((odd,)),
    "topics": lambda store, _, odd: store.maintain(((odd,),)),
    "columns": lambda _, topic, odd: topic.read(columns=(odd,)),
    "find_commit": lambda _, topic, odd: topic.find_commit((odd,)),
    "find_commit version": lambda _, topic, odd: topic.find_commit("id", (odd,)),
    "history": lambda _, topic, odd: topic.history((odd,)),
    "check_columns": lambda _, topic, odd: plan_append(topic).check_columns(odd),
    "merge_columns": lambda _, topic, odd: plan_append(topic).merge_columns(odd),
    "commit_staged": lambda _, topic, odd: plan_append(topic).commit([odd]),
    "discard_staged": lambda _, topic, odd: plan_append(topic).discard([odd]),
    "first_sticky": lambda _, topic, odd: plan_append(topic).stage(kafka(["a"]), task=(odd,)),
    "threads": lambda _, topic, odd: topic.merge(threads=(odd,)),
    "ranges": lambda _, topic, odd: Scan(topic.at()).parts(odd),
    "max_records": lambda _, topic, odd: Scan(topic.at()).parts(max_records=(odd,)),
    "poll max_records": lambda _, topic, odd: topic.consumer("g").poll(max_records=(odd,)),
    "poll timeout": lambda _, topic, odd: topic.consumer("g").poll((odd,), max_records=1),
    "pause": lambda _, topic, odd: topic.consumer("g").pause([(odd,)]),
    "resume": lambda _, topic, odd: topic.consumer("g").resume([[odd]]),
    "seek": lambda _, topic, odd: topic.consumer("g").seek([odd], 0),
    "seek to": lambda _, topic, odd: topic.consumer("g").seek(0, np.array([odd])),
    "position": lambda _, topic, odd: topic.consumer("g").position(np.array([odd])),
    "reset": lambda _, topic, odd: topic.group("g").reset(np.array([odd])),
    "start": lambda _, topic, odd: topic.read(0, np.array([odd])),
    "mirror": lambda _, topic, odd: topic.mirror(odd),
    "mirror name": lambda store, topic, odd: topic.mirror(store, name=(odd,)),
    "mirror retention": lambda store, topic, odd: topic.mirror(store, retention=(odd,)),
    "mirror config": lambda store, topic, odd: topic.mirror(store, retention="own", config=(odd,)),
    "mirror poll_seconds": lambda store, topic, odd: topic.mirror(store, poll_seconds=(odd,)),
    "mirror on_progress": lambda store, topic, odd: topic.mirror(
        store, name="c", on_progress=(odd,)
    ),
    "mirror stop": lambda store, topic, odd: topic.mirror(store, name="c", stop=(odd,)),
    "address": lambda _, __, odd: pylogtable.open((odd,)),
    "topic's address": lambda _, __, odd: pylogtable.open_topic((odd,)),
    "storage_options": lambda _, __, odd: pylogtable.open("/x", storage_options=(odd,)),
    "clock": lambda _, __, odd: pylogtable.open("/x", clock=(odd,)),
}


@pytest.mark.parametrize("name", ASKED)
def test_invalid_arguments_are_refused(
    store: Store, kafka_topic: Topic, objects: MemoryStore, name: str
) -> None:
    """With our own error, not with whatever Python raises deeper inside."""
    before = contents(objects)
    for odd in ODD:
        with pytest.raises(LogTableError) as raised:
            ASKED[name](store, kafka_topic, odd)
        assert len(str(raised.value)) < 500, odd
    assert contents(objects) == before


@pytest.mark.parametrize("odd", [None, True, 1.5, "0", [None], [True], ["0"], np.array([[0], [1]])])
def test_partition_of_a_consumer_is_a_number(kafka_topic: Topic, odd: Any) -> None:
    """True is no partition, though it equals 1."""
    consumer = kafka_topic.consumer("g")
    for call in (consumer.pause, consumer.resume, consumer.position):
        with pytest.raises(InvalidRequestError, match="not assigned to this consumer"):
            call(odd)
    with pytest.raises(InvalidRequestError, match="not assigned to this consumer"):
        consumer.seek(odd, 2)


@pytest.mark.parametrize("odd", ["1", True, float("nan"), [1]])
def test_timeout_is_a_number_of_seconds(kafka_topic: Topic, odd: Any) -> None:
    with pytest.raises(InvalidRequestError, match="a number of seconds"):
        kafka_topic.consumer("g").poll(timeout=odd)


SAID: list[tuple[str, Callable[[Store, Any], object]]] = [
    ("`offsets` must be a dict such as {0: 100}", lambda _, topic: topic.delete_records(5)),
    ("offsets by partition, not 5", lambda _, topic: topic.delete_records(5)),
    ("a pyarrow.Schema, not ['a', 'b']", lambda store, _: store.create_topic("s", 1, ["a", "b"])),
    ("`columns` must be a list of names, not 7", lambda _, topic: topic.read(columns=7)),
    ("`threads` must be a whole number, 1 or more, not 0", lambda _, topic: topic.merge(threads=0)),
    ("`to_store` must be a store, such as", lambda _, topic: topic.mirror("s3://b/logs")),
    ("`retention` must be 'source'", lambda store, t: t.mirror(store, name="c", retention="no")),
    ("or 'own'", lambda store, topic: topic.mirror(store, name="c", retention=True)),
    (
        "`config` (retention.ms) is for copies with retention='own'",
        lambda store, topic: topic.mirror(store, name="c", config={"retention.ms": 1}),
    ),
    (
        "a whole number",
        lambda store, t: t.mirror(store, name="c", retention="own", config={"retention.ms": "x"}),
    ),
    ("cannot be a copy of itself", lambda store, topic: topic.mirror(store)),
    ("promote is for copies", lambda _, topic: topic.promote()),
    ("`topics` must be a list of names: ['orders']", lambda store, _: store.maintain("orders")),
]


@pytest.mark.parametrize(("message", "call"), SAID, ids=[message for message, _ in SAID])
def test_message_names_the_argument_and_its_value(
    store: Store, kafka_topic: Topic, message: str, call: Callable[[Store, Topic], object]
) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        call(store, kafka_topic)


def test_delete_records_is_refused_on_compact_only_topics(
    compacted_topic: Topic, objects: MemoryStore
) -> None:
    compacted_topic.append(kafka(["a"]))
    refused(
        objects,
        InvalidRequestError,
        r"cleanup\.policy contains 'delete'; the topic has 'compact'",
        lambda: compacted_topic.delete_records({0: 1}),
    )


@pytest.mark.parametrize("value", ["no", 0, None], ids=repr)
@pytest.mark.parametrize(
    ("job", "flag"),
    [
        ("erase", "dry_run"),
        ("apply_retention", "dry_run"),
        ("vacuum", "dry_run"),
        ("vacuum", "force"),
        ("maintain", "dry_run"),
        ("maintain", "vacuum"),
        ("compact", "force"),
        ("expire_groups", "dry_run"),
        ("mirror", "groups"),
        ("mirror", "follow"),
        ("mirror", "allow_gaps"),
    ],
)
def test_flags_of_jobs_are_true_or_false(
    store: Store, compacted_topic: Topic, objects: MemoryStore, job: str, flag: str, value: Any
) -> None:
    needed: dict[str, Any] = {
        "erase": {"keys": [b"a"]},
        "expire_groups": {"older_than": 1},
        "mirror": {"to_store": store, "name": "copy"},
    }.get(job, {})
    refused(
        objects,
        InvalidRequestError,
        f"`{flag}` must be True or False, not {value!r}",
        lambda: getattr(compacted_topic, job)(**needed, **{flag: value}),
    )


@pytest.mark.parametrize(
    "action",
    [
        lambda topic: topic.erase(keys=["\ud800"]),
        lambda topic: topic.latest(keys=["\ud800"]),
        lambda topic: topic.read(columns=["\ud800"]),
        lambda topic: pylogtable.open("/tmp/\ud800").topics(),
        lambda topic: pylogtable.open("/tmp/a\0b").topics(),
    ],
)
def test_text_that_is_no_unicode_is_refused(
    store: Store, action: Callable[[Topic], object]
) -> None:
    topic = store.create_topic("t")
    with pytest.raises(InvalidRequestError, match=r"ud800|x00"):
        action(topic)
