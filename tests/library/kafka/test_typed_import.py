"""Typed imports, on librdkafka's mock of a cluster and a small registry. `tests/kafka` has real
ones."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, StorageError
from pylogtable.format.model import Field, TopicInfo
from pylogtable.format.schema import from_arrow
from pylogtable.kafka import import_topic
from pylogtable.kafka.rows import HEADERS
from pylogtable.kafka.typed.columns_plan import (
    ColumnsRefusedError,
    Evolution,
    evolved_info,
    new_columns,
)
from pylogtable.kafka.typed.typed_import import made_rows
from pylogtable.kafka.values.decoder import Decoded, DecodedGroup
from pylogtable.store import Store
from tests.builders import rows
from tests.kafka.mock import MockCluster, mock_cluster
from tests.library.kafka.registry import RegistryServer, registry_server

TIMESTAMP = 1_700_000_000_123


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    """A schema whose fields may be null."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": ["null", kind], "default": None} for field, kind in fields
        ],
    }


def encoded(schema_id: int, schema: Any, value: Any) -> bytes:
    """In the wire format of registries."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


class Feed:
    """A topic of Kafka, and the schemas of its values."""

    def __init__(self, cluster: MockCluster, registry: RegistryServer, store: Store) -> None:
        self.cluster, self.registry, self.store = cluster, registry, store
        self.topic = cluster.new_topic()

    def schema(self, schema: Any, part: str = "value") -> int:
        return self.registry.register(f"{self.topic}-{part}", schema)

    def send(self, schema: Any, *values: Any, partition: int = 0, key: Any = None) -> int:
        """Values with this schema; returns its id."""
        schema_id = self.schema(schema)
        for value in values:
            self.raw(encoded(schema_id, schema, value), partition, key)
        return schema_id

    def raw(self, value: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        producer = self.cluster.producer
        producer.produce(self.topic, value, key, partition, timestamp=TIMESTAMP)
        assert producer.flush(30) == 0

    def imported(self, **more: Any) -> Any:
        given = {"value_format": "avro", "schema_registry": self.registry.url, **more}
        return import_topic(
            self.store,
            self.topic,
            bootstrap_servers=self.cluster.servers,
            copy_settings=False,
            config={"retention.ms": -1},
            **given,
        )

    @property
    def copy(self) -> Any:
        return self.store.topic(self.topic)

    @property
    def letters(self) -> Any:
        return self.store.topic(f"{self.topic}-dead-letters")


@pytest.fixture
def feed(cluster: MockCluster, registry: RegistryServer, store: Store) -> Feed:
    return Feed(cluster, registry, store)


V1 = record(("id", "long"), ("amount", "float"))


def test_fields_become_columns(feed: Feed) -> None:
    first = feed.send(V1, {"id": 1, "amount": 1.5}, {"id": None, "amount": None}, key=b"k")
    feed.raw(None, key=b"k")
    feed.send(V1, {"id": 2, "amount": None}, partition=2)
    report = feed.imported()
    assert (report.records, report.dead_letters, report.schema_ids) == (4, 0, {first: 3})
    schema = feed.copy.schema
    assert schema.names == [
        *("partition", "offset", "timestamp"),
        *("key", "id", "amount", "value_schema_id", "headers"),
    ]
    assert schema.field("id").type == pa.int64()
    assert rows(
        feed.copy.read(), "partition", "offset", "key", "id", "amount", "value_schema_id"
    ) == [
        (0, 0, b"k", 1, 1.5, first),
        (0, 1, b"k", None, None, first),
        (0, 2, b"k", None, None, None),
        (2, 0, None, 2, None, first),
    ]
    assert list(feed.copy.describe().key) == ["key"]
    assert sum(feed.copy.segments()["tombstones"].to_pylist()) == 1
    summary = dict(feed.copy.history().to_pylist()[0]["summary"])
    assert summary == {f"value_schema_{first}": 3}
    assert feed.imported().records == 0
    assert feed.copy.verify(data=True)


def test_new_schemas_add_and_widen_columns_in_one_commit(feed: Feed) -> None:
    one = feed.send(V1, {"id": 1, "amount": 1.5})
    wider = record(("amount", "double"), ("note", "string"), ("id", "long"))
    two = feed.send(wider, {"amount": 1e300, "note": "new", "id": 2})
    feed.send(V1, {"id": 3, "amount": 2.5})
    report = feed.imported()
    assert (report.commits, report.schema_ids) == (1, {one: 2, two: 1})
    assert rows(feed.copy.read(), "id", "amount", "note") == [
        (1, 1.5, None),
        (2, 1e300, "new"),
        (3, 2.5, None),
    ]
    three = feed.send(record(("extra", "boolean")), {"extra": True})
    assert feed.imported().schema_ids == {three: 1}
    assert rows(feed.copy.read(), "id", "extra")[-1] == (None, True)
    assert feed.copy.verify(data=True)


def test_what_cannot_be_widened_is_a_dead_letter_with_both_types(feed: Feed) -> None:
    feed.send(record(("a", "string")), {"a": "x"})
    feed.imported()
    other = feed.send(record(("a", "int")), {"a": 5}, {"a": None})
    report = feed.imported()
    assert (report.records, report.dead_letters) == (1, 1)
    assert rows(feed.copy.read(), "offset", "a", "value_schema_id")[1:] == [(2, None, other)]
    (letter,) = rows(feed.letters.read())
    assert (letter["kafka_partition"], letter["kafka_offset"], letter["part"]) == (0, 1, "value")
    assert letter["schema_id"] == other
    assert (
        f"schema {other} has 'a' as int, and the column of the topic is string"
        in (letter["reason"])
    )
    assert letter["value"] == encoded(other, record(("a", "int")), {"a": 5})


def test_new_field_inside_of_a_struct_is_never_cut(feed: Feed) -> None:
    """The format adds columns only at the top. A value that does not use the field fits."""
    inner = record(("x", "int"), name="Inner")
    wider = record(("x", "long"), ("y", "int"), name="Inner")
    feed.send(record(("s", inner)), {"s": {"x": 1}})
    feed.send(
        record(("s", wider)),
        {"s": {"x": 2, "y": None}},
        {"s": {"x": 3, "y": 4}},
        {"s": {"x": 2**40, "y": None}},
    )
    report = feed.imported()
    assert (report.records, report.dead_letters) == (2, 2)
    assert rows(feed.copy.read(), "offset", "s") == [(0, {"x": 1}), (1, {"x": 2})]
    assert "struct<x:bigint,y:int>" in rows(feed.letters.read(), "reason")[0]
    assert rows(feed.letters.read(), "kafka_offset") == [2, 3]


def test_names_that_are_taken_get_a_prefix(feed: Feed) -> None:
    names = ("Offset", "partition", "headers", "key", "value_schema_id", "raw_value", "plain")
    feed.send(record(*((name, "int") for name in names)), dict.fromkeys(names, 1), key=b"k")
    feed.imported()
    assert [name for name in feed.copy.schema.names if name.startswith(("value_", "plain"))] == [
        "value_Offset",
        "value_partition",
        "value_headers",
        "value_key",
        "value_value_schema_id",
        "value_raw_value",
        "plain",
        "value_schema_id",
    ]


def test_fields_that_differ_only_in_case(feed: Feed) -> None:
    feed.send(record(("id", "int"), ("ID", "int")), {"id": 1, "ID": 2})
    feed.imported()
    assert rows(feed.copy.read(), "id", "value_ID") == [(1, 2)]
    feed.send(record(("ID", "int")), {"ID": 3})
    feed.imported()
    assert rows(feed.copy.read(), "id", "value_ID") == [(1, 2), (None, 3)]


def test_new_fields_of_several_schemas_differ_only_in_case(feed: Feed) -> None:
    """One batch brings them: the columns of one are there for the next one."""
    feed.send(V1, {"id": 1, "amount": None})
    feed.imported()
    for name in ("userId", "userid", "value_userid"):
        feed.send(record((name, "string")), {name: name})
    assert (feed.imported().dead_letters, feed.imported().records) == (0, 0)
    names = ("userId", "value_userid", "value_value_userid")
    assert rows(feed.copy.read(), *names)[1:] == [
        ("userId", None, None),
        (None, "userid", None),
        (None, None, "value_userid"),
    ]


@pytest.mark.parametrize("is_later", [False, True])
def test_column_with_a_prefix_is_of_one_field_only(feed: Feed, is_later: bool) -> None:
    one, other = record(("offset", "string")), record(("value_offset", "string"))
    for schema in (one, other) if is_later else (other, one):
        feed.send(schema, {schema["fields"][0]["name"]: schema["fields"][0]["name"]})
        feed.imported()
    first, second = ("offset", "value_offset") if is_later else ("value_offset", "offset")
    assert rows(feed.copy.read(), "value_offset", "value_value_offset") == [
        (first, None),
        (None, second),
    ]


def nested(kind: str, inner: Any) -> Any:
    return {
        "array": {"type": "array", "items": inner},
        "map": {"type": "map", "values": inner},
    }.get(kind, inner)


@pytest.mark.parametrize("kind", ["struct", "array", "map"])
def test_struct_with_fields_that_differ_only_in_case(feed: Feed, kind: str) -> None:
    """No column can have it. Records that have none of it are whole."""
    feed.send(V1, {"id": 1, "amount": None})
    feed.imported()
    value = {"struct": (c := {"x": 1, "X": 2}), "array": [c], "map": {"k": c}}[kind]
    inner = nested(kind, record(("x", "int"), ("X", "int"), name="Inner"))
    feed.send(record(("id", "long"), ("c", inner)), {"id": 2, "c": value}, {"id": 3, "c": None})
    report = feed.imported()
    assert (report.records, report.dead_letters) == (1, 1)
    (reason,) = rows(feed.letters.read(), "reason")
    assert "'c' with a struct whose fields 'x' and 'X' differ only in case, and no to" in reason
    assert rows(feed.copy.read(), "id") == [1, 3]


def test_columns_that_a_topic_refuses_are_those_of_their_schema_only() -> None:
    """Whatever its reason is."""
    text = pa.array(["x"])
    groups = tuple(
        DecodedGroup(
            number, np.array([number - 1]), pa.StructArray.from_arrays([text], [name]), True
        )
        for number, name in ((1, "good"), (2, "bad"), (3, "fine"))
    )
    headers = pa.array([[]] * 3, HEADERS)
    none = pa.nulls(3, pa.binary())
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * 3, pa.int32()),
            "offset": pa.array(range(3), pa.int64()),
            "timestamp": pa.array([0] * 3, pa.timestamp("us", "UTC")),
            "key": none,
            "value": pa.array([b"x"] * 3),
            "headers": headers,
        }
    )
    schema, key = new_columns(None, None, keep_raw=False)
    fields = tuple(Field(name=one.name, type=from_arrow(one.type)) for one in schema)
    info = TopicInfo(fields=fields, key=tuple(key), partitions=1, created_at_ms=0)
    now = [info]

    def change(evolution: Evolution) -> TopicInfo:
        if "bad" in evolution.add:
            raise ColumnsRefusedError("the topic is full")
        now[0] = evolved_info(now[0], evolution)
        return now[0]

    made = made_rows(batch, (Decoded(groups, ()), None), info, {}, change)
    assert made.rows.select(["offset", "good", "fine"]).to_pylist() == [
        {"offset": 0, "good": "x", "fine": None},
        {"offset": 2, "good": None, "fine": "x"},
    ]
    assert [(dead.row, dead.reason) for dead in made.dead] == [
        (1, "its columns were refused: the topic is full")
    ]


def test_columns_that_come_after_the_promotion_make_no_dead_letters(feed: Feed) -> None:
    """The import ends, and its records stay in Kafka."""
    feed.send(V1, {"id": 1, "amount": None})
    feed.imported()
    feed.send(record(("id", "long"), ("more", "string")), {"id": 2, "more": "x"})
    copy = feed.copy
    is_promoted = []

    def stop() -> bool:
        if not is_promoted:
            is_promoted.append(copy.promote())
        return False

    with pytest.raises(InvalidRequestError, match="promoted"):
        feed.imported(stop=stop)
    assert feed.store.topics() == [feed.topic]
    assert "more" not in copy.schema.names


@pytest.mark.parametrize("levels", [31, 60, 200])
def test_schema_that_is_nested_too_deep(feed: Feed, levels: int) -> None:
    feed.send(V1, {"id": 1, "amount": None})
    feed.imported()
    inner, value = "int", 1
    for _ in range(levels):
        inner, value = nested("array", inner), [value]  # type: ignore[list-item, assignment]
    feed.send(record(("deep", inner)), {"deep": value}, {"deep": None})
    feed.send(V1, {"id": 2, "amount": None})
    report = feed.imported()
    assert report.records in (1, 2)
    assert report.records + report.dead_letters == 3
    assert "deep" in rows(feed.letters.read(), "reason")[0]
    assert feed.imported().records == 0


def test_json_is_damaged_in_its_record_only(feed: Feed) -> None:
    good = [b'{"a": %d, "c": {"x": %d}}' % (number, number) for number in range(100)]
    bad = [b'{"c": {"X": 1}, "a": 1}', b'{"a": "odd"}', b'{"a":%s1%s}' % (b"[" * 60, b"]" * 60),
           b"[" * 400 + b"]" * 400, b'{"a":' * 3000 + b"1" + b"}" * 3000, b'{"a": [1]}',
           b'{"c": {"y": 1, "Y": 2}}', b'{"new": {"y": 1, "Y": 2}}']  # fmt: skip
    clashing = b'{"offset": 1, "value_offset": 2}'
    for text in (*bad, *good, clashing):
        feed.raw(text)
    report = feed.imported(value_format="json", schema_registry=None)
    assert (report.records, report.dead_letters) == (len(good) + 1, len(bad))
    assert rows(feed.letters.read(), "kafka_offset") == list(range(len(bad)))
    assert rows(feed.copy.read(), "value_offset", "value_value_offset")[-1] == (2, 1)
    for text in (*bad, *good):
        feed.raw(text)
    report = feed.imported(value_format="json", schema_registry=None)
    assert (report.records, report.dead_letters) == (len(good), len(bad))


class TestKeys:
    KEY = record(("region", "string"), ("number", "int"), name="Key")

    def keyed(self, feed: Feed, key: Any, value: Any) -> None:
        key_id = feed.schema(self.KEY, "key")
        feed.send(V1, value, key=None if key is None else encoded(key_id, self.KEY, key))

    def test_fields_of_the_key_are_key_columns(self, feed: Feed) -> None:
        self.keyed(feed, {"region": "eu", "number": 1}, {"id": 1, "amount": None})
        self.keyed(feed, None, {"id": 2, "amount": None})
        self.keyed(feed, {"region": None, "number": 2}, {"id": 3, "amount": None})
        report = feed.imported(key_format="avro")
        assert (report.records, report.dead_letters) == (3, 0)
        assert rows(feed.copy.read(), "region", "number", "id") == [
            ("eu", 1, 1),
            (None, None, 2),
            (None, 2, 3),
        ]
        assert list(feed.copy.describe().key) == ["region", "number"]

    def test_plain_key(self, feed: Feed) -> None:
        key_id = feed.schema("long", "key")
        feed.send(V1, {"id": 1, "amount": None}, key=encoded(key_id, "long", 7))
        feed.imported(key_format="avro")
        assert rows(feed.copy.read(), "key", "id") == [(7, 1)]

    def test_field_of_a_value_with_the_name_of_a_key_column(self, feed: Feed) -> None:
        key_id = feed.schema(self.KEY, "key")
        key = encoded(key_id, self.KEY, {"region": "eu", "number": 1})
        feed.send(record(("Region", "int")), {"Region": 5}, key=key)
        feed.imported(key_format="avro")
        assert rows(feed.copy.read(), "region", "value_Region") == [("eu", 5)]

    def test_key_that_does_not_decode_and_one_that_would_be_null(self, feed: Feed) -> None:
        self.keyed(feed, {"region": "eu", "number": 1}, {"id": 1, "amount": None})
        feed.send(V1, {"id": 2, "amount": None}, key=b"damaged")
        self.keyed(feed, {"region": None, "number": None}, {"id": 3, "amount": None})
        report = feed.imported(key_format="avro")
        assert (report.records, report.dead_letters) == (1, 2)
        found = rows(feed.letters.read(), "kafka_offset", "part", "key")
        assert [(offset, part) for offset, part, _ in found] == [(1, "key"), (2, "key")]
        assert found[0][2] == b"damaged"
        assert "all fields of its key are null" in rows(feed.letters.read(), "reason")[1]

    def test_wider_key_that_fits(self, feed: Feed) -> None:
        """Key columns never change. Numbers that fit are those numbers."""
        self.keyed(feed, {"region": "eu", "number": 1}, {"id": 1, "amount": None})
        wider = record(("region", "string"), ("number", "long"), ("more", "int"), name="Key")
        key_id = feed.schema(wider, "key")
        for number, more in ((2, None), (2**40, None), (3, 4)):
            key = encoded(key_id, wider, {"region": "eu", "number": number, "more": more})
            feed.send(V1, {"id": number, "amount": None}, key=key)
        report = feed.imported(key_format="avro")
        assert rows(feed.copy.read(), "number", "id") == [(1, 1), (2, 2)]
        assert report.dead_letters == 2
        assert "does not have it in its key" in rows(feed.letters.read(), "reason")[1]


def test_record_without_a_key_in_a_compacted_topic(feed: Feed) -> None:
    feed.send(V1, {"id": 1, "amount": None}, key=b"k")
    feed.send(V1, {"id": 2, "amount": None})
    import_topic(
        feed.store,
        feed.topic,
        bootstrap_servers=feed.cluster.servers,
        copy_settings=False,
        config={"cleanup.policy": "compact"},
        value_format="avro",
        schema_registry=feed.registry.url,
    )
    assert rows(feed.copy.read(), "id") == [1]
    assert "without a key" in rows(feed.letters.read(), "reason")[0]


def test_raw_bytes_on_request(feed: Feed) -> None:
    feed.send(V1, {"id": 1, "amount": None}, key=b"k")
    feed.raw(None, key=b"k")
    feed.imported(keep_raw=True)
    schema_id = feed.schema(V1)
    raw = encoded(schema_id, V1, {"id": 1, "amount": None})
    assert rows(feed.copy.read(), "raw_value") == [raw, None]
    assert "raw_key" not in feed.copy.schema.names
    with pytest.raises(InvalidRequestError, match=r"has Kafka.s bytes .--keep-raw"):
        feed.imported()


def test_plain_values_have_one_column(feed: Feed) -> None:
    feed.send("string", "x", "")
    feed.raw(None)
    feed.imported()
    assert rows(feed.copy.read(), "value") == ["x", "", None]
    feed.send(V1, {"id": 4, "amount": None})
    feed.imported()
    assert rows(feed.copy.read(), "value", "id")[-1] == (None, 4)


def test_json_without_a_schema(feed: Feed) -> None:
    """Columns are what values have. A value of another type than its column is a dead letter."""
    for text in (b'{"a": 1, "b": {"c": [1]}}', b'{"a": 2, "d": "x"}', b'{"a": "odd"}', b"{"):
        feed.raw(text)
    report = feed.imported(value_format="json", schema_registry=None)
    assert (report.records, report.dead_letters, report.schema_ids) == (2, 2, {0: 2})
    assert rows(feed.copy.read(), "a", "b", "d", "value_schema_id") == [
        (1, {"c": [1]}, None, 0),
        (2, None, "x", 0),
    ]
    feed.raw(b'{"a": null, "e": 1.5}')
    feed.raw(b"null")
    assert feed.imported(value_format="json", schema_registry=None).records == 2
    assert rows(feed.copy.read(), "a", "e", "value_schema_id")[2:] == [
        (None, 1.5, 0),
        (None, None, 0),
    ]


def test_numbers_of_json_without_a_schema(feed: Feed) -> None:
    """The column has the type of the first values. A number fits if nothing of it is lost, whatever
    other numbers come with it."""
    feed.raw(b'{"n": 1, "x": 0.5}')
    json_only = {"value_format": "json", "schema_registry": None}
    feed.imported(**json_only)
    large = 2**53 + 1
    for text in ('{"n": 2, "x": 3}', '{"n": 2.5, "x": 1}', f'{{"n": {large}, "x": 2}}',
                 '{"n": 4.0}', f'{{"x": {large}}}', '{"n": 1e300}', f'{{"n": {2**63 - 1}}}',
                 f'{{"x": {2**63 - 1}}}', '{"n": 9223372036854775808.0}'):  # fmt: skip
        feed.raw(text.encode())
    report = feed.imported(**json_only)
    found = rows(feed.copy.read(), "offset", "n", "x")
    assert found == [
        (0, 1, 0.5),
        (1, 2, 3.0),
        (3, large, 2.0),
        (4, 4, None),
        (7, 2**63 - 1, None),
    ]
    reasons = dict(rows(feed.letters.read(), "kafka_offset", "reason"))
    assert (report.records, sorted(reasons)) == (4, [2, 5, 6, 8, 9])
    assert "'n' as double, and the column of the topic is bigint" in reasons[2]
    assert "import under another --name with --value-schema" in reasons[2]
    assert "'x' as bigint, and the column of the topic is double" in reasons[5]


def test_empty_topic_with_a_schema_from_a_file(feed: Feed, tmp_path: Path) -> None:
    """The values are not framed."""
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(V1))
    feed.raw(encoded(1, V1, {"id": 1, "amount": None})[5:])
    given = {"schema_registry": None, "value_schema": str(schema)}
    assert feed.imported(**given).schema_ids == {0: 1}
    assert rows(feed.copy.read(), "id", "value_schema_id") == [(1, 0)]


def test_follows_without_the_registry_for_a_while(feed: Feed, store: Store) -> None:
    feed.send(V1, {"id": 1, "amount": None})
    feed.registry.status = 503
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        feed.registry.status = None if asked > 3 else 503
        return feed.topic in store.topics() and feed.copy.count() == 1

    with pytest.warns(UserWarning, match="The import goes on trying"):
        report = feed.imported(follow=True, stop=stop, registry_settings={"max.retries": 0})
    assert (report.records, report.dead_letters) == (1, 0)


def test_stop_while_the_registry_is_away_ends_with_a_report(feed: Feed, store: Store) -> None:
    """What was imported before is in it."""
    feed.send(V1, {"id": 1, "amount": None})
    refused = 0

    def stop() -> bool:
        nonlocal refused
        requests = len(feed.registry.requests)
        if feed.registry.status is not None:
            return requests > refused
        if feed.topic in store.topics() and feed.copy.count() == 1:
            feed.send(record(("b", "int")), {"b": 1})
            refused, feed.registry.status = requests, 503
        return False

    settings = {"max.retries": 0}
    report = feed.imported(follow=True, stop=stop, linger_ms=50, registry_settings=settings)
    assert (report.records, report.dead_letters) == (1, 0)
    feed.registry.status = None
    assert feed.imported().records == 1


class TestDeadLetters:
    def test_damaged_values_leave_holes(self, feed: Feed) -> None:
        feed.send(V1, {"id": 1, "amount": None})
        feed.raw(b"damaged", key=b"k")
        feed.send(V1, {"id": 2, "amount": None})
        feed.raw(struct.pack(">bI", 0, 77) + b"x")
        feed.raw(b"", partition=2)
        report = feed.imported()
        assert (report.records, report.dead_letters) == (2, 3)
        assert rows(feed.copy.read(), "offset", "id") == [(0, 1), (2, 2)]
        found = rows(
            feed.letters.read(), "kafka_partition", "kafka_offset", "value", "schema_id", "copy_end"
        )
        assert sorted(found) == [
            (0, 1, b"damaged", None, 1),
            (0, 3, struct.pack(">bI", 0, 77) + b"x", 77, 3),
            (2, 0, b"", None, 0),
        ]
        times = feed.letters.read().read_all()["kafka_timestamp"].cast(pa.int64()).to_pylist()
        assert times == [TIMESTAMP * 1000] * 3
        assert feed.letters.describe().config["retention.ms"] == "-1"
        assert feed.copy.verify(data=True)

    def test_repeat_begins_behind_the_last_dead_letters(self, feed: Feed) -> None:
        """The copy ends before them. They are not asked for again."""
        feed.send(V1, {"id": 1, "amount": None})
        feed.raw(b"1")
        feed.raw(b"2")
        assert feed.imported().dead_letters == 2
        version = feed.letters.version
        seen: list[Any] = []
        report = feed.imported(on_progress=seen.append)
        assert (report.records, report.dead_letters, report.commits, seen) == (0, 0, 0, [])
        feed.raw(b"3")
        assert feed.imported().dead_letters == 1
        feed.send(V1, {"id": 2, "amount": None})
        assert feed.imported().records == 1
        assert rows(feed.copy.read(), "offset") == [0, 4]
        assert rows(feed.letters.read(), "kafka_offset") == [1, 2, 3]
        assert feed.letters.version == version + 1

    def test_they_are_told_once_a_minute(
        self, feed: Feed, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not with each commit: an import that follows may have them all the time."""
        feed.send(V1, {"id": 1, "amount": None})
        feed.raw(b"damaged")
        sent = 1

        def stop() -> bool:
            nonlocal sent
            letters = feed.letters.count() if len(feed.store.topics()) == 2 else 0
            if letters == sent < 3:
                sent += 1
                feed.raw(b"damaged")
            return letters == 3

        with caplog.at_level("WARNING", "pylogtable"):
            report = feed.imported(follow=True, stop=stop, linger_ms=50)
        (told,) = [one for one in caplog.records if "dead-letters" in one.getMessage()]
        assert (report.dead_letters, feed.letters.version) == (3, 3)
        reason = rows(feed.letters.read(), "reason")[0]
        assert told.getMessage() == (
            f"1 of the records so far are in topic {feed.topic}-dead-letters, not in the copy. The "
            f"first one now: {reason}"
        )

    def test_dead_letters_of_another_topic_are_refused(self, feed: Feed) -> None:
        """They would hide records: those of this topic at the same offsets."""
        feed.send(V1, {"id": 1, "amount": None})
        feed.raw(b"damaged")
        feed.imported()
        feed.store.delete_topic(feed.topic)
        with pytest.raises(InvalidRequestError, match="are of an earlier topic of that name"):
            feed.imported()

    def test_first_failure_ends_the_import_if_asked(self, feed: Feed) -> None:
        feed.send(V1, {"id": 1, "amount": None})
        feed.raw(b"damaged")
        with pytest.raises(InvalidRequestError, match="value of the record at partition 0, off"):
            feed.imported(on_error="fail")
        assert feed.store.topics() == []
        assert feed.imported().dead_letters == 1

    def test_registry_that_is_away_makes_no_dead_letters(self, feed: Feed) -> None:
        feed.send(V1, {"id": 1, "amount": None})
        feed.imported()
        feed.send(record(("b", "int")), {"b": 1})
        feed.registry.status = 500
        with pytest.raises(StorageError, match="schema registry"):
            feed.imported()
        feed.registry.status = None
        assert feed.imported().records == 1
        assert feed.store.topics() == [feed.topic]


