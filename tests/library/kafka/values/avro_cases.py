"""Random schemas of Avro, values for them, and what columns should have for what fastavro reads."""

from __future__ import annotations

import io
import itertools
import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

_WIDE = Context(prec=100)  # rounds nothing
_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
_INSTANTS = st.datetimes(timezones=st.just(timezone.utc))
_LOGICAL: list[tuple[dict[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "int", "logicalType": "date"}, st.dates()),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        _INSTANTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    ({"type": "long", "logicalType": "timestamp-micros"}, _INSTANTS),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    ({"type": "long", "logicalType": "time-micros"}, st.times()),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-9, _WIDE)),
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
        st.integers(-99_999, 99_999).map(lambda n: Decimal(n).scaleb(-2)),
    ),
]
#: fastavro finds the branch of a union by the class of the value: one of each.
_BRANCHES = ("boolean", "long", "double", "bytes", "string", "array", "map", "record")


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """The schema of a record."""
    return _record(draw, itertools.count(), 3)


def _record(draw: st.DrawFn, names: Any, depth: int) -> dict[str, Any]:
    count = draw(st.integers(1, 4))
    fields = [{"name": f"f{n}", "type": _type(draw, names, depth - 1)} for n in range(count)]
    return {"type": "record", "name": f"R{next(names)}", "fields": fields}


def _type(draw: st.DrawFn, names: Any, depth: int, kinds: tuple[str, ...] = ()) -> Any:
    nested = ("array", "map", "record", "union", "nullable") if depth else ()
    kind = draw(st.sampled_from(kinds or (*_PLAIN, "enum", "fixed", "logical", *nested)))
    if kind in _PLAIN:
        return kind
    if kind == "logical":
        return draw(st.sampled_from([schema for schema, _ in _LOGICAL]))
    if kind == "enum":
        return {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"]}
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{next(names)}", "size": draw(st.integers(1, 20))}
    if kind == "array":
        return {"type": "array", "items": _type(draw, names, depth - 1)}
    if kind == "map":
        return {"type": "map", "values": _type(draw, names, depth - 1)}
    if kind == "record":
        return _record(draw, names, depth)
    if kind == "nullable":
        some = tuple(each for each in (*_PLAIN, "enum", "logical", "array", "record"))
        pair = ["null", _type(draw, names, depth - 1, some if depth > 1 else tuple(_PLAIN))]
        return draw(st.permutations(pair))
    plain = tuple(each for each in _BRANCHES if each in _PLAIN)
    chosen = draw(
        st.lists(
            st.sampled_from(_BRANCHES if depth > 1 else plain), min_size=2, max_size=4, unique=True
        )
    )
    if {"map", "record"} <= set(chosen):
        chosen.remove("map")  # both are a dict
    branches = [_type(draw, names, depth - 1, (each,)) for each in chosen]
    return [*branches, *draw(st.sampled_from([[], ["null"]]))]


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values that fastavro writes with the schema."""
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    if schema == "null":
        return st.none()
    if isinstance(schema, str):
        return _PLAIN[schema]
    if "logicalType" in schema:
        return next(found for logical, found in _LOGICAL if logical == schema)
    kind = schema["type"]
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=3)
    return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})


def encode(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def read(schema: Any, body: bytes) -> Any:
    """What fastavro makes of one body. Raises if bytes are left. A UUID is read as a text: a column
    has that as it stands, and fastavro would refuse one that is damaged."""
    stream = io.BytesIO(body)
    plain = json.loads(json.dumps(schema).replace('"logicalType": "uuid"', '"doc": "a UUID"'))
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(plain), None)
    if stream.read(1):
        raise ValueError("bytes are left")
    return value


def as_column(schema: Any, value: Any) -> Any:
    """What `to_pylist` of a column has for what fastavro has read."""
    if value is None:
        return None
    if isinstance(schema, list):
        return _member(schema, value)
    if schema in ("float", "double"):
        return same(value)
    if isinstance(schema, str):
        return value
    logical = schema.get("logicalType")
    if logical == "uuid":
        return str(value)
    if logical == "time-micros":
        assert isinstance(value, time)
        since = datetime.combine(date.min, value) - datetime.min
        return since // timedelta(microseconds=1)
    if schema["type"] == "array":
        return [as_column(schema["items"], each) for each in value]
    if schema["type"] == "map":
        return [(key, as_column(schema["values"], each)) for key, each in value.items()]
    if schema["type"] == "record":
        return {f["name"]: as_column(f["type"], value[f["name"]]) for f in schema["fields"]}
    return value


def _member(schema: list[Any], value: Any) -> Any:
    branches = [branch for branch in schema if branch != "null"]
    if len(branches) == 1:
        return as_column(branches[0], value)
    classes = {bool: "boolean", int: "long", float: "double", bytes: "bytes", str: "string"}
    if isinstance(value, dict):
        wanted = {"map", "record"}
    elif isinstance(value, list):
        wanted = {"array"}
    else:
        wanted = {classes[type(value)]}
    kinds = [branch if isinstance(branch, str) else branch["type"] for branch in branches]
    return {
        f"member{number}": as_column(branch, value) if kinds[number] in wanted else None
        for number, branch in enumerate(branches)
    }


def same(value: Any) -> Any:
    """NaN is equal to nothing; its name is."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {name: same(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(same(each) for each in value)
    return value
