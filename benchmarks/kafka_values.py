"""Decoding values of Avro into columns, against a bare loop of confluent-kafka's AvroDeserializer.

Both read the same bytes in this process, and the same schema from a small server of ours.
`.venv/bin/python -m benchmarks.kafka_values [RECORDS]`
"""

from __future__ import annotations

import io
import itertools
import os
import sys
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.peers.rounds import medians
from benchmarks.result import Result, print_table
from pylogtable.kafka import decoder
from tests.library.kafka.registry import registry_server

ROUNDS = 3
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "items", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
    ],
}


def bodies(records: int) -> list[bytes]:
    schema = fastavro.parse_schema(SCHEMA)
    stream = io.BytesIO()
    ends = [0]
    for number in range(records):
        row = {
            "id": number,
            "customer": f"customer-{number % 1_000}",
            "amount": number * 0.5,
            "items": number % 100,
            "paid": number % 2 == 0,
            "at": 1_700_000_000_000 + number,
            "note": "please ring twice" if number % 3 else None,
            "state": "NEW" if number % 7 else "DONE",
        }
        fastavro.schemaless_writer(stream, schema, row)
        ends.append(stream.tell())
    written = stream.getvalue()
    return [written[start:end] for start, end in itertools.pairwise(ends)]


def run(records: int) -> list[Result]:
    with registry_server() as registry:
        head = b"\0" + registry.register("orders-value", SCHEMA).to_bytes(4, "big")
        payloads = [head + body for body in bodies(records)]
        column = pa.array(payloads, pa.binary())
        reader = decoder("avro", schema_registry=registry.url)
        deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
        about = SerializationContext("orders", MessageField.VALUE)

        def ours() -> None:
            (group,) = reader.decode(column).groups
            assert len(group.rows) == records

        def theirs() -> None:
            for payload in payloads:
                deserialize(payload, about)

        seconds = medians({"ours": ours, "theirs": theirs}, ROUNDS)

    def shown(name: str) -> str:
        return f"{seconds[name]:.2f} s, {records / seconds[name]:,.0f} records/s"

    name = f"decode {records:,} values of Avro, 8 fields"
    yardstick = f"AvroDeserializer, {shown('theirs')}"
    return [Result(name, shown("ours"), yardstick, seconds["theirs"] / seconds["ours"], 1.0)]


if __name__ == "__main__":
    results = run(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    print(f"load {os.getloadavg()[0]:.1f} at the end, {os.cpu_count()} cores")
    print_table(results)
    sys.exit(not all(result.reached for result in results))
