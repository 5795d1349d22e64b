"""Exports of topics with columns, on librdkafka's mock of a cluster and a small registry.
`tests/kafka` has real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError
from pylogtable.kafka import export_topic, export_topics, import_topic
from pylogtable.kafka.values.frames import VALUE_HEADER
from pylogtable.store import Store
from pylogtable.topic import Topic
from tests.builders import kafka, rows
from tests.kafka.mock import PARTITIONS, MockCluster, mock_cluster
from tests.library.kafka.registry import RegistryServer, registry_server
from tests.library.kafka.test_typed_import import TIMESTAMP, V1, Feed, encoded, record
from tests.library.kafka.values.protos import as_registered, classes, file_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as started:
        yield started


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as started:
        yield started


@pytest.fixture
def feed(cluster: MockCluster, registry: RegistryServer, store: Store) -> Feed:
    return Feed(cluster, registry, store)


class Sent:
    """A topic of Kafka that a topic is sent to, and imported from again."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.topic = feed.cluster.new_topic()
        feed.cluster.producer.list_topics(self.topic, timeout=30)

    def schema(self, schema: Any, kind: str = "AVRO", part: str = "value") -> int:
        return self.feed.registry.register(f"{self.topic}-{part}", schema, kind)

    def export(self, topic: Topic, value_format: str | None = "avro", **more: Any) -> int:
        given = {"schema_registry": self.feed.registry.url, **more}
        return export_topic(
            topic,
            bootstrap_servers=self.feed.cluster.servers,
            kafka_topic=self.topic,
            value_format=value_format,
            **given,
        ).records

    def imported(self, value_format: str | None = "avro", **more: Any) -> Topic:
        given = {"schema_registry": self.feed.registry.url, **more} if value_format else more
        import_topic(
            self.feed.store,
            self.topic,
            bootstrap_servers=self.feed.cluster.servers,
            copy_settings=False,
            config={"retention.ms": -1},
            value_format=value_format,
            **given,
        )
        return self.feed.store.topic(self.topic)

    def payloads(self) -> list[Any]:
        """What Kafka has."""
        return rows(self.imported(None).read(), "key", "value")


@pytest.fixture
def sent(feed: Feed) -> Sent:
    return Sent(feed)


def put(topic: Topic, columns: dict[str, Any], partition: int = 0) -> None:
    """Append rows with these values."""
    types = {column.name: column.type for column in topic.schema}
    given = {name: pa.array(values, types[name]) for name, values in columns.items()}
    count = len(next(iter(given.values())))
    topic.append(pa.table({**given, "partition": pa.array([partition] * count, pa.int32())}))


def content(topic: Topic) -> list[Any]:
    """The records, without the ids of schemas."""
    names = sorted(set(topic.schema.names) - {"value_schema_id"})
    return [names, *rows(topic.read(), *names)]


def test_typed_import_that_is_sent_and_imported_again_is_equal(feed: Feed, sent: Sent) -> None:
    """Names that were taken, keys, headers, tombstones, records without anything, old schemas."""
    old = record(("id", "long"), ("offset", "int"))
    new = record(("id", "long"), ("offset", "long"), ("Offset", "string"), ("at", "double"))
    key = record(("id", "string"), ("partition", "int"), name="Key")
    schema_id = sent.schema(new)
    sent.schema(key, part="key")
    key_id = feed.schema(key, "key")

    def produce(schema: Any, value: Any, number: int, **headers: bytes | None) -> None:
        body = None if value is None else encoded(feed.schema(schema), schema, value)
        name = encoded(key_id, key, {"id": f"k{number}", "partition": number})
        feed.cluster.producer.produce(
            feed.topic, body, name, number % PARTITIONS, timestamp=TIMESTAMP + number,
            headers=headers or None,
        )  # fmt: skip

    produce(old, {"id": 1, "offset": 2}, 0, h=b"x")
    produce(new, {"id": 2, "offset": 2**40, "Offset": "o", "at": 0.5}, 1)
    produce(new, {"id": None, "offset": None, "Offset": None, "at": None}, 2, h=None)
    produce(new, None, 3)
    produce(new, {"id": 3, "offset": None, "Offset": "", "at": None}, 4)
    assert feed.cluster.producer.flush(30) == 0
    assert feed.imported(key_format="avro").records == 5
    names = {"id", "value_id", "value_offset", "value_Offset", "value_value_Offset"}
    assert names & set(feed.copy.schema.names) == names - {"value_Offset"}
    assert sent.export(feed.copy, key_format="avro") == 5
    again = sent.imported(key_format="avro")
    assert content(again) == content(feed.copy)
    ids = rows(again.read(), "value_schema_id")
    assert sorted(map(str, ids)) == [*[str(schema_id)] * 4, "None"]
    assert sent.export(feed.copy, key_format="avro") == 0


