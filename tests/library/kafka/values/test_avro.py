"""Avro becomes columns."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylogtable import InvalidRequestError
from pylogtable.kafka import decoder
from tests.depth import rounds
from tests.library.kafka.registry import RegistryServer
from tests.library.kafka.values.avro_cases import as_column, encode, read, records, same, values
from tests.library.kafka.values.framing import framed, of, only_group, payloads, reasons

_SHARED = settings(
    max_examples=rounds(100, deep=1000),
    suppress_health_check=list(HealthCheck),
)
POINT = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "long"}, {"name": "name", "type": "string"}],
}


def field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": "v", "type": kind}]}


def decoded(registry: RegistryServer, schema: Any, *objects: Any) -> pa.Array:
    """The values as they come back, all of them."""
    number = registry.register("s", schema)
    found = of(registry).decode(payloads(*(framed(number, encode(schema, v)) for v in objects)))
    assert not found.failures
    return only_group(found).values


@given(st.data())
@_SHARED
def test_random_values_are_what_fastavro_reads(
    registry: RegistryServer, data: st.DataObject
) -> None:
    schema = data.draw(records())
    bodies = [encode(schema, v) for v in data.draw(st.lists(values(schema), min_size=1))]
    number = registry.register("s", schema)
    found = of(registry).decode(payloads(*(framed(number, body) for body in bodies)))
    assert not found.failures
    group = only_group(found)
    assert group.is_record
    assert group.schema_id == number
    assert group.rows.tolist() == list(range(len(bodies)))
    wanted = [as_column(schema, read(schema, body)) for body in bodies]
    assert same(group.values.to_pylist()) == wanted


@given(st.data())
@_SHARED
def test_damage_stays_in_its_value(registry: RegistryServer, data: st.DataObject) -> None:
    schema = data.draw(records())
    bodies = [encode(schema, v) for v in data.draw(st.lists(values(schema), min_size=3))]
    hurt = data.draw(st.sets(st.integers(0, len(bodies) - 1), min_size=1, max_size=3))
    for row in hurt:
        bodies[row] = data.draw(damaged(bodies[row]))
    number = registry.register("s", schema)
    found = of(registry).decode(payloads(*(framed(number, body) for body in bodies)))
    shown: dict[int, Any] = {}
    for group in found.groups:
        shown |= dict(zip(group.rows.tolist(), same(group.values.to_pylist()), strict=True))
    assert not shown.keys() & reasons(found).keys()
    assert shown.keys() | reasons(found).keys() == set(range(len(bodies)))
    for row, body in enumerate(bodies):
        is_read, wanted = wanted_of(schema, body)
        # What fastavro reads and we do not: integers beyond 32 bits, keys that come twice.
        assert row in shown or row in hurt
        assert row not in shown or (is_read and shown[row] == wanted), f"{body!r} of {schema}"


def wanted_of(schema: Any, body: bytes) -> tuple[bool, Any]:
    """Whether fastavro reads all of a body, and what that is in a column."""
    try:
        return True, as_column(schema, read(schema, body))
    except Exception:
        return False, None


def damaged(body: bytes) -> st.SearchStrategy[bytes]:
    longer = st.binary(min_size=1, max_size=3).map(lambda more: body + more)
    if not body:
        return longer
    place = st.integers(0, len(body) - 1)
    cut = place.map(lambda end: body[:end])
    flipped = st.tuples(place, st.integers(1, 255)).map(
        lambda both: body[: both[0]] + bytes([body[both[0]] ^ both[1]]) + body[both[0] + 1 :]
    )
    return st.one_of(longer, cut, flipped)


def test_one_value_that_makes_up_for_another_is_no_value(registry: RegistryServer) -> None:
    """Read one after the other, these four are four whole values: the second takes in the third,
    and the fourth is two."""
    number = registry.register("s", field("string"))
    bodies = [b"\x04ab", b"\x0aab", b"\x04cd", b"\x04ef" + b"\x04gh"]
    found = of(registry).decode(payloads(*(framed(number, body) for body in bodies)))
    assert only_group(found).values.to_pylist() == [{"v": "ab"}, {"v": "cd"}]
    assert reasons(found).keys() == {1, 3}
    assert "end too early" in reasons(found)[1]
    assert "go on after its last field" in reasons(found)[3]


def test_types_of_columns(registry: RegistryServer) -> None:
    logical = [
        ("date", {"type": "int", "logicalType": "date"}),
        ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
        ("time", {"type": "int", "logicalType": "time-millis"}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("odd", {"type": "string", "logicalType": "made-up"}),
        ("nothing", "null"),
        ("both", ["null", "int", "long"]),
        ("wider", ["float", "double"]),
        ("many", ["null", "string", "int"]),
        ("tags", {"type": "map", "values": "int"}),
        ("list", {"type": "array", "items": "float"}),
    ]
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in logical],
    }
    value = {
        "date": date(1, 1, 1),
        "millis": datetime(9999, 12, 31, tzinfo=timezone.utc),
        "local": datetime(2024, 1, 1),
        "time": datetime(2024, 1, 1, 0, 0, 1).time(),
        "price": Decimal("-1.25"),
        "id": "0b9b0a5e-8a4e-4d6a-9a43-0f7d2a4dc0ff",
        "odd": "x",
        "nothing": None,
        "both": 2**40,
        "wider": 0.5,
        "many": 7,
        "tags": {"a": 1},
        "list": [0.5],
    }
    found = decoded(registry, schema, value)
    assert {f.name: str(f.type) for f in found.type} == {
        "date": "date32[day]",
        "millis": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]",
        "time": "int32",
        "price": "decimal128(9, 2)",
        "id": "string",
        "odd": "string",
        "nothing": "string",
        "both": "int64",
        "wider": "double",
        "many": "struct<member0: string, member1: int32>",
        "tags": "map<string, int32>",
        "list": "list<element: float>",
    }
    assert found.to_pylist() == [
        {**value, "time": 1000, "many": {"member0": None, "member1": 7}, "tags": [("a", 1)]}
    ]


def test_nanoseconds_are_cut_off(registry: RegistryServer) -> None:
    schema = field({"type": "long", "logicalType": "timestamp-nanos"})
    assert decoded(registry, schema, {"v": 1_999}, {"v": -1}).field("v").cast(
        pa.int64()
    ).to_pylist() == [1, -1]


def test_a_fixed_uuid_is_text(registry: RegistryServer) -> None:
    schema = field({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"})
    number = registry.register("s", schema)
    found = of(registry).decode(payloads(framed(number, bytes(range(16)))))
    (row,) = only_group(found).values.to_pylist()
    assert row == {"v": "00010203-0405-0607-0809-0a0b0c0d0e0f"}


@pytest.mark.parametrize("schema", ["string", {"type": "array", "items": "string"}])
def test_a_value_need_not_be_a_record(registry: RegistryServer, schema: Any) -> None:
    number = registry.register("s", schema)
    value = "ab" if schema == "string" else ["ab"]
    found = of(registry).decode(payloads(framed(number, encode(schema, value))))
    assert not only_group(found).is_record
    assert only_group(found).values.to_pylist() == [value]


def test_a_record_may_be_null(registry: RegistryServer) -> None:
    found = decoded(registry, ["null", POINT], None, {"x": 1, "name": "a"})
    assert found.to_pylist() == [None, {"x": 1, "name": "a"}]


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "years 1 to 9999"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "years 1 to 9999",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\x04\x00\x64",
            "100 does not fit in precision",
        ),
        ("string", b"\x02\xff", "can't decode byte 0xff"),
        ("string", b"\x08ab", "end too early"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "symbol"),
        ({"type": "map", "values": "null"}, b"\x04\x02a\x02a\x00", "key twice"),
    ],
)
def test_a_value_that_fits_nowhere_says_why(
    registry: RegistryServer, kind: Any, body: bytes, reason: str
) -> None:
    number = registry.register("s", {**field(kind), "fields": [{"name": "v", "type": kind}]})
    found = of(registry).decode(payloads(framed(number, body), None))
    assert not found.groups
    assert reason in reasons(found)[0]
    assert f"schema {number}: " in reasons(found)[0]
    assert found.failures[0].schema_id == number


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (field(["null", "Row"]), "'Row' contains itself"),
        (
            field({"type": "bytes", "logicalType": "decimal", "precision": 39}),
            "more than 38 digits",
        ),
        (field({"type": "record", "name": "Empty", "fields": []}), "'Empty' has no fields"),
        (field({"type": "array", "items": "null"}), "take no bytes"),
        ({"type": "what"}, "no schema of Avro"),
    ],
)
def test_a_schema_that_cannot_be_columns_fails_each_value(
    registry: RegistryServer, schema: Any, reason: str
) -> None:
    number, fine = registry.register("s", schema), registry.register("t", POINT)
    good = framed(fine, encode(POINT, {"x": 1, "name": "a"}))
    found = of(registry).decode(payloads(framed(number, b"\x00"), good, framed(number, b"\x02")))
    assert only_group(found).rows.tolist() == [1]
    assert set(reasons(found)) == {0, 2}
    assert all(reason in why and f"schema {number}" in why for why in reasons(found).values())


def test_a_schema_that_doubles_on_each_level_is_refused(registry: RegistryServer) -> None:
    schema: Any = field("int")
    for level in range(60):
        pair = [{"name": "a", "type": schema}, {"name": "b", "type": schema["name"]}]
        schema = {"type": "record", "name": f"L{level}", "fields": pair}
    number = registry.register("s", schema)
    found = of(registry).decode(payloads(framed(number, b"\x00")))
    assert "more than 10000 fields" in reasons(found)[0]


def test_references(registry: RegistryServer) -> None:
    registry.register("point", POINT)
    line = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "start", "type": "Point"}, {"name": "end", "type": "Point"}],
    }
    reference = {"name": "Point", "subject": "point", "version": 1}
    number = registry.register("line", line, references=[reference])
    body = b"\x02\x02a" + b"\x04\x02b"
    found = of(registry).decode(payloads(framed(number, body)))
    (row,) = only_group(found).values.to_pylist()
    assert row == {"start": {"x": 1, "name": "a"}, "end": {"x": 2, "name": "b"}}


def test_a_schema_from_a_file_reads_bodies_with_and_without_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "point.avsc"
    path.write_text(json.dumps(POINT))
    bodies = [encode(POINT, {"x": x, "name": "n"}) for x in (0, 1, 2, 3)]
    given = payloads(framed(7, bodies[0]), bodies[1], None, bodies[0], framed(7, b"\x01"), b"")
    found = decoder("avro", schema=path).decode(given)
    group = only_group(found)
    assert (group.schema_id, group.rows.tolist()) == (None, [0, 1, 3])
    assert group.values.field("x").to_pylist() == [0, 1, 0]
    assert set(reasons(found)) == {4, 5}


def test_a_schema_has_to_come_from_somewhere(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"either `schema_registry`.* or `schema`"):
        decoder("avro")
    with pytest.raises(InvalidRequestError, match=r"nowhere.avsc cannot be read"):
        decoder("avro", schema=tmp_path / "nowhere.avsc")
    path = tmp_path / "bad.avsc"
    path.write_text("{")
    with pytest.raises(InvalidRequestError, match=r"bad.avsc cannot be used: .*no schema of Avro"):
        decoder("avro", schema=path)
