"""Stored types, Arrow types, and which fit into which."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pylogtable.errors import InvalidRequestError, SchemaMismatchError
from pylogtable.format.schema import fits, from_arrow, is_kafka_shaped, to_arrow, widens
from pylogtable.store import Store
from pylogtable.topics.column_types import make_fields
from tests.builders import at, rows

NESTED = pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.decimal128(9, 2)))), ("b", pa.date32())])
TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
    pa.decimal128(38, 18),
    pa.list_(pa.field("element", pa.int64(), nullable=False)),
    NESTED,
]


@pytest.mark.parametrize("arrow", TYPES, ids=str)
def test_arrow_types_survive_a_round_trip_through_stored_types(arrow: pa.DataType) -> None:
    wire = from_arrow(arrow)
    assert from_arrow(to_arrow(wire)) == wire
    if not pa.types.is_nested(arrow):
        assert to_arrow(wire) == arrow


@pytest.mark.parametrize(
    ("arrow", "wire"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(16), "binary"),
        (pa.timestamp("ns", tz="Asia/Tokyo"), "timestamp"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.decimal128(10, 2), "decimal(10,2)"),
    ],
    ids=str,
)
def test_other_arrow_layouts_map_to_the_stored_type_of_their_values(
    arrow: pa.DataType, wire: str
) -> None:
    assert from_arrow(arrow) == wire


@pytest.mark.parametrize(
    "arrow", [pa.time32("s"), pa.duration("s"), pa.uint64(), pa.float16(), pa.null()], ids=str
)
def test_unsupported_types_are_refused_with_the_name_of_the_column(
    arrow: pa.DataType,
) -> None:
    with pytest.raises(SchemaMismatchError, match="column 'c': a topic cannot have"):
        make_fields({"c": arrow})


@pytest.mark.parametrize("wire", ["int", "decimal(39,2)", "decimal(0,0)", {"type": "set"}], ids=str)
def test_unknown_stored_types_are_refused(wire: Any) -> None:
    with pytest.raises(InvalidRequestError, match="unknown column type"):
        to_arrow(wire)


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("byte", "short", True),
        ("short", "long", True),
        ("integer", "long", True),
        ("long", "integer", False),
        ("long", "long", False),
        ("float", "double", True),
        ("double", "float", False),
        ("integer", "double", False),
        ("decimal(5,2)", "decimal(7,2)", True),
        ("decimal(5,2)", "decimal(6,3)", True),
        ("decimal(5,2)", "decimal(5,3)", False),
        ("decimal(5,2)", "decimal(4,2)", False),
        ("string", "binary", False),
        ("date", "timestamp", False),
    ],
)
def test_widening_never_loses_a_value(old: str, new: str, may: bool) -> None:
    assert widens(old, new) is may
    assert fits(old, new) is (may or old == new or (old, new) == ("string", "binary"))


def test_values_of_every_type_are_read_as_they_were_written(store: Store) -> None:
    schema = {f"c{number}": arrow for number, arrow in enumerate(TYPES)}
    values: list[Any] = [
        *(True, -1, -2, -3, 2**62, 0.5, 0.1, "ä", b"\x00"),
        at(0).date(),
        at(1),
        at(2).replace(tzinfo=None),
        pa.scalar("1.5").cast(pa.decimal128(38, 18)).as_py(),
        [1, 2],
        {"a": [[("k", None)], None], "b": None},
    ]
    topic = store.create_topic("t", schema=schema)
    row = dict(zip(schema, values, strict=True))
    given = pa.Table.from_pylist([row, dict.fromkeys(schema)], schema=pa.schema(schema))
    topic.append(given)
    assert rows(topic.read(columns=list(schema))) == given.to_pylist()
    assert topic.verify(data=True)
    assert store.topic("t").schema == topic.read().schema


BYTES = pa.binary()
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", BYTES)]))


def test_a_topic_created_without_a_schema_is_kafka_shaped(store: Store) -> None:
    topic = store.create_topic("t")
    assert is_kafka_shaped(topic.schema)
    assert is_kafka_shaped(topic.schema, more_columns=True)
    topic.alter(add_columns={"region": pa.string()})
    assert not is_kafka_shaped(topic.schema)
    assert is_kafka_shaped(topic.schema, more_columns=True)


@pytest.mark.parametrize(
    "columns",
    [
        {"key": BYTES, "value": BYTES},
        {"key": BYTES, "value": BYTES, "headers": HEADERS_TYPE},
        {"headers": HEADERS_TYPE, "value": BYTES, "key": BYTES},
        {"partition": pa.int32(), "offset": pa.int64(), "key": BYTES, "value": BYTES},
    ],
    ids=lambda columns: ",".join(columns),
)
def test_headers_are_optional_and_order_is_free_in_kafkas_shape(
    columns: dict[str, pa.DataType],
) -> None:
    assert is_kafka_shaped(pa.schema(columns))


@pytest.mark.parametrize(
    "columns",
    [
        {"key": pa.int64(), "value": pa.float64()},
        {"key": pa.string(), "value": BYTES},
        {"key": BYTES, "value": pa.string()},
        {"value": BYTES},
        {"key": BYTES},
        {"id": pa.int64(), "amount": pa.float64()},
    ],
    ids=lambda columns: ",".join(f"{name}:{kind}" for name, kind in columns.items()),
)
def test_other_columns_or_types_are_not_kafkas_shape(columns: dict[str, pa.DataType]) -> None:
    assert not is_kafka_shaped(pa.schema(columns))
    assert not is_kafka_shaped(pa.schema(columns), more_columns=True)