def test_keys_stay_bytes(feed: Feed, sent: Sent) -> None:
    feed.send(V1, {"id": 1, "amount": 1.5}, key=b"k\xff")
    feed.raw(None, key=b"t")
    feed.imported(keep_raw=True)
    schema_id = sent.schema(V1)
    assert sent.export(feed.copy) == 2
    body = encoded(schema_id, V1, {"id": 1, "amount": 1.5})
    assert sent.payloads() == [(b"k\xff", body), (b"t", None)]


def test_json_schema_and_json(feed: Feed, sent: Sent, store: Store) -> None:
    """Without a schema names lose the prefix that an import has given them."""
    feed.raw(b'{"offset": 1, "name": "a"}', key=b'"k"')
    feed.raw(b'{"offset": 2}', key=b'"l"')
    feed.imported(value_format="json", key_format="json")
    assert feed.copy.schema.names[3:6] == ["key", "value_offset", "name"]
    assert sent.export(feed.copy, "json", key_format="json", schema_registry=None) == 2
    expected = [(b'"k"', b'{"offset":1,"name":"a"}'), (b'"l"', b'{"offset":2}')]
    assert sent.payloads() == expected
    second = Sent(feed)
    properties = {"offset": {"type": "integer"}, "name": {"type": "string"}}
    schema_id = second.schema({"type": "object", "properties": properties}, "JSON")
    second.export(feed.copy, "json-schema", key_format="json")
    frame = b"\0" + schema_id.to_bytes(4, "big")
    assert second.payloads() == [(key, frame + value) for key, value in expected]
    plain = store.create_topic("plain", schema={"value": "string"})
    put(plain, {"value": ["x"]})
    third = Sent(feed)
    third.export(plain, "json")
    assert third.payloads() == [(None, b'"x"')]


def test_protobuf(feed: Feed, sent: Sent, store: Store) -> None:
    file = file_of("o.proto", {"Order": ["int32 id", "optional float part"]})
    order = classes(file)["Order"]
    schema_id = sent.schema(as_registered(file), "PROTOBUF")
    table = store.create_topic("t", schema={"id": "int", "part": "double"})
    put(table, {"id": [7], "part": [0.5]})
    sent.export(table, "protobuf")
    ((_, value),) = sent.payloads()
    assert value[:6] == b"\0" + schema_id.to_bytes(4, "big") + b"\0"
    assert order.FromString(value[6:]) == order(id=7, part=0.5)
    put(table, {"id": [1], "part": [0.1]})
    with pytest.raises(InvalidRequestError, match=r"offset 1 .*'part': 0\.1 does not fit"):
        sent.export(table, "protobuf")


def test_table_of_ones_own(sent: Sent, store: Store) -> None:
    """A field of the value may be a key column. A field that is null gets its default."""
    state = {"name": "state", "type": "string", "default": "new"}
    schema = {**ORDER, "fields": [*ORDER["fields"], state]}
    schema_id = sent.schema(schema)
    sent.schema("long", part="key")
    table = store.create_topic(
        "t", PARTITIONS, {"id": "bigint", "note": "string", "state": "string"}, ["id"]
    )
    put(table, {"id": [5, 6], "note": ["a", None], "state": [None, None]}, 1)
    with pytest.raises(InvalidRequestError, match=r"key of topic 't' is id, .*--key-format"):
        sent.export(table)
    sent.export(table, key_format="avro")
    (value, key), *rest = [(row["value"], row["key"]) for row in
                           sent.imported(None).read().read_all().to_pylist()]  # fmt: skip
    assert value == encoded(schema_id, schema, {"id": 5, "note": "a", "state": "new"})
    assert key[5:] == b"\x0a"
    assert rest[0][0] is None  # all of its value columns are null


