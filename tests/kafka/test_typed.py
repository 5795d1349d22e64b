"""Typed imports from a real broker: values by confluent-kafka's own serializer, schemas that
change, damaged bytes, transactions, and an import that is killed again and again."""

from __future__ import annotations

import datetime
import json
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import pylogtable
from pylogtable import Store
from pylogtable.kafka import export_topic, import_topic, redrive
from tests.builders import rows
from tests.depth import rounds
from tests.kafka.conftest import NewKafkaTopic
from tests.kafka.test_import import ROOT, T0, in_kafka

UTC = datetime.timezone.utc
VERSIONS = 10
KILLS = rounds(4, deep=20)
RECORDS = rounds(20_000, deep=500_000)

ALL_TYPES = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "large", "type": "long"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "text", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "numbers", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
            },
        },
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


@pytest.fixture
def logs(tmp_path: Path) -> Store:
    return pylogtable.open(tmp_path / "logs")


@pytest.fixture
def producer(servers: str) -> Iterator[Any]:
    made = confluent_kafka.Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    yield made
    made.flush(30)


def everything(number: int) -> dict[str, Any]:
    moment = datetime.datetime(2024, 5, 1, tzinfo=UTC) + datetime.timedelta(minutes=number)
    return {
        "flag": number % 2 == 0,
        "small": -number,
        "large": number * 2**40,
        "single": number / 2,
        "double": number / 3,
        "text": f"text {number} \N{SNOWMAN}",
        "raw": bytes([number % 256, 0]),
        "maybe": None if number % 3 else "here",
        "colour": ("RED", "BLUE")[number % 2],
        "fixed": number.to_bytes(4, "big"),
        "numbers": [None, *range(number % 4)],
        "counts": {f"k{n}": n for n in range(number % 3)},
        "inner": {"x": number, "y": None if number % 2 else "y"},
        "price": Decimal(number) / 100,
        "day": moment.date(),
        "at": moment,
        "at_us": moment + datetime.timedelta(microseconds=number),
        "id": uuid.UUID(int=number),
    }


def serializer(registry: str, schema: Any) -> Any:
    client = SchemaRegistryClient({"url": registry})
    return AvroSerializer(client, json.dumps(schema))


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def typed(store: Store, servers: str, registry: str, topic: str, **more: Any) -> Any:
    given = {"value_format": "avro", "schema_registry": registry, **more}
    return import_topic(store, topic, bootstrap_servers=servers, **given)