class TestFirstLook:
    def test_empty_topic_gets_the_newest_schema(self, feed: Feed) -> None:
        feed.raw(None)
        feed.schema(V1)
        report = feed.imported()
        assert report.records == 1
        assert feed.copy.schema.names[3:] == ["key", "id", "amount", "value_schema_id", "headers"]

    def test_tombstones_alone(self, feed: Feed) -> None:
        feed.raw(None, key=b"k")
        assert feed.imported().records == 1
        assert feed.copy.schema.names[3:] == ["key", "value_schema_id", "headers"]
        feed.send(V1, {"id": 1, "amount": None}, key=b"k")
        feed.imported()
        assert rows(feed.copy.read(), "id", "value_schema_id") == [(None, None), (1, 1)]

    def test_wrong_format_is_refused(self, feed: Feed) -> None:
        feed.raw(b"{}")
        with pytest.raises(InvalidRequestError, match=r"no value of the 1 records .*--value-form"):
            feed.imported()
        assert feed.store.topics() == []

    def test_numbers_of_json_have_a_fraction_later(self, feed: Feed) -> None:
        for number in range(3_000):
            price = number + 0.5 if number % 50 == 7 else number
            feed.cluster.producer.produce(feed.topic, json.dumps({"price": price}).encode())
            if not number:
                feed.cluster.producer.flush(30)
        assert feed.cluster.producer.flush(30) == 0
        report = feed.imported(value_format="json", schema_registry=None)
        assert (report.records, report.dead_letters) == (3_000, 0)
        assert sum(rows(feed.copy.read(), "price")) == sum(range(3_000)) + 30

    def test_records_that_no_topic_can_have(self, feed: Feed) -> None:
        inner = record(("x", "int"), ("X", "int"), name="Inner")
        feed.send(record(("c", inner)), {"c": {"x": 1, "X": 2}})
        with pytest.raises(
            InvalidRequestError, match=r"none of the 1 records .* differ only in ca"
        ):
            feed.imported()
        assert feed.store.topics() == []

    def test_key_format_without_any_key(self, feed: Feed) -> None:
        feed.send(V1, {"id": 1, "amount": None})
        with pytest.raises(InvalidRequestError, match="Leave out --key-format"):
            feed.imported(key_format="avro")
        assert feed.store.topics() == []