@pytest.mark.parametrize(
    ("columns", "types", "reason"),
    [
        ({"id": [1, None], "note": ["a", "b"]}, ("bigint", "string"),
         "'id' is null, and the schema requires a value"),
        ({"id": ["1", "2"], "note": [None, None]}, ("string", "string"),
         "'id': the column is string, and the schema has int64"),
        ({"id": [1, 2], "note": [1, None]}, ("bigint", "int"),
         "'note': the column is int32, and the schema has string"),
    ],
)  # fmt: skip
def test_record_that_cannot_be_encoded_is_named_before_its_batch_is_sent(
    sent: Sent, store: Store, columns: dict[str, Any], types: tuple[str, str], reason: str
) -> None:
    sent.schema(ORDER)
    table = store.create_topic("t", PARTITIONS, dict(zip(("id", "note"), types, strict=True)))
    put(table, columns, 2)
    at = 1 if columns["id"] == [1, None] else 0
    place = f"the value of the record at offset {at} of partition 2 cannot be written as avro"
    with pytest.raises(InvalidRequestError, match=f"{place}: the field {reason}") as raised:
        sent.export(table)
    assert "Nothing of this batch was sent" in str(raised.value)
    assert table.group(f"kafka-export-{sent.topic}").positions() == {}
    assert sent.payloads() == []


def test_column_without_a_field_has_to_be_null(sent: Sent, store: Store) -> None:
    sent.schema(ORDER)
    table = store.create_topic("t", schema={"id": "bigint", "more": "int"})
    put(table, {"id": [1, 2], "more": [None, None]})
    assert sent.export(table) == 2
    put(table, {"id": [3, 4], "more": [None, 1]})
    with pytest.raises(InvalidRequestError, match=r"offset 3 .*no field for the column 'more'"):
        sent.export(table)


def test_columns_that_come_during_an_export_are_sent(sent: Sent, store: Store) -> None:
    """With the newest schema of then."""
    sent.schema({**ORDER, "fields": ORDER["fields"][:1]})
    table = store.create_topic("t", schema={"id": "bigint"})
    put(table, {"id": [1]})

    def grow(records: int) -> None:
        if records == 1:
            sent.schema(ORDER)
            table.alter(add_columns={"note": "string"})
            put(table, {"id": [2], "note": ["late"]})

    assert sent.export(table, on_progress=grow) == 2
    assert rows(sent.imported().read(), "id", "note") == [(1, None), (2, "late")]


def test_headers_that_name_the_schema_of_before_are_left_out(sent: Sent, store: Store) -> None:
    sent.schema(ORDER)
    table = store.create_topic("t", schema=pa.schema([("id", pa.int64()), ("headers", HEADERS)]))
    pairs = [{"key": VALUE_HEADER, "value": b"\0\0\0\0\x63"}, {"key": "h", "value": b"x"}]
    put(table, {"id": [1, 2], "headers": [pairs, None]})
    sent.export(table)
    assert rows(sent.imported().read(), "id", "headers") == [
        (1, [{"key": "h", "value": b"x"}]),
        (2, None),
    ]


def test_many_topics_are_encoded_with_their_own_schemas(feed: Feed, store: Store) -> None:
    schemas = {}
    for name in ("a", "b"):
        topic = feed.cluster.new_topic()
        feed.cluster.producer.list_topics(topic, timeout=30)
        fields = [{"name": name, "type": "long"}]
        schema = {"type": "record", "name": "R", "fields": fields}
        schemas[topic] = name, feed.registry.register(f"{topic}-value", schema)
        put(store.create_topic(topic, schema={name: "bigint"}), {name: [7]})
    done = export_topics(
        store,
        all_topics=True,
        bootstrap_servers=feed.cluster.servers,
        value_format="avro",
        schema_registry=feed.registry.url,
    )
    assert (done.records, done.errors) == (2, {})
    for topic, (name, schema_id) in schemas.items():
        import_topic(
            store, topic, name=f"{topic}-again", bootstrap_servers=feed.cluster.servers,
            copy_settings=False, value_format="avro", schema_registry=feed.registry.url,
        )  # fmt: skip
        again = store.topic(f"{topic}-again").read()
        assert rows(again, name, "value_schema_id") == [(7, schema_id)]


def test_what_does_not_go_together(sent: Sent, store: Store) -> None:
    table = store.create_topic("t", schema={"n": "int"})
    with pytest.raises(InvalidRequestError, match="to encode them, and --schema-registry"):
        sent.export(table, None, schema_registry=None)
    with pytest.raises(InvalidRequestError, match=r"`schema_registry` .*without `value_format`"):
        sent.export(table, None)
    with pytest.raises(InvalidRequestError, match=f"no schema of subject '{sent.topic}-value'"):
        sent.export(table)
    sent.schema(ORDER)
    with pytest.raises(InvalidRequestError, match=r"no column for the value of .*id, note"):
        sent.export(table)
    bytes_topic = store.create_topic("b")
    bytes_topic.append(kafka("a"))
    with pytest.raises(InvalidRequestError, match="which are bytes already: leave out"):
        sent.export(bytes_topic)