def test_all_types_are_equal_to_what_confluents_deserializer_reads(
    servers: str, registry: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    topic = new_topic()
    write = serializer(registry, ALL_TYPES)
    for number in range(2_000):
        value = None if number % 13 == 0 else write(everything(number), value_of(topic))
        key = None if number % 11 == 0 else f"k{number % 50}"
        producer.produce(topic, value, key, timestamp=T0 + number)
    assert producer.flush(60) == 0
    report = typed(logs, servers, registry, topic, keep_raw=True)
    assert (report.records, report.dead_letters) == (2_000, 0)
    copy = logs.topic(topic)
    table = copy.read().read_all()
    sent = in_kafka(servers, topic)
    assert rows(table, "partition", "offset", "key", "raw_value") == [
        (partition, offset, key, value) for partition, offset, _, key, value, _ in sent
    ]
    read = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    names = [field["name"] for field in ALL_TYPES["fields"]]  # type: ignore[attr-defined]
    for row, (_, _, _, _, value, _) in zip(table.to_pylist(), sent, strict=True):
        expected = read(value, value_of(topic)) or dict.fromkeys(names)
        found = {name: row[name] for name in names}
        if found["counts"] is not None:
            found["counts"] = dict(found["counts"])
            expected["id"] = str(expected["id"])
        assert found == expected
        assert (row["value_schema_id"] is None) == (value is None)
    assert copy.verify(data=True)


def test_json_schema(
    servers: str, registry: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    """Keys as well. A key of Kafka stays in its partition."""
    topic = new_topic()
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {"n": {"type": "integer"}, "name": {"type": "string"}},
    }
    client = SchemaRegistryClient({"url": registry})
    write = JSONSerializer(json.dumps(schema), client)
    key = JSONSerializer(json.dumps({**schema, "title": "Key"}), client)
    key_of = SerializationContext(topic, MessageField.KEY)
    for number in range(300):
        value = {"n": number, "name": f"name {number}"}
        producer.produce(
            topic, write(value, value_of(topic)), key({"name": f"k{number % 7}"}, key_of)
        )
    assert producer.flush(60) == 0
    given = {"value_format": "json-schema", "key_format": "json-schema"}
    report = typed(logs, servers, registry, topic, **given)
    assert (report.records, report.dead_letters) == (300, 0)
    copy = logs.topic(topic)
    found = rows(copy.read(), "partition", "offset", "n", "name", "value_n", "value_name")
    for (partition, offset, _, _, value, _), row in zip(
        in_kafka(servers, topic), found, strict=True
    ):
        body = json.loads(value[5:])
        assert row == (partition, offset, None, f"k{body['n'] % 7}", body["n"], body["name"])


def test_statistics_of_typed_columns_exist(
    servers: str, registry: str, new_topic: NewKafkaTopic, producer: Any, tmp_path: Path
) -> None:
    """So an engine prunes by them."""
    import pyarrow.parquet as pq

    topic, store = new_topic(1), pylogtable.open(tmp_path / "logs")
    write = serializer(registry, ALL_TYPES)
    for number in range(100):
        producer.produce(topic, write(everything(number), value_of(topic)), timestamp=T0)
    assert producer.flush(60) == 0
    typed(store, servers, registry, topic)
    (path,) = (tmp_path / "logs" / topic).glob("partition=0/*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    found = {
        group.column(at).path_in_schema: group.column(at).statistics
        for at in range(group.num_columns)
    }
    assert (found["small"].min, found["small"].max) == (-99, 0)
    assert found["at"].has_min_max


def test_ten_versions_of_a_schema(
    servers: str, registry: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    """Each adds a field and takes another one away; one widens. Producers of all versions write at
    the same time."""
    topic = new_topic(2)
    schemas = []
    for version in range(VERSIONS):
        kind = "int" if version < 5 else "long"
        fields = [{"name": "n", "type": kind}]
        fields += [
            {"name": f"f{at}", "type": ["null", "string"], "default": None}  # type: ignore[dict-item]
            for at in range(max(0, version - 4), version + 1)
        ]
        schemas.append({"type": "record", "name": "Row", "fields": fields})
    writers = [serializer(registry, schema) for schema in schemas]
    chance = random.Random(28)
    sent = {}
    for number in range(3_000):
        # Newer versions come up over time, and older ones stay.
        version = chance.randrange(1 + number * VERSIONS // 3_000)
        value = {"n": number, f"f{version}": f"v{version}"}
        sent[number] = version
        producer.produce(topic, writers[version](value, value_of(topic)), timestamp=T0 + number)
    assert producer.flush(60) == 0
    report = typed(logs, servers, registry, topic, batch_bytes=20_000)
    assert (report.records, report.dead_letters) == (3_000, 0)
    copy = logs.topic(topic)
    assert copy.schema.field("n").type == pa.int64()
    assert {f"f{version}" for version in range(VERSIONS)} <= set(copy.schema.names)
    for row in copy.read().read_all().to_pylist():
        version = sent[row["n"]]
        assert {
            name: value for name, value in row.items() if name[0] == "f" and value is not None
        } == {f"f{version}": f"v{version}"}
    summaries = [dict(row["summary"]) for row in copy.history().to_pylist()]
    counted: dict[str, int] = {}
    for summary in summaries:
        for name, count in summary.items():
            counted[name] = counted.get(name, 0) + count
    assert counted == {f"value_schema_{name}": n for name, n in report.schema_ids.items()}
    assert sum(counted.values()) == 3_000
    assert copy.verify(data=True)


def test_damaged_bytes_of_a_transaction_and_a_redrive(
    servers: str, registry: str, new_topic: NewKafkaTopic, logs: Store
) -> None:
    """Dead letters of aborted transactions do not exist. Holes of Kafka and of dead letters are
    side by side."""
    topic = new_topic(1)
    write = serializer(registry, ALL_TYPES)
    settings = {"bootstrap.servers": servers, "transactional.id": f"{topic}-txn"}
    writer = confluent_kafka.Producer(settings)
    writer.init_transactions(30)
    for number in range(12):
        writer.begin_transaction()
        good = write(everything(number), value_of(topic))
        for value in (good, b"damaged %d" % number, good[:-3], None):
            writer.produce(topic, value, b"k", timestamp=T0)
        writer.flush(30)
        (writer.abort_transaction if number % 2 else writer.commit_transaction)(30)
    report = typed(logs, servers, registry, topic)
    assert (report.records, report.dead_letters) == (12, 12)
    letters = logs.topic(f"{topic}-dead-letters").read().read_all()
    both = {
        *rows(logs.topic(topic).read(), "partition", "offset"),
        *rows(letters, "kafka_partition", "kafka_offset"),
    }
    sent = in_kafka(servers, topic)
    assert both == {record[:2] for record in sent}
    values = {record[:2]: record[4] for record in sent}
    for partition, offset, value in rows(letters, "kafka_partition", "kafka_offset", "value"):
        assert values[partition, offset] == value
    again = typed(logs, servers, registry, topic)
    assert (again.records, again.dead_letters) == (0, 0)
    redriven = redrive(logs, topic, schema_registry=registry)
    assert (redriven.redriven, redriven.dead) == (0, 12)


@contextmanager
def following(
    servers: str, registry: str, topic: str, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pylogtable", "kafka", "import", "--follow"),
            *("--bootstrap-servers", servers, "--topic", topic, "--store", str(folder)),
            *("--linger", "0.1", "--batch-bytes", "200000", "--output", "json"),
            *("--value-format", "avro", "--schema-registry", registry),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_import_that_is_killed_again_and_again(
    servers: str, registry: str, new_topic: NewKafkaTopic, producer: Any, tmp_path: Path
) -> None:
    """Every record is in the copy or among the dead letters, once."""
    topic, folder = new_topic(3), tmp_path / "logs"
    store = pylogtable.open(folder)
    write = serializer(registry, ALL_TYPES)
    chance = random.Random(topic)
    for _ in range(KILLS):
        for number in range(RECORDS // KILLS):
            value = write(everything(number), value_of(topic))
            if number % 17 == 0:
                value = value[: chance.randrange(len(value))]
            producer.produce(topic, value, f"k{number % 97}", timestamp=T0 + number)
            producer.poll(0)
        assert producer.flush(60) == 0
        before = store.topic(topic).count() if topic in store.topics() else 0
        with following(servers, registry, topic, folder) as process:
            deadline = time.monotonic() + 120
            while topic not in store.topics() or store.topic(topic).count() == before:
                assert time.monotonic() < deadline
                assert process.poll() is None
            time.sleep(chance.random() / 4)
            process.send_signal(signal.SIGKILL)
    typed(store, servers, registry, topic)
    copy, letters = store.topic(topic), store.topic(f"{topic}-dead-letters")
    sent = in_kafka(servers, topic)
    places = rows(copy.read(), "partition", "offset")
    dead = rows(letters.read(), "kafka_partition", "kafka_offset")
    assert len(places) + len(dead) == len({*places, *dead}) == len(sent)
    assert {*places, *dead} == {record[:2] for record in sent}
    assert pc.sum(pc.is_null(copy.read().read_all()["value_schema_id"])).as_py() == 0
    assert len(dead) == sum(number % 17 == 0 for number in range(RECORDS // KILLS)) * KILLS
    assert copy.verify(data=True)
    assert letters.verify(data=True)


def test_export_is_equal_when_it_is_imported_again(
    servers: str, registry: str, new_topic: NewKafkaTopic, producer: Any, logs: Store
) -> None:
    """All types, tombstones and bytes as keys. Confluent's deserializer reads what was sent."""
    source, target = new_topic(), new_topic()
    client = SchemaRegistryClient({"url": registry})
    write = serializer(registry, ALL_TYPES)
    for number in range(1_000):
        value = None if number % 13 == 0 else write(everything(number), value_of(source))
        key = None if number % 11 == 0 else f"k{number % 50}"
        producer.produce(source, value, key, timestamp=T0 + number, headers={"n": str(number)})
    assert producer.flush(60) == 0
    typed(logs, servers, registry, source)
    client.register_schema(f"{target}-value", Schema(json.dumps(ALL_TYPES), "AVRO"))
    report = export_topic(
        logs.topic(source),
        bootstrap_servers=servers,
        kafka_topic=target,
        value_format="avro",
        schema_registry=registry,
    )
    assert report.records == 1_000
    assert typed(logs, servers, registry, target).dead_letters == 0
    assert logs.topic(target).read().read_all() == logs.topic(source).read().read_all()
    read = AvroDeserializer(client)
    for one, other in zip(in_kafka(servers, source), in_kafka(servers, target), strict=True):
        assert one[:4] == other[:4]
        assert read(one[4], value_of(source)) == read(other[4], value_of(target))
        assert one[5:] == other[5:]
