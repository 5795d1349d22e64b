"""Values that Confluent's own serializers write, with a real schema registry, become columns."""

from __future__ import annotations

import itertools
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pylogtable import StorageError
from pylogtable.kafka import decoder, encoder
from tests.library.kafka.values.framing import framed, only_group, payloads, reasons
from tests.library.kafka.values.protos import PLACE, classes, file_of, place

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


@pytest.fixture
def value_of() -> SerializationContext:
    """Of a topic that no other test has."""
    return SerializationContext(f"topic-{next(_numbers)}", MessageField.VALUE)


def test_avro(registry: str, client: SchemaRegistryClient, value_of: SerializationContext) -> None:
    client.register_schema("address", Schema(json.dumps(record("Address", city="string")), "AVRO"))
    schema = record(
        "Order",
        id="long",
        price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        at={"type": "long", "logicalType": "timestamp-millis"},
        day={"type": "int", "logicalType": "date"},
        to=["null", "Address"],
        either=["string", "long"],
    )
    references = [SchemaReference("Address", "address", 1)]
    write = AvroSerializer(client, Schema(json.dumps(schema), "AVRO", references))
    rows = [
        {
            "id": number,
            "price": Decimal("1.25"),
            "at": datetime(2024, 1, 1, tzinfo=timezone.utc),
            "day": date(2024, 1, 1),
            "to": {"city": "B"} if number else None,
            "either": "x" if number else 7,
        }
        for number in range(3)
    ]
    bodies = [write(row, value_of) for row in rows]
    found = decoder("avro", schema_registry=registry).decode(payloads(*bodies))
    group = only_group(found)
    assert group.schema_id == int.from_bytes(bodies[0][1:5], "big")
    for row in rows:
        is_text = isinstance(row["either"], str)
        row["either"] = {
            "member0": row["either"] if is_text else None,
            "member1": None if is_text else row["either"],
        }
    assert group.values.to_pylist() == rows


def test_ten_versions_of_a_schema(
    registry: str, client: SchemaRegistryClient, value_of: SerializationContext
) -> None:
    bodies = []
    for version in range(10):
        names = [f"f{number}" for number in range(version + 1)]
        fields = [{"name": name, "type": "int", "default": 0} for name in names]
        schema = {"type": "record", "name": "R", "fields": fields}
        write = AvroSerializer(client, json.dumps(schema))
        bodies.append(write(dict.fromkeys(names, version), value_of))
    found = decoder("avro", schema_registry=registry).decode(payloads(*bodies))
    assert not found.failures
    assert [len(group.values.type) for group in found.groups] == list(range(1, 11))
    ids = [group.schema_id for group in found.groups]
    assert len(set(ids)) == 10


def test_json_schema(
    registry: str, client: SchemaRegistryClient, value_of: SerializationContext
) -> None:
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
    write = JSONSerializer(json.dumps(schema), client)
    rows = [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}]
    given = payloads(*(write(row, value_of) for row in rows))
    found = decoder("json-schema", schema_registry=registry).decode(given)
    assert only_group(found).values.to_pylist() == rows


def test_protobuf(
    registry: str, client: SchemaRegistryClient, value_of: SerializationContext
) -> None:
    file = file_of("order.proto", {"Row": ["int64 id", "Place at"], "Other": ["string s"]}, [PLACE])
    made = classes(place(), file)
    row, other = made["Row"](id=1, at={"city": "B"}), made["Other"](s="x")
    bodies = [ProtobufSerializer(type(each), client)(each, value_of) for each in (row, other, row)]
    found = decoder("protobuf", schema_registry=registry).decode(payloads(*bodies))
    assert not found.failures
    shown = [(group.rows.tolist(), group.values.to_pylist()) for group in found.groups]
    assert shown == [([0, 2], [{"id": 1, "at": {"city": "B"}}] * 2), ([1], [{"s": "x"}])]


def test_what_is_written_is_read_by_confluents_deserializers(
    registry: str, client: SchemaRegistryClient, value_of: SerializationContext
) -> None:
    table = pa.table({"id": [1, 2], "tags": [["a", "b"], []]})
    rows = table.to_pylist()
    tags = {"type": "array", "items": "string"}
    avro = json.dumps(record("Order", id="long", tags=tags))
    properties = {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}
    plain = json.dumps({"title": "Order", "type": "object", "properties": properties})
    file = file_of("tags.proto", {"Order": ["int64 id", "repeated string tags"]})
    message = classes(file)["Order"]
    ProtobufSerializer(message, client)(message(id=1), value_of)  # registers it
    subject = f"{value_of.topic}-value"
    client.register_schema(f"{subject}-avro", Schema(avro, "AVRO"))
    client.register_schema(f"{subject}-json", Schema(plain, "JSON"))

    def written(format: str, name: str) -> list[bytes]:
        found: list[bytes] = (
            encoder(format, schema_registry=registry, subject=name).encode(table).to_pylist()
        )
        return found

    read = AvroDeserializer(client)
    assert [read(each, value_of) for each in written("avro", f"{subject}-avro")] == rows
    read = JSONDeserializer(plain, schema_registry_client=client)
    assert [read(each, value_of) for each in written("json-schema", f"{subject}-json")] == rows
    read = ProtobufDeserializer(message, {}, client)
    found = [read(each, value_of) for each in written("protobuf", subject)]
    assert [{"id": each.id, "tags": list(each.tags)} for each in found] == rows


def test_an_id_that_the_registry_does_not_know(registry: str) -> None:
    found = decoder("avro", schema_registry=registry).decode(payloads(framed(9_999, b"")))
    assert "schema 9999" in reasons(found)[0]


def test_a_url_without_its_path(registry: str) -> None:
    url = registry.removesuffix("/apis/ccompat/v7")
    with pytest.raises(StorageError, match="may lack a path"):
        decoder("avro", schema_registry=url).decode(payloads(framed(1, b"")))


def record(name: str, **fields: Any) -> dict[str, Any]:
    parts = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": parts}
