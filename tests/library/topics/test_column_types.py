"""Columns as users give them: type names of Spark SQL and of the format, and Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pylogtable import InvalidRequestError, column_type
from pylogtable.format.schema import PLAIN_NAMES, from_arrow, to_arrow
from pylogtable.store import Store

UTC_US = pa.timestamp("us", tz="UTC")


def listed(of: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", of))


@pytest.mark.parametrize(
    ("name", "arrow"),
    [
        ("string", pa.string()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("INT", pa.int32()),
        (" Integer ", pa.int32()),
        ("smallint", pa.int16()),
        ("tinyint", pa.int8()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("timestamp", UTC_US),
        ("timestamp_ltz", UTC_US),
        ("timestamp_ntz", pa.timestamp("us")),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("DECIMAL ( 12 , 3 )", pa.decimal128(12, 3)),
        ("decimal(7)", pa.decimal128(7, 0)),
        ("array<string>", listed(pa.string())),
        ("array < array<int> >", listed(listed(pa.int32()))),
        ("map<string,bigint>", pa.map_(pa.string(), pa.int64())),
        (
            "struct<a:int, B: decimal(4,1), `c d``e` string NOT NULL>",
            pa.struct(
                [
                    pa.field("a", pa.int32()),
                    pa.field("B", pa.decimal128(4, 1)),
                    pa.field("c d`e", pa.string(), nullable=False),
                ]
            ),
        ),
        ("map<string,struct<array:array<date>>>",
         pa.map_(pa.string(), pa.struct({"array": listed(pa.date32())}))),
        ('{"type":"array","elementType":"long"}', listed(pa.int64())),
    ],
)  # fmt: skip
def test_type_names_are_those_of_spark_sql(name: str, arrow: pa.DataType) -> None:
    assert column_type(name) == arrow


def test_every_name_of_the_format_is_a_name_here() -> None:
    for name in PLAIN_NAMES:
        assert column_type(name) == column_type(name.upper()) == to_arrow(name)
        assert from_arrow(column_type(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "strin",
        "varchar(10)",
        "array",
        "array<>",
        "array<int",
        "array<int>>",
        "array<int> x",
        "map<string>",
        "struct<>",
        "struct<a>",
        "struct<a:int,a:int>",
        "struct<`a:int>",
        "decimal(39,0)",
        "decimal(3,9)",
        "decimal(x,y)",
        "decimal(１０,2)",  # noqa: RUF001
        "decimal()",
        "int)",
        "array<" * 5000 + "int" + ">" * 5000,
    ],
)
def test_other_names_are_refused_with_those_that_there_are(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"unknown column type .*boolean, byte, short"):
        column_type(name)


@pytest.mark.parametrize("name", ["{", '{"type":', "{" * 9000])
def test_broken_json_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not JSON"):
        column_type(name)


def test_topics_are_created_and_altered_by_type_names(store: Store) -> None:
    schema = {"id": "bigint", "n": "int", "tags": "array<string>", "at": pa.date32()}
    topic = store.create_topic("t", schema=schema, key="id")
    topic.alter(add_columns={"note": "string"}, widen_columns={"n": "bigint"})
    assert [topic.schema.field(name).type for name in ("id", "n", "tags", "at", "note")] == [
        pa.int64(), pa.int64(), listed(pa.string()), pa.date32(), pa.string()
    ]  # fmt: skip
    with pytest.raises(InvalidRequestError, match="unknown column type 'text'"):
        topic.alter(add_columns={"more": "text"})
    with pytest.raises(InvalidRequestError, match="'more' must have a type such as 'bigint'"):
        topic.alter(add_columns={"more": int})
