"""Batch reads of records: the cases of Spark's Kafka connector, and our additions."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import Store, Topic
from pylogtable.engine import plan_append
from tests.builders import IN_FILES, T0, at, ints, kafka, make_holes, rows, times
from tests.spark.conftest import CONNECT
from tests.spark.support import failure, in_order, load, values

KAFKA_COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]


def numbers(partition: int, *values: int) -> pa.Table:
    """Records with these values, with timestamps this many milliseconds after T0."""
    return kafka(
        [None] * len(values),
        [str(value) for value in values],
        partition=ints(*[partition] * len(values)),
        timestamp=times(*values),
    )


def setup_a(store: Store, name: str = "a") -> Topic:
    """The topic of most cases: 0 to 9, 10 to 19, and 20 in its three partitions."""
    topic = store.create_topic(name, partitions=3)
    topic.append(pa.concat_tables([numbers(0, *range(10)), numbers(1, *range(10, 20))]))
    topic.append(numbers(2, 20))
    return topic


def offsets(p0: int, p1: int, p2: int, name: str = "a") -> str:
    return json.dumps({name: {"0": p0, "1": p1, "2": p2}})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return pylogtable.open(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def a(shared: Store) -> Topic:
    """Setup A, for tests that only read."""
    return setup_a(shared)


def test_case_1_everything_with_the_columns_of_kafka(spark: SparkSession, a: Topic) -> None:
    df = load(spark, a.url)
    assert df.dtypes == KAFKA_COLUMNS
    assert all(field.nullable for field in df.schema)
    found = in_order(df)
    assert [(row.partition, row.offset) for row in found] == rows(a.read(), "partition", "offset")
    assert [int(row.value) for row in found] == [*range(21)]
    assert {(row.key, row.topic, row.timestampType) for row in found} == {(None, "a", 0)}
    assert found[20].timestamp == at(20).replace(tzinfo=None)


@pytest.mark.skipif(CONNECT, reason="Connect may plan again for each action")
def test_case_2_a_dataframe_is_pinned_when_it_is_loaded(spark: SparkSession, logs: Store) -> None:
    topic = setup_a(logs)
    explicit = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    df = load(spark, topic.url, **explicit)
    chosen = load(spark, topic.url, columns="value,offset")
    topic.append(numbers(2, *range(21, 30)))
    assert df.count() == 21
    topic.append(numbers(2, *range(30, 33)))
    assert df.count() == 21
    assert values(chosen) == [*range(21)]
    assert values(load(spark, topic.url, **explicit)) == [*range(33)]


@pytest.mark.skipif(CONNECT, reason="Connect may plan again for each action")
def test_with_a_user_schema_the_version_is_that_of_the_first_action(
    spark: SparkSession, logs: Store
) -> None:
    topic = setup_a(logs)
    df = spark.read.format("pylogtable").schema("value binary, offset bigint").load(topic.url)
    topic.append(numbers(2, 21))
    assert values(df) == [*range(22)]
    topic.append(numbers(2, 22))
    assert df.count() == 22


def test_case_3_earliest_and_latest_of_single_partitions(spark: SparkSession, logs: Store) -> None:
    topic = setup_a(logs)
    asked = {"startingOffsets": offsets(-2, -2, 0), "endingOffsets": offsets(-1, -1, 1)}
    assert values(load(spark, topic.url, **asked)) == [*range(21)]
    topic.append(numbers(2, 100))
    topic.append(numbers(1, *range(21, 31)))
    assert values(load(spark, topic.url, **asked)) == [*range(31)]


def test_case_4_headers(spark: SparkSession, logs: Store) -> None:
    headers = [
        None,
        [{"key": "a", "value": b"b"}, {"key": "c", "value": b"d"}],
        [{"key": "e", "value": b"1"}, {"key": "e", "value": b"2"}],
    ]
    topic = logs.create_topic("h")
    column = pa.array(headers, topic.schema.field("headers").type)
    topic.append(kafka([None] * 3, headers=column))
    df = load(spark, topic.url, includeHeaders=True)
    assert df.dtypes == [*KAFKA_COLUMNS, ("headers", "array<struct<key:string,value:binary>>")]
    found = [row.asDict(recursive=True)["headers"] for row in in_order(df)]
    assert found == headers
    assert "headers" not in load(spark, topic.url).columns


def test_case_7_a_start_by_time_and_an_end_by_offset(spark: SparkSession, logs: Store) -> None:
    topic = setup_a(logs)
    topic.append(numbers(2, 21, 22))
    asked = {"startingTimestamp": T0 + 5, "endingOffsets": offsets(-1, -1, 1)}
    assert values(load(spark, topic.url, **asked)) == [*range(5, 21)]


def test_case_8_an_end_time_beyond_all_records_of_a_partition(
    spark: SparkSession, a: Topic
) -> None:
    ends = json.dumps({"a": {"0": T0 + 3, "1": T0 + 12, "2": T0 + 10**6}})
    assert values(load(spark, a.url, endingOffsetsByTimestamp=ends)) == [0, 1, 2, 10, 11, 20]


def test_case_9_a_start_time_beyond_all_records(spark: SparkSession, a: Topic) -> None:
    start = {"startingTimestamp": T0 + 15}
    message = failure(load(spark, a.url, **start).count)
    assert "No offset matched from request of topic-partition a-0" in message
    lenient = load(spark, a.url, startingOffsetsByTimestampStrategy="latest", **start)
    assert values(lenient) == [*range(15, 21)]


def test_case_10_one_time_wins_then_times_then_offsets(spark: SparkSession, a: Topic) -> None:
    by_partition = {
        "startingOffsets": offsets(9, 9, 0),
        "startingOffsetsByTimestamp": offsets(T0 + 8, T0 + 18, T0 + 20),
    }
    one_time = {"startingTimestamp": T0 + 7, **by_partition}
    assert values(load(spark, a.url, **one_time)) == [7, 8, 9, *range(10, 21)]
    assert values(load(spark, a.url, **by_partition)) == [8, 9, 18, 19, 20]


def test_case_11_a_union_of_a_dataframe_with_itself(spark: SparkSession, a: Topic) -> None:
    df = load(spark, a.url)
    assert values(df.union(df)) == sorted([*range(21)] * 2)
    assert values(df.where("offset < 1").union(df.where("offset >= 9"))) == [0, 9, 10, 19, 20]


def test_case_12_what_delete_records_removed_is_not_read(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t")
    topic.append(numbers(0, *range(10)))
    topic.delete_records({0: 10})
    assert topic.at().partitions()["segments"].to_pylist() == [0]
    nothing = load(spark, topic.url)
    topic.append(numbers(0, *range(10, 20)))
    topic.delete_records({0: 13})
    assert nothing.count() == 0
    assert [(r.offset, int(r.value)) for r in in_order(load(spark, topic.url))] == [
        (n, n) for n in range(13, 20)
    ]


def test_case_13_only_committed_records_are_seen(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", config=IN_FILES)
    topic.append(numbers(0, 0, 1))
    given_up = plan_append(topic).stage(numbers(0, 100, 101))
    staged = plan_append(topic).stage(numbers(0, 2, 3))
    plan_append(topic).discard([given_up])
    assert values(load(spark, topic.url)) == [0, 1]
    # Another append takes the staged file's offsets, so the file is shifted.
    topic.append(numbers(0, 4))
    plan_append(topic).commit([staged])
    assert topic.segments()["shift"].to_pylist() == [0, 0, 1]
    found = [(row.offset, int(row.value)) for row in in_order(load(spark, topic.url))]
    assert found == [(0, 0), (1, 1), (2, 4), (3, 2), (4, 3)]


def test_a_few_records_are_one_task_in_order(spark: SparkSession, shared: Store, a: Topic) -> None:
    """Starting a task takes longer than reading so little. The same for several topics."""
    shared.create_topic("beside", partitions=4).append(kafka([None] * 8, partition=ints(*[3] * 8)))
    for df, names in (
        (load(spark, a.url), {"a"}),
        (load(spark, shared.url, subscribe="a,beside"), {"a", "beside"}),
    ):
        read = df.selectExpr("topic", "partition", "offset", "spark_partition_id() AS task")
        found = [(row.topic, row.partition, row.offset) for row in read.collect()]
        assert read.select("task").distinct().count() == 1
        assert found == sorted(found)
        assert {topic for topic, _, _ in found} == names


def test_case_14_more_spark_partitions_on_request(spark: SparkSession, a: Topic) -> None:
    df = load(spark, a.url, minPartitions=6)
    assert values(df) == [*range(21)]
    by_task = df.selectExpr("spark_partition_id() AS task", "partition", "offset").collect()
    assert len({row.task for row in by_task}) >= 6
    few = load(spark, a.url, maxRecordsPerPartition=4)
    sizes = few.groupBy("partition", few.topic).count()
    assert sum(row["count"] for row in sizes.collect()) == 21
    tasks = few.selectExpr("spark_partition_id() AS task", "partition", "offset").collect()
    by_number: dict[int, list[tuple[int, int]]] = {}
    for row in tasks:
        by_number.setdefault(row.task, []).append((row.partition, row.offset))
    assert len(by_number) == 3 + 3 + 1
    for found in by_number.values():
        assert len(found) <= 4
        assert found == sorted(found)
        assert len({partition for partition, _ in found}) == 1


def test_empty_ranges(spark: SparkSession, shared: Store, a: Topic) -> None:
    assert load(spark, shared.create_topic("empty", partitions=2).url).collect() == []
    nothing = {"startingOffsets": offsets(3, 0, 1), "endingOffsets": offsets(3, 0, 1)}
    assert load(spark, a.url, **nothing).collect() == []
    one = {"startingOffsets": '{"*":0}', "endingOffsets": '{"0":1,"*":0}'}
    assert values(load(spark, a.url, **one)) == [0]


def test_topics_of_a_store(spark: SparkSession, logs: Store, tmp_path: Path) -> None:
    for number, name in enumerate(["orders", "orders-eu", "clicks"]):
        logs.create_topic(name, partitions=2).append(
            kafka(["k"] * 2, [f"{number}0", f"{number}1"], partition=ints(0, 1))
        )
    two = load(spark, logs.url, subscribe=" orders-eu ,orders,, ")
    found = sorted((row.topic, row.partition, int(row.value)) for row in two.collect())
    assert found == [
        ("orders", 0, 0),
        ("orders", 1, 1),
        ("orders-eu", 0, 10),
        ("orders-eu", 1, 11),
    ]
    assert values(load(spark, logs.url, subscribePattern="orders")) == [0, 1]
    assert values(load(spark, logs.url, subscribePattern="order.*")) == [0, 1, 10, 11]
    some = load(
        spark,
        logs.url,
        assign='{"orders":[1],"clicks":[0]}',
        startingOffsets='{"*":{"*":-2}}',
        endingOffsets='{"orders":{"1":1},"clicks":{"0":0}}',
    )
    assert values(some) == [1]


def test_topics_of_different_columns(spark: SparkSession, logs: Store) -> None:
    logs.create_topic("one", schema=pa.schema([("n", pa.int32()), ("s", pa.string())])).append(
        pa.table({"n": pa.array([1], pa.int32()), "s": ["x"]})
    )
    logs.create_topic("two", schema=pa.schema([("n", pa.int32())])).append(
        pa.table({"n": pa.array([2], pa.int32())})
    )
    message = failure(lambda: load(spark, logs.url, subscribe="one,two"))
    assert "topics 'one' and 'two' have different columns" in message
    assert "only what they share" in message
    df = load(spark, logs.url, subscribe="one,two", columns="n,topic")
    assert df.columns == ["n", "topic"]
    assert sorted(map(tuple, df.collect())) == [(1, "one"), (2, "two")]
    # A topic that is not Kafka-shaped has a topic column only in reads of a store.
    assert load(spark, logs.topic("one").url).columns == [
        "partition",
        "offset",
        "timestamp",
        "n",
        "s",
    ]
    assert load(spark, logs.url, subscribe="one").columns[0] == "topic"


def test_time_travel(spark: SparkSession, tmp_path: Path) -> None:
    now = T0
    logs = pylogtable.open(tmp_path / "logs", clock=lambda: now)
    topic = logs.create_topic("t")
    for number in range(3):
        now = T0 + 1000 * (number + 1)
        topic.append(numbers(0, number))
    topic.delete_records({0: 2})
    assert values(load(spark, topic.url)) == [2]
    assert values(load(spark, topic.url, versionAsOf=2)) == [0, 1]
    assert values(load(spark, topic.url, timestampAsOf=T0 + 1999)) == [0]
    assert values(load(spark, topic.url, timestampAsOf=at(2000).isoformat())) == [0, 1]
    assert load(spark, logs.url, subscribe="t", versionAsOf=0).count() == 0
    assert "version 99" in failure(lambda: load(spark, topic.url, versionAsOf=99))
    early = failure(lambda: load(spark, topic.url, timestampAsOf=T0 - 1))
    assert "no version" in early.lower() or "before" in early.lower()


TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("flag", pa.bool_()),
        ("b", pa.int8()),
        ("h", pa.int16()),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(20, 4)),
        ("list", pa.list_(pa.field("element", pa.string()))),
        ("map", pa.map_(pa.string(), pa.int64())),
        (
            "deep",
            pa.struct(
                [
                    (
                        "x",
                        pa.list_(
                            pa.field("element", pa.struct([("ts", pa.timestamp("us", "UTC"))]))
                        ),
                    ),
                    ("dec", pa.decimal128(5, 2)),
                ]
            ),
        ),
    ]
)
FULL = {
    "id": 1,
    "flag": True,
    "b": -128,
    "h": 32767,
    "i": -(2**31),
    "f": 0.5,
    "d": 1e300,
    "s": "schön\u0000",
    "bin": b"\x00\xff",
    "day": date(1969, 7, 20),
    # In New York the first hour existed twice and the second one not at all.
    "ts": datetime(2024, 11, 3, 5, 30, 0, 123456, tzinfo=timezone.utc),
    "ntz": datetime(2024, 3, 10, 2, 30, 0, 1),
    "dec": Decimal("-1234567890123456.7891"),
    "list": ["a", None, ""],
    "map": [("k", 1), ("l", None)],
    "deep": {
        "x": [{"ts": datetime(1900, 1, 1, tzinfo=timezone.utc)}, None],
        "dec": Decimal("1.50"),
    },
}
TYPED = [FULL, {"id": 2}, {**FULL, "id": 3, "list": [], "map": []}]


@pytest.fixture(scope="module")
def typed(shared: Store) -> Topic:
    topic = shared.create_topic("typed", schema=TYPES, key="id")
    topic.append(
        pa.Table.from_pylist(TYPED, schema=TYPES).append_column("timestamp", times(1, 2, 3))
    )
    return topic


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_is_read_exactly(
    spark: SparkSession, typed: Topic, tmp_path: Path, zone: str
) -> None:
    """Compared with Spark's own reader of a Parquet file with the same values."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = load(spark, typed.url)
        assert df.columns == ["partition", "offset", "timestamp", *TYPES.names]
        pq.write_table(typed.read().read_all(), tmp_path / "same.parquet")
        assert_df_equality(
            df.orderBy("offset"),
            spark.read.parquet(str(tmp_path / "same.parquet")).orderBy("offset"),
            ignore_nullable=True,
        )
        micros = df.selectExpr("unix_micros(ts)", "CAST(ntz AS string)", "unix_micros(timestamp)")
        assert tuple(micros.first()) == (
            int(FULL["ts"].timestamp()) * 1_000_000 + 123456,  # type: ignore[attr-defined]
            "2024-03-10 02:30:00.000001",
            (T0 + 1) * 1000,
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_only_some_columns(spark: SparkSession, typed: Topic) -> None:
    df = load(spark, typed.url, columns="s, offset,id")
    assert df.columns == ["s", "offset", "id"]
    assert [tuple(row) for row in df.orderBy("offset").collect()] == [
        (FULL["s"], 0, 1),
        (None, 1, 2),
        (FULL["s"], 2, 3),
    ]
    assert load(spark, typed.url, columns='["id","timestampType"]').columns == [
        "id",
        "timestampType",
    ]
    asked = spark.read.format("pylogtable").schema("dec decimal(20,4), id long").load(typed.url)
    same = [(FULL["dec"], 1), (None, 2), (FULL["dec"], 3)]
    assert_df_equality(asked, spark.createDataFrame(same, asked.schema), ignore_row_order=True)


def test_columns_that_were_added_and_widened_later(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", schema=pa.schema([("n", pa.int32()), ("s", pa.string())]))
    topic.append(pa.table({"n": pa.array([1], pa.int32()), "s": ["old"]}))
    before = load(spark, topic.url)
    topic.alter(add_columns={"extra": pa.float64()}, widen_columns={"n": pa.int64()})
    topic.append(pa.table({"n": [2**40], "s": ["new"], "extra": [0.5]}))
    df = load(spark, topic.url)
    assert dict(df.dtypes)["n"] == "bigint"
    assert [tuple(row)[3:] for row in in_order(df)] == [(1, "old", None), (2**40, "new", 0.5)]
    assert [tuple(row)[3:] for row in in_order(before)] == [(1, "old")]
    assert dict(before.dtypes)["n"] == "int"


def test_reading_only_partition_and_offset_opens_no_data_file(
    spark: SparkSession, logs: Store
) -> None:
    topic = setup_a(logs)
    topic.merge()  # small appends may be in no file
    where = load(spark, topic.url, columns="partition,offset,topic")
    whole = load(spark, topic.url)
    lenient = load(spark, topic.url, failOnDataLoss=False)
    _remove_data(topic)
    found = [(row.partition, row.offset) for row in in_order(where)]
    assert found == [*((0, n) for n in range(10)), *((1, n) for n in range(10)), (2, 0)]
    schema = "offset bigint"
    assert spark.read.format("pylogtable").schema(schema).load(topic.url).count() == 21
    message = failure(whole.collect)
    assert "[DATA_LOSS] a-" in message
    assert "failOnDataLoss=false" in message
    assert lenient.collect() == []


def test_offsets_with_holes_are_read_from_the_file(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t")
    topic.append(numbers(0, *range(6)))
    make_holes(topic, [1, 4])
    assert [row.offset for row in load(spark, topic.url, columns="offset").collect()] == [1, 4]
    assert values(load(spark, topic.url, startingOffsets='{"0":2}')) == [4]
    df = load(spark, topic.url, columns="partition,offset")
    _remove_data(topic)
    assert "[DATA_LOSS] t-0" in failure(df.collect)


def test_option_names_are_case_insensitive(spark: SparkSession, a: Topic) -> None:
    asked = {"STARTINGOFFSETS": "EARLIEST", "endingoffsets": offsets(1, 0, 0)}
    assert values(load(spark, a.url, **asked)) == [0]


def test_sql(spark: SparkSession, a: Topic, logs: Store) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW sql_a USING pylogtable OPTIONS (path '{a.url}')")
    found = spark.sql("SELECT max(offset) AS last FROM sql_a WHERE partition = 1").first()
    assert found.last == 9
    spark.sql("CREATE TABLE sql_t (value binary, offset bigint) USING pylogtable")
    try:
        query = (
            f"SELECT CAST(value AS string) AS v FROM sql_t WITH (path='{a.url}') WHERE offset = 9"
        )
        assert sorted(row.v for row in spark.sql(query).collect()) == ["19", "9"]
    finally:
        spark.sql("DROP TABLE sql_t")
        spark.catalog.dropTempView("sql_a")


def _remove_data(topic: Topic) -> None:
    files = [*Path(topic.url.removeprefix("file://")).glob("partition=*/*.parquet")]
    assert files
    for file in files:
        file.unlink()
