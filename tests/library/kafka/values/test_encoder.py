"""Columns become payloads, which decode to the same columns."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylogtable import InvalidRequestError
from pylogtable.kafka import decoder, encoder
from pylogtable.kafka.values.encoder import Encoder
from tests.depth import rounds
from tests.library.kafka.registry import RegistryServer
from tests.library.kafka.values.avro_cases import as_column, encode, read, records, same, values
from tests.library.kafka.values.framing import framed, of, only_group, payloads
from tests.library.kafka.values.protos import (
    WELL_KNOWN,
    as_registered,
    classes,
    descriptor_set,
    file_of,
)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": "string", "default": "new"},
    ],
}


def writer(registry: RegistryServer, format: str = "avro") -> Encoder:
    return encoder(format, schema_registry=registry.url, subject="s")


def as_table(array: pa.StructArray) -> pa.Table:
    return pa.Table.from_arrays(array.flatten(), names=[field.name for field in array.type])


@given(st.data())
@settings(max_examples=rounds(100, deep=1000), suppress_health_check=list(HealthCheck))
def test_random_columns_are_written_as_they_were_read(
    registry: RegistryServer, data: st.DataObject
) -> None:
    schema = data.draw(records())
    bodies = [encode(schema, v) for v in data.draw(st.lists(values(schema), min_size=1))]
    number = registry.register("s", schema)
    decoded = of(registry).decode(payloads(*(framed(number, body) for body in bodies)))
    table = as_table(only_group(decoded).values)
    written = encoder("avro", schema_registry=registry.url, subject="s")
    # Drawn schemas are registered one after the other, and the newest is not always the last one.
    if written.schema_id != number:
        return
    again = written.encode(table.slice(1)).to_pylist()
    for body, payload in zip(bodies[1:], again, strict=True):
        wanted = as_column(schema, read(schema, body))
        if payload is None:
            assert set(wanted.values()) == {None}
        else:
            assert payload[:5] == framed(number, b"")
            assert same(as_column(schema, read(schema, payload[5:]))) == wanted


def test_the_newest_schema_of_the_subject(registry: RegistryServer) -> None:
    registry.register("s", {**ORDER, "fields": ORDER["fields"][:1]})
    newest = registry.register("s", ORDER)
    registry.register("other", "string")
    made = writer(registry)
    assert made.schema_id == newest
    given = pa.table({"note": ["a", None, None], "id": pa.array([1, 2, None], pa.int64())})
    written = made.encode(given)
    assert written.to_pylist() == [
        framed(newest, b"\x02\x02\x02a\x06new"),
        framed(newest, b"\x04\x00\x06new"),
        None,
    ]
    assert made.encode(given.slice(1, 1).to_batches()[0]).to_pylist() == written.to_pylist()[1:2]
    assert made.encode(given.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": [1, 2**31]}, r"row 1 cannot be written as avro: .*2147483648"),
        ({"id": [1, None], "note": ["a", "b"]}, "row 1 cannot be written as avro"),
        ({"id": [1, 2], "more": [1, 2]}, "row 0 .*the schema has no field for more"),
        ({"note": ["a", "b"]}, "row 0 .*no column for the field 'id'"),
    ],
)
def test_what_does_not_fit_is_named(
    registry: RegistryServer, columns: dict[str, Any], reason: str
) -> None:
    registry.register("s", ORDER)
    with pytest.raises(InvalidRequestError, match=reason):
        writer(registry).encode(pa.table(columns))


def test_no_digit_is_lost(registry: RegistryServer) -> None:
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    registry.register("s", {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]})
    at = datetime(2024, 1, 1, 0, 0, 0, 1, timezone.utc)
    with pytest.raises(InvalidRequestError, match="would lose data"):
        writer(registry).encode(pa.table({"v": pa.array([at], pa.timestamp("us", tz="UTC"))}))


def test_a_decimal_takes_as_many_bytes_as_it_needs(registry: RegistryServer) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    number = registry.register(
        "s", {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    )
    column = pa.array(map(Decimal, ("0", "1.27", "1.28", "-1.28", "-1.29")), pa.decimal128(9, 2))
    assert writer(registry).encode(pa.table({"v": column})).to_pylist() == [
        framed(number, body)
        for body in (b"\x02\x00", b"\x02\x7f", b"\x04\x00\x80", b"\x02\x80", b"\x04\xff\x7f")
    ]


def test_a_schema_that_is_no_record_takes_one_column(registry: RegistryServer) -> None:
    number = registry.register("s", "string")
    made = writer(registry)
    assert made.encode(pa.table({"key": ["a"]})).to_pylist() == [framed(number, b"\x02a")]
    with pytest.raises(InvalidRequestError, match="is no record, and there are 2 columns: a, b"):
        made.encode(pa.table({"a": ["x"], "b": ["y"]}))


def test_a_subject_that_is_not_there(registry: RegistryServer) -> None:
    with pytest.raises(InvalidRequestError, match="no schema of subject 's'"):
        writer(registry)


def test_json_with_a_schema(registry: RegistryServer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "object", "additionalProperties": {"type": "number"}},
            "lines": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}},
            "free": {},
        },
    }
    number = registry.register("s", schema, "JSON")
    bodies = [
        b'{"id":1,"at":"2024-01-01T00:00:00Z","tags":{"a":0.5},"lines":[{"n":1},{}],"free":[1]}',
        b'{"id":2}',
    ]
    decoded = of(registry, "json-schema").decode(payloads(*(framed(number, b) for b in bodies)))
    table = as_table(only_group(decoded).values)
    written = writer(registry, "json-schema").encode(table).to_pylist()
    assert written == [framed(number, body) for body in bodies]
    with pytest.raises(InvalidRequestError, match=r"row 0 .*Expected `int.*\$.id"):
        writer(registry, "json-schema").encode(pa.table({"id": ["x"]}))


def test_json_has_the_fields_that_its_schema_requires(registry: RegistryServer) -> None:
    properties = {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}, "x": {}}
    schema = {"type": "object", "properties": properties, "required": ["id", "note"]}
    number = registry.register("s", schema, "JSON")
    table = pa.table({"id": [1, None], "note": pa.array([None, "a"], pa.string())})
    made = writer(registry, "json-schema")
    assert made.encode(table[:1]).to_pylist() == [framed(number, b'{"id":1,"note":null}')]
    with pytest.raises(InvalidRequestError, match=r"row 1 .*'id' is null, and the schema requires"):
        made.encode(table)


def test_a_null_is_the_default_of_its_field(registry: RegistryServer) -> None:
    """As for a reader with this schema of a value that was written before the field was there."""
    number = registry.register("s", ORDER)
    state = pa.array([None, "done"], pa.string())
    assert writer(registry).encode(pa.table({"id": [1, 2], "state": state})).to_pylist() == [
        framed(number, b"\x02\x00\x06new"),
        framed(number, b"\x04\x00\x08done"),
    ]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", pa.array(["5"])),
        ("string", pa.array([5])),
        ("boolean", pa.array([1])),
        ("float", pa.array([0.1])),
        ({"type": "array", "items": "long"}, pa.array([["1"]])),
        ({"type": "int", "logicalType": "date"}, pa.array([0], pa.timestamp("us", "UTC"))),
    ],
)
def test_a_cast_never_changes_what_a_value_is(
    registry: RegistryServer, kind: Any, column: pa.Array
) -> None:
    fields = [{"name": "v", "type": kind}]
    registry.register("s", {"type": "record", "name": "R", "fields": fields})
    with pytest.raises(InvalidRequestError, match="the field 'v': the column is "):
        writer(registry).encode(pa.table({"v": column}))


def test_json_without_a_schema() -> None:
    table = pa.table({"id": [1, 2], "note": ["a", None], "price": [Decimal("1.50")] * 2})
    written = encoder("json").encode(table)
    assert written.to_pylist() == [
        b'{"id":1,"note":"a","price":1.50}',
        b'{"id":2,"price":1.50}',
    ]
    assert not decoder("json").decode(written).failures


def test_a_schema_from_a_file_frames_nothing(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    made = encoder("avro", schema=path)
    assert made.schema_id is None
    assert made.encode(pa.table({"id": [1]})).to_pylist() == [b"\x02\x00\x06new"]


def test_what_an_encoder_needs(registry: RegistryServer, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="`subject`, or `schema`"):
        encoder("avro", schema_registry=registry.url)
    with pytest.raises(InvalidRequestError, match="did you mean 'avro'"):
        encoder("avor", schema=tmp_path)
    registry.register("s", "string")
    with pytest.raises(InvalidRequestError, match="schema of AVRO, and the format is protobuf"):
        writer(registry, "protobuf")


def test_protobuf(registry: RegistryServer, tmp_path: Path) -> None:
    fields = [
        *(
            "oneof int32 a",
            "int32 i",
            "uint64 u",
            "string s",
            "bytes b",
            "optional int32 maybe",
            "Color color",
        ),
        *("Inner inner", "repeated Inner inners", "repeated int64 numbers"),
        *("map string int32 counts", "map int32 Inner by_number"),
        *("google.protobuf.Timestamp at", "google.protobuf.StringValue wrapped"),
        *("google.protobuf.Struct free", "google.protobuf.Empty nothing"),
    ]
    file = file_of(
        "t.proto",
        {"Row": fields, "Inner": ["string x"]},
        WELL_KNOWN,
        {"Color": ["RED", "GREEN"]},
    )
    row = classes(file)["Row"]
    full = row(
        i=-1, u=2**64 - 1, s="ä", b=b"\xff", maybe=0, color=1, inner={}, inners=[{"x": "a"}, {}],
        numbers=[1, 2], counts={"k": 1, "l": 0}, by_number={7: {}}, wrapped={}, nothing={}, a=0,
    )  # fmt: skip
    full.at.FromDatetime(datetime(2024, 1, 1, 0, 0, 0, 250_000))
    full.free.update({"n": 1.0})
    messages = [full, row(color=9), row(i=1)]
    number = registry.register("s", as_registered(file), "PROTOBUF")
    given = payloads(*(framed(number, b"\0" + each.SerializeToString()) for each in messages))
    table = as_table(only_group(of(registry, "protobuf").decode(given)).values)
    written = writer(registry, "protobuf").encode(table).to_pylist()
    assert [payload[:6] for payload in written] == [framed(number, b"\0")] * 3
    assert [row.FromString(payload[6:]) for payload in written] == messages
    path = tmp_path / "t.bin"
    path.write_bytes(descriptor_set(file))
    bare = encoder("protobuf", schema=path).encode(table).to_pylist()
    assert [row.FromString(payload) for payload in bare] == messages
    with pytest.raises(InvalidRequestError, match=r"row 0 .*no field for other"):
        writer(registry, "protobuf").encode(pa.table({"other": [1]}))
    with pytest.raises(InvalidRequestError, match="row 1 "):
        writer(registry, "protobuf").encode(pa.table({"i": [1, 2**31]}))
