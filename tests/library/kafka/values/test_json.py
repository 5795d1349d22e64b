"""JSON becomes columns, with a JSON Schema and without."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylogtable.kafka import Decoded, decoder
from tests.depth import rounds
from tests.library.kafka.registry import RegistryServer
from tests.library.kafka.values.framing import framed, of, only_group, payloads, reasons

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "ok": {"type": "boolean"},
        "name": {"type": ["null", "string"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "state": {"enum": ["new", "paid"]},
        "kind": {"const": "order"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "to": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/address"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "free": {"type": "object"},
        "a b": {"allOf": [{"$ref": "#/definitions/address"}]},
    },
    "definitions": {
        "address": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def decoded(registry: RegistryServer, schema: Any, *bodies: bytes) -> Decoded:
    number = registry.register("s", schema, "JSON")
    return of(registry, "json-schema").decode(payloads(*(framed(number, b) for b in bodies)))


def test_types_of_columns(registry: RegistryServer) -> None:
    value = {
        "id": 2**60,
        "price": 5,
        "ok": True,
        "name": "ä",
        "at": "2024-01-01T02:00:00.25+02:00",
        "day": "2024-01-31",
        "state": "new",
        "kind": "order",
        "tags": ["x"],
        "counts": {"a": 1},
        "to": {"city": "B", "not in the schema": 1},
        "either": "text",
        "free": {"x": [1, None]},
        "a b": {"city": None},
    }
    found = decoded(registry, OBJECT, text(value), b"{}", b'{"id": 7.0, "either": 5}')
    group = only_group(found)
    assert group.is_record
    assert {f.name: str(f.type) for f in group.values.type} == {
        "id": "int64",
        "price": "double",
        "ok": "bool",
        "name": "string",
        "at": "timestamp[us, tz=UTC]",
        "day": "date32[day]",
        "state": "string",
        "kind": "string",
        "tags": "list<element: string>",
        "counts": "map<string, int64>",
        "to": "struct<city: string>",
        "either": "string",
        "free": "string",
        "a b": "struct<city: string>",
    }
    first, empty, third = group.values.to_pylist()
    assert first == {
        **value,
        "at": datetime(2024, 1, 1, 0, 0, 0, 250_000, timezone.utc),
        "day": date(2024, 1, 31),
        "counts": [("a", 1)],
        "to": {"city": "B"},
        "either": '"text"',
        "free": '{"x":[1,null]}',
    }
    assert set(empty.values()) == {None}
    assert (third["id"], third["either"]) == (7, "5")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"id": "x"}', "Expected `int | float | null`, got `str` - at `$.id`"),
        (b'{"id": 1.5}', "multiple of 1"),
        (b'{"id": 1e19}', "<= 9007199254740992"),
        (b'{"id": 9223372036854775808}', "too large"),
        (b'{"at": "2024-01-01T00:00:00"}', "timezone"),
        (b'{"tags": [1]}', "$.tags[0]"),
        (b"[]", "Expected `object | null`, got `array`"),
        (b'{"id": 1}{"id": 2}', "trailing characters"),
        (b'{"id": 1', "truncated"),
        (b'{"name": "\xff"}', "can't decode byte 0xff"),
        (b"", "truncated"),
        (b'{"free": ' + b"[" * 100_000, "recursion"),
    ],
)
def test_a_value_that_does_not_fit_says_why(
    registry: RegistryServer, body: bytes, reason: str
) -> None:
    found = decoded(registry, OBJECT, b'{"id": 1}', body, b'{"id": 2}')
    assert only_group(found).values.field("id").to_pylist() == [1, 2]
    assert reason in reasons(found)[1]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "integer"}, "int64"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),
        ({"enum": [1, 2, None]}, "int64"),
        ({"enum": [1, "a"]}, "string"),
        ({"type": "array"}, "string"),
        ({"type": "array", "items": [{"type": "string"}]}, "string"),
        (True, "string"),
        ({}, "string"),
        ({"type": "null"}, "string"),
        ({"items": {"type": "boolean"}}, "list<element: bool>"),
    ],
)
def test_a_value_need_not_be_an_object(registry: RegistryServer, schema: Any, column: str) -> None:
    found = decoded(registry, schema, b"null")
    assert not only_group(found).is_record
    assert str(only_group(found).values.type) == column
    assert only_group(found).values.to_pylist() == [None]


def test_a_schema_inside_of_itself_is_text(registry: RegistryServer) -> None:
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#"}}}
    found = decoded(registry, tree, b'{"n": 1, "next": {"n": 2, "next": null}}')
    assert only_group(found).values.to_pylist() == [{"n": 1, "next": '{"n":2,"next":null}'}]


def test_all_of_is_one_object(registry: RegistryServer) -> None:
    schema = {
        "definitions": {"base": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        "allOf": [{"$ref": "#/definitions/base"}, {"properties": {"b": {"type": "string"}}}],
    }
    found = decoded(registry, schema, b'{"a": 1, "b": "x"}')
    assert only_group(found).values.to_pylist() == [{"a": 1, "b": "x"}]


def test_references_to_other_schemas(registry: RegistryServer) -> None:
    registry.register("address", OBJECT["definitions"]["address"], "JSON")
    schema = {"type": "object", "properties": {"to": {"$ref": "address.json"}}}
    reference = {"name": "address.json", "subject": "address", "version": 1}
    number = registry.register("s", schema, "JSON", [reference])
    body = framed(number, b'{"to": {"city": "B"}}')
    found = of(registry, "json-schema").decode(payloads(body))
    assert only_group(found).values.to_pylist() == [{"to": {"city": "B"}}]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "other.json"}, "'other.json', which is not among its references"),
        ({"$ref": "#/definitions/x"}, "'#/definitions/x', which is not there"),
    ],
)
def test_a_schema_that_is_not_whole(registry: RegistryServer, schema: Any, reason: str) -> None:
    assert reason in reasons(decoded(registry, schema, b"{}"))[0]


def test_a_schema_of_another_format(registry: RegistryServer) -> None:
    number = registry.register("s", "string")
    found = of(registry, "json-schema").decode(payloads(framed(number, b"{}")))
    assert "schema of AVRO, and the format is json-schema" in reasons(found)[0]


def test_json_with_a_schema_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(OBJECT))
    given = payloads(b'{"id": 1}', framed(9, b'{"id": 2}'), b"x")
    for format in ("json", "json-schema"):
        found = decoder(format, schema=path).decode(given)
        assert only_group(found).values.field("id").to_pylist() == [1, 2]
        assert reasons(found).keys() == {2}


def inferred(*bodies: bytes | None) -> Decoded:
    return decoder("json").decode(payloads(*bodies))


def test_columns_are_what_the_values_have() -> None:
    found = inferred(
        b'{"id": 1, "at": "2024-01-01T00:00:00Z", "n": 1, "o": {"a": true}, "none": null}',
        None,
        b'{"id": 2, "n": 1.5, "o": {"b": "x", "none": {}}, "l": [], "deep": [{"x": 1}]}',
        b"not JSON",
    )
    group = only_group(found)
    assert group.is_record
    assert group.rows.tolist() == [0, 2]
    assert str(group.values.type) == (
        "struct<id: int64, at: string, n: double, o: struct<a: bool, b: string>, "
        "l: list<element: string>, deep: list<item: struct<x: int64>>>"
    ).replace("list<item", "list<element")
    first, second = group.values.to_pylist()
    assert first["n"] == 1.0
    assert second["o"] == {"a": None, "b": "x"}
    assert reasons(found).keys() == {3}


def test_values_that_do_not_go_together_are_groups() -> None:
    found = inferred(b'{"v": 1}', b'{"v": "x"}', b'{"v": 2}', b"5", b'{"v": "y"}', b"null", b"6.5")
    shown = [(g.rows.tolist(), g.is_record, g.values.to_pylist()) for g in found.groups]
    assert shown == [
        ([0, 2, 5], True, [{"v": 1}, {"v": 2}, None]),
        ([1, 4], True, [{"v": "x"}, {"v": "y"}]),
        ([3, 6], False, [5.0, 6.5]),
    ]


def test_an_integer_that_no_column_holds() -> None:
    found = inferred(b'{"v": 18446744073709551616}', b'{"v": 9007199254740993}', b'{"v": 0.5}')
    fraction, large = sorted(found.groups, key=lambda group: str(group.values.type))
    assert fraction.values.to_pylist() == [{"v": 0.5}]
    assert (large.rows.tolist(), large.values.to_pylist()) == ([1], [{"v": 9007199254740993}])
    assert reasons(found).keys() == {0}


def test_objects_without_fields() -> None:
    group = only_group(inferred(b"{}", b'{"a": null}'))
    assert group.is_record
    assert group.values.to_pylist() == [{}, {}]


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3), min_size=1))
@settings(max_examples=rounds(200, deep=1000), suppress_health_check=list(HealthCheck))
def test_random_objects_come_back(objects: list[dict[str, Any]]) -> None:
    found = inferred(*(text(each) for each in objects))
    shown: dict[int, Any] = {}
    for group in found.groups:
        assert group.values.validate(full=True) is None
        shown |= dict(zip(group.rows.tolist(), group.values.to_pylist(), strict=True))
    # Lists that mix kinds have no type.
    assert shown.keys() | reasons(found).keys() == set(range(len(objects)))
    for row, value in shown.items():
        assert without_nothing(value) == without_nothing(objects[row])


def without_nothing(value: Any) -> Any:
    """In a column, what is missing is null, and so is an object without anything in it."""
    if isinstance(value, list):
        return [without_nothing(each) for each in value]
    if not isinstance(value, dict):
        return value
    some = {name: without_nothing(each) for name, each in value.items()}
    return {name: each for name, each in some.items() if each is not None} or None


def test_a_large_batch_has_one_type() -> None:
    bodies = [text({"v": n}) for n in range(20_000)] + [b'{"v": 0.5, "w": 1}']
    group = only_group(inferred(*bodies))
    assert len(group.values) == 20_001
    assert group.values.type == pa.struct([("v", pa.float64()), ("w", pa.int64())])