class TestRefused:
    def test_typed_copy_without_the_format_and_the_other_way_round(self, feed: Feed) -> None:
        feed.send(V1, {"id": 1, "amount": None})
        feed.imported()
        with pytest.raises(InvalidRequestError, match="was imported with --value-format"):
            feed.imported(value_format=None, schema_registry=None)
        feed.imported(value_format=None, schema_registry=None, name="bytes")
        with pytest.raises(InvalidRequestError, match="was imported without --value-format"):
            feed.imported(name="bytes")

    def test_other_formats_than_before(self, feed: Feed) -> None:
        key_id = feed.schema("string", "key")
        feed.send(V1, {"id": 1, "amount": None}, key=encoded(key_id, "string", "k"))
        feed.imported()
        with pytest.raises(InvalidRequestError, match="imported with key_format=None, and now"):
            feed.imported(key_format="avro")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"value_format": "xml"}, "`value_format` must be one of avro"),
            ({"value_format": None}, r"`schema_registry` .--schema-registry. is given without"),
            ({"key_schema": "x"}, "without `key_format`"),
            ({"value_schema": "x"}, r"`schema_registry` .* and `value_schema` .* together"),
            (
                {"value_format": "json", "key_format": "avro", "key_schema": "x"},
                r"`schema_registry` .* and `key_schema` .* together",
            ),
            ({"schema_registry": None}, "--schema-registry or --value-schema"),
            ({"on_error": "ignore"}, "`on_error` must be 'dead-letter' or 'fail'"),
            ({"keep_raw": "yes"}, "`keep_raw` must be True or False"),
        ],
    )
    def test_nonsense(self, feed: Feed, options: dict[str, Any], words: str) -> None:
        with pytest.raises(InvalidRequestError, match=words):
            feed.imported(**options)
