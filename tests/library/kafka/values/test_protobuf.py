"""Protobuf becomes columns."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pylogtable import InvalidRequestError
from pylogtable.kafka import Decoded, decoder
from tests.depth import rounds
from tests.library.kafka.registry import RegistryServer
from tests.library.kafka.values.avro_cases import same
from tests.library.kafka.values.framing import (
    framed,
    framed_by_guid,
    headers,
    of,
    only_group,
    payloads,
    reasons,
)
from tests.library.kafka.values.protos import (
    PLACE,
    WELL_KNOWN,
    as_registered,
    classes,
    descriptor_set,
    file_of,
    place,
)

#: Message indexes of the first message of a file.
FIRST = b"\x00"


def registered(registry: RegistryServer, file: Any, *references: Any) -> int:
    named = []
    for each in references:
        registry.register(each.name, as_registered(each), "PROTOBUF")
        named.append({"name": each.name, "subject": each.name, "version": 1})
    return registry.register("s", as_registered(file), "PROTOBUF", named)


def decoded(registry: RegistryServer, file: Any, *messages: Any) -> Decoded:
    number = registered(registry, file)
    bodies = [framed(number, FIRST + each.SerializeToString()) for each in messages]
    return of(registry, "protobuf").decode(payloads(*bodies))


def test_types_of_columns(registry: RegistryServer) -> None:
    fields = [
        *(f"{kind} f_{kind}" for kind in ("double", "float", "int32", "int64", "uint32", "uint64")),
        *(f"{kind} f_{kind}" for kind in ("sint32", "sint64", "fixed32", "fixed64", "sfixed32")),
        *(f"{kind} f_{kind}" for kind in ("sfixed64", "bool", "string", "bytes")),
        "Color color",
        "Inner inner",
        "optional int32 maybe",
        "google.protobuf.Timestamp at",
        "google.protobuf.Duration took",
        "google.protobuf.StringValue wrapped",
        "google.protobuf.Struct free",
        "google.protobuf.Empty nothing",
        "repeated int32 numbers",
        "repeated Inner inners",
        "map string int32 counts",
        "map int32 Inner by_number",
    ]
    file = file_of(
        "t.proto",
        {"Row": fields, "Inner": ["string x"]},
        WELL_KNOWN,
        {"Color": ["RED", "GREEN"]},
    )
    row = classes(file)["Row"]
    full = row(
        f_double=0.1, f_float=0.5, f_int32=-1, f_int64=-(2**60), f_uint32=2**32 - 1,
        f_uint64=2**64 - 1, f_sint32=-2, f_sint64=-3, f_fixed32=2**31, f_fixed64=2**63,
        f_sfixed32=-4, f_sfixed64=-5, f_bool=True, f_string="ä", f_bytes=b"\xff", color=1,
        inner={"x": "y"}, maybe=0, wrapped={"value": ""}, nothing={}, numbers=[1, 2],
        inners=[{"x": "a"}, {}], counts={"k": 1}, by_number={7: {"x": "z"}},
    )  # fmt: skip
    full.at.FromDatetime(datetime(2024, 1, 1, 0, 0, 0, 250_000))
    full.took.FromMicroseconds(1_500_000)
    full.free.update({"n": 1.0})
    found = decoded(registry, file, full, row(), row(color=9))
    group = only_group(found)
    assert group.is_record
    assert {f.name: str(f.type) for f in group.values.type} == {
        "f_double": "double",
        "f_float": "float",
        "f_int32": "int32",
        "f_int64": "int64",
        "f_uint32": "int64",
        "f_uint64": "decimal128(20, 0)",
        "f_sint32": "int32",
        "f_sint64": "int64",
        "f_fixed32": "int64",
        "f_fixed64": "decimal128(20, 0)",
        "f_sfixed32": "int32",
        "f_sfixed64": "int64",
        "f_bool": "bool",
        "f_string": "string",
        "f_bytes": "binary",
        "color": "string",
        "inner": "struct<x: string>",
        "maybe": "int32",
        "at": "timestamp[us, tz=UTC]",
        "took": "struct<seconds: int64, nanos: int32>",
        "wrapped": "string",
        "free": "string",
        "nothing": "bool",
        "numbers": "list<element: int32>",
        "inners": "list<element: struct<x: string>>",
        "counts": "map<string, int32>",
        "by_number": "map<int32, struct<x: string>>",
    }
    first, empty, third = group.values.to_pylist()
    assert first == {
        "f_double": 0.1, "f_float": 0.5, "f_int32": -1, "f_int64": -(2**60),
        "f_uint32": 2**32 - 1, "f_uint64": Decimal(2**64 - 1), "f_sint32": -2, "f_sint64": -3,
        "f_fixed32": 2**31, "f_fixed64": Decimal(2**63), "f_sfixed32": -4, "f_sfixed64": -5,
        "f_bool": True, "f_string": "ä", "f_bytes": b"\xff", "color": "GREEN",
        "inner": {"x": "y"}, "maybe": 0,
        "at": datetime(2024, 1, 1, 0, 0, 0, 250_000, timezone.utc),
        "took": {"seconds": 1, "nanos": 500_000_000}, "wrapped": "", "free": '{"n": 1.0}',
        "nothing": True, "numbers": [1, 2], "inners": [{"x": "a"}, {"x": ""}],
        "counts": [("k", 1)], "by_number": [(7, {"x": "z"})],
    }  # fmt: skip
    absent = {name for name, value in empty.items() if value is None}
    assert absent == {"inner", "maybe", "at", "took", "wrapped", "free", "nothing"}
    assert (empty["f_int32"], empty["color"], empty["numbers"]) == (0, "RED", [])
    assert third["color"] == "9"


def test_a_oneof_is_nullable_fields(registry: RegistryServer) -> None:
    file = file_of("t.proto", {"Row": ["oneof int32 a", "oneof string b"]})
    row = classes(file)["Row"]
    found = decoded(registry, file, row(a=0), row(b="x"), row())
    assert only_group(found).values.to_pylist() == [
        {"a": 0, "b": None},
        {"a": None, "b": "x"},
        {"a": None, "b": None},
    ]


def test_message_indexes_say_which_message(registry: RegistryServer) -> None:
    file = file_of(
        "t.proto",
        {"A": ["int32 a"], "A.Inner": ["string i"], "B": ["int32 b"], "B.C": ["int32 c"]},
    )
    number = registered(registry, file)
    integer = b"\x08\x05"
    given = payloads(
        framed(number, b"\x00" + integer),
        framed(number, b"\x02\x02" + integer),
        framed(number, b"\x04\x02\x00" + integer),
        framed(number, b"\x02\x00" + integer),
        framed(number, b"\x02\x08" + integer),
        framed(number, b"\x02"),
        framed(number, b"\x02\x01" + integer),
        framed(number, b"\xff\xff\xff\xff\x0f"),
        framed(number, b"\x02\x02" + integer),
    )
    found = of(registry, "protobuf").decode(given)
    shown = [(g.rows.tolist(), g.values.to_pylist()) for g in found.groups]
    assert shown == [
        ([0, 3], [{"a": 5}, {"a": 5}]),
        ([1, 8], [{"b": 5}, {"b": 5}]),
        ([2], [{"c": 5}]),
    ]
    assert {row: why.partition(": ")[2] for row, why in reasons(found).items()} == {
        4: "it has no message at index [4]",
        5: "it ends before its message indexes do",
        6: "it has no message at index [-1]",
        7: "it says that it has -2147483648 message indexes",
    }


def test_a_header_has_the_message_indexes(registry: RegistryServer) -> None:
    number = registered(registry, file_of("t.proto", {"A": ["int32 a"], "B": ["int32 b"]}))
    named = [framed_by_guid(registry.guid(number), head) for head in (b"\x00", b"\x02\x02")]
    rows = headers(*([("__value_schema_id", each)] for each in (named[0], named[1], named[0])))
    found = of(registry, "protobuf").decode(payloads(b"\x08\x01", b"\x08\x02", b"\x08\x03"), rows)
    shown = [(g.rows.tolist(), g.values.to_pylist()) for g in found.groups]
    assert shown == [([0, 2], [{"a": 1}, {"a": 3}]), ([1], [{"b": 2}])]


def test_references(registry: RegistryServer) -> None:
    file = file_of("t.proto", {"Row": ["Place at"]}, [PLACE])
    number = registered(registry, file, place())
    body = classes(place(), file)["Row"](at={"city": "B"}).SerializeToString()
    found = of(registry, "protobuf").decode(payloads(framed(number, FIRST + body)))
    assert only_group(found).values.to_pylist() == [{"at": {"city": "B"}}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('syntax = "proto3"; message A {}', "as text only, not with format=serialized"),
        (as_registered(file_of("t.proto", {"R": ["Place at"]}, [PLACE])), "imports 'place.proto'"),
        (as_registered(file_of("t.proto", {"R": ["R next"]})), "test.R contains itself"),
        (as_registered(file_of("t.proto", {"R": ["Gone next"]})), "do not go together"),
    ],
)
def test_a_schema_that_cannot_be_columns(registry: RegistryServer, text: str, reason: str) -> None:
    number = registry.register("s", text, "PROTOBUF")
    found = of(registry, "protobuf").decode(payloads(framed(number, FIRST)))
    assert reason in reasons(found)[0]


@pytest.mark.parametrize(
    ("fields", "body", "reason"),
    [
        (["string s"], b"\x0a\x05ab", "pars"),
        (["string s"], b"\x0a\x01\xff", "pars"),
        (["google.protobuf.Timestamp at"], b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", "years 1 to"),
    ],
)
def test_damage_is_a_failure(
    registry: RegistryServer, fields: list[str], body: bytes, reason: str
) -> None:
    number = registered(registry, file_of("t.proto", {"Row": fields}, WELL_KNOWN))
    good = framed(number, FIRST)
    found = of(registry, "protobuf").decode(payloads(good, framed(number, FIRST + body), good))
    assert only_group(found).rows.tolist() == [0, 2]
    assert reason in reasons(found)[1]


def test_a_file_of_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    main = file_of("t.proto", {"Row": ["Place at"], "Other": ["int32 n"]}, [PLACE])
    path.write_bytes(descriptor_set(place(), main))
    row, other = classes(place(), main).values()
    body = row(at={"city": "B"}).SerializeToString()
    second = framed(7, b"\x02\x02" + other(n=5).SerializeToString())
    found = decoder("protobuf", schema=path).decode(payloads(body, framed(7, FIRST + body), second))
    shown = [(g.rows.tolist(), g.values.to_pylist()) for g in found.groups]
    assert shown == [([0, 1], [{"at": {"city": "B"}}] * 2), ([2], [{"n": 5}])]
    named = decoder("protobuf", schema=path, message="test.Other")
    found = named.decode(payloads(other(n=6).SerializeToString(), b""))
    assert only_group(found).values.to_pylist() == [{"n": 6}, {"n": 0}]
    with pytest.raises(InvalidRequestError, match=r"no message 'X'; it has test.Row, test.Other"):
        decoder("protobuf", schema=path, message="X")
    path.write_bytes(b"")
    with pytest.raises(InvalidRequestError, match="holds no descriptors"):
        decoder("protobuf", schema=path)


_INNER = st.fixed_dictionaries({"x": st.text(max_size=5)})
_ROWS = st.fixed_dictionaries(
    {},
    optional={
        "i": st.integers(-(2**31), 2**31 - 1),
        "d": st.floats(),
        "s": st.text(max_size=5),
        "maybe": st.booleans(),
        "inner": _INNER,
        "numbers": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        "inners": st.lists(_INNER, max_size=3),
        "counts": st.dictionaries(st.text(max_size=3), _INNER, max_size=3),
    },
)


@given(st.lists(_ROWS, min_size=1))
@settings(max_examples=rounds(50, deep=2000), suppress_health_check=list(HealthCheck))
def test_random_messages_come_back(registry: RegistryServer, rows: list[dict[str, Any]]) -> None:
    fields = [
        *("int32 i", "double d", "string s", "optional bool maybe", "Inner inner"),
        *("repeated int64 numbers", "repeated Inner inners", "map string Inner counts"),
    ]
    file = file_of("t.proto", {"Row": fields, "Inner": ["string x"]})
    row = classes(file)["Row"]
    found = decoded(registry, file, *(row(**each) for each in rows))
    missing = {"i": 0, "d": 0.0, "s": "", "maybe": None, "inner": None}
    wanted = [missing | {"numbers": [], "inners": [], "counts": {}} | each for each in rows]
    shown = only_group(found).values.to_pylist()
    for each in shown:
        each["counts"] = dict(each["counts"])
    assert same(shown) == same(wanted)
