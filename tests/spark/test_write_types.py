"""Types of a write: what Spark's store assignment casts, and what is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from pylogtable import SchemaMismatchError, Store
from pyspark_pylogtable import DefaultSource, LogTable
from tests.builders import rows
from tests.spark.support import failure, inserts_some_columns, load
from tests.spark.writes import files, plan, save, write

# Columns of a topic by their type, and an expression of another type for each.
ASSIGNED = {
    "a": (pa.float64(), "1.5"),
    "b": (pa.decimal128(6, 2), "CAST(id AS int) * 100"),
    "c": (pa.decimal128(6, 2), "id + 0.125D"),
    "d": (pa.decimal128(4, 1), "CAST(-id - 0.25 AS decimal(6, 2))"),
    "e": (pa.int32(), "id"),
    "f": (pa.int8(), "id + 1.75D"),
    "g": (pa.int64(), "CAST(-id - 0.75 AS decimal(6, 2))"),
    "h": (pa.float32(), "id + 0.1D"),
    "i": (pa.float64(), "9007199254740993L + id"),
    "j": (pa.string(), "id"),
    "k": (pa.string(), "id = 1"),
    "l": (pa.decimal128(20, 10), "CAST(id + 0.1D AS float)"),
}
# The same, but Spark needs its session to cast them.
BY_SESSION = {
    "s": (pa.string(), "CAST(id + 0.5 AS decimal(20, 10))"),
    "t": (pa.timestamp("us", tz="UTC"), "date_add(DATE'2026-01-01', CAST(id AS int))"),
    "u": (pa.date32(), "timestamp_seconds(1767225599 + id)"),
    "v": (pa.timestamp("us"), "timestamp_seconds(1767225599 + id)"),
    "w": (pa.string(), "timestamp_seconds(1767225599 + id)"),
    "x": (pa.string(), "1e20D * id"),
}


@pytest.fixture
def tokyo(spark: SparkSession) -> SparkSession:
    """The session with a zone that differs from UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@inserts_some_columns
def test_values_of_other_types_are_those_that_spark_inserts(
    tokyo: SparkSession, logs: Store
) -> None:
    every = {**ASSIGNED, **BY_SESSION}
    df = tokyo.range(0, 3, 1, 1).selectExpr(
        *(f"{sql} AS {name}" for name, (_, sql) in every.items())
    )
    names = ("inserted", "appended", "saved")
    topics = {
        name: logs.create_topic(name, schema={key: kind for key, (kind, _) in every.items()})
        for name in names
    }
    load(tokyo, topics["inserted"].url).createOrReplaceTempView("target")
    df.createOrReplaceTempView("given")
    tokyo.sql(f"INSERT INTO target ({', '.join(every)}) SELECT * FROM given")
    LogTable.for_path(tokyo, topics["appended"].url).append(df)
    save(df.select(*ASSIGNED), topics["saved"].url)
    expected = topics["inserted"].read(columns=[*every]).read_all().to_pylist()
    assert expected[0]["a"] == 1.5
    assert expected[1]["c"] == Decimal("1.13")
    assert topics["appended"].read(columns=[*every]).read_all().to_pylist() == expected
    saved = topics["saved"].read(columns=[*ASSIGNED]).read_all().to_pylist()
    assert saved == [{name: row[name] for name in ASSIGNED} for row in expected]


def test_value_that_does_not_fit_is_named_and_nothing_is_written(
    spark: SparkSession, logs: Store
) -> None:
    topic = logs.create_topic("t", schema={"n": pa.int32()})
    df = spark.range(0, 10, 1, 3).selectExpr("id * 300000000L AS n")
    said = failure(lambda: save(df, topic.url))
    assert "column 'n': the value 2400000000" in said
    with pytest.raises(SchemaMismatchError, match="column 'n': the value 2400000000"):
        LogTable.for_path(spark, topic.url).append(df)
    assert (topic.version, topic.count()) == (0, 0)
    save(df.limit(3), topic.url)
    assert topic.count() == 3


@pytest.mark.parametrize(
    ("kind", "values", "value"),
    [
        (pa.decimal128(4, 2), pa.array(range(0, 120, 12)), "108"),
        (pa.int64(), pa.array([n * 1.2e18 for n in range(10)]), "9.6e"),
    ],
)
def test_no_value_is_written_if_one_does_not_fit(
    logs: Store, kind: pa.DataType, values: pa.Array, value: str
) -> None:
    topic = logs.create_topic("t", schema={"n": kind})
    with pytest.raises(SchemaMismatchError, match=f"column 'n': the value {value}"):
        write(topic.url, [pa.table({"n": values})])
    assert (topic.version, topic.count()) == (0, 0)
    write(topic.url, [pa.table({"n": values[:3]})])
    assert topic.count() == 3


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.int64(), pa.string()),
        (pa.int64(), pa.bool_()),
        (pa.bool_(), pa.int32()),
        (pa.binary(), pa.int32()),
        (pa.timestamp("us", tz="UTC"), pa.date32()),
    ],
    ids=str,
)
def test_other_types_have_to_be_cast(logs: Store, kind: pa.DataType, given: pa.DataType) -> None:
    topic = logs.create_topic("t", schema={"n": kind})
    with pytest.raises(SchemaMismatchError, match=r"column 'n' is .*cast it"):
        plan(topic.url, pa.schema({"n": given}))
    assert rows(topic.read(), "n") == []


@pytest.mark.parametrize(
    "kind",
    [
        StructType([StructField("a", VariantType()), StructField("b", IntegerType())]),
        ArrayType(VariantType()),
        MapType(StringType(), ArrayType(VariantType())),
    ],
    ids=["struct", "array", "map"],
)
def test_variant_is_refused_at_any_depth(logs: Store, tmp_path: Path, kind: DataType) -> None:
    logs.create_topic("t", schema={"v": pa.string()})
    schema, before = StructType([StructField("v", kind)]), files(tmp_path)
    for options in ({"path": f"{tmp_path}/logs/t"}, {"path": f"{tmp_path}/new", "partitions": "1"}):
        with pytest.raises(SchemaMismatchError, match="'v' has the type variant, which a topic"):
            DefaultSource(options).writer(schema, overwrite=False)
    assert files(tmp_path) == before


def test_variant_is_refused_because_it_would_come_back_as_a_struct(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    df = spark.range(2).selectExpr("parse_json('{\"n\": 1}') AS v")
    topic = logs.create_topic("t", schema={"v": pa.string()})
    before = files(tmp_path)
    why = "column 'v' has the type variant, which a topic cannot hold"
    for path, options in ((tmp_path / "logs" / "t", {}), (tmp_path / "new", {"partitions": 1})):
        assert why in failure(lambda path=path, options=options: save(df, path, **options))
    with pytest.raises(SchemaMismatchError, match=r"to_json.*parse_json"):
        LogTable.for_path(spark, topic.url).append(df)
    assert files(tmp_path) == before
    save(df.selectExpr("to_json(v) AS v"), tmp_path / "logs" / "t")
    found = load(spark, topic.url).selectExpr("variant_get(parse_json(v), '$.n', 'int') AS n")
    assert [row.n for row in found.collect()] == [1, 1]
