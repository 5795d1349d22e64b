"""Records that are in commits and not in files: Spark reads, streams and writes them like others.

A fallback to Python warns, and here a warning is an error. So files were read by Spark itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import Store, Topic
from pyspark_pylogtable import LogTable
from pyspark_pylogtable.columns import spark_schema
from tests.builders import T0, Clock, at, kafka, limited, rows
from tests.spark.streams import EARLIEST, forget_last_commit, read_stream, run
from tests.spark.support import inserts_some_columns, load, without_spark
from tests.spark.writes import data_files, files, plan, save, stage, travelled, write

INT, TEXT = pa.int32(), pa.string()
ON = {"inline.max.bytes": 16384}


def people(count: int, at_ms: int) -> pa.Table:
    """Keyed rows, one millisecond apart."""
    times = [at(at_ms + number) for number in range(count)]
    return pa.table(
        {
            "k": [f"u{number % 53}" for number in range(count)],
            "v": pa.array(range(count), INT),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def inline_of(topic: Topic) -> int:
    """How many live segments are in commits."""
    return sum("@" in path for path in topic.segments()["path"].to_pylist())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    """Versions one second apart. 1 and 2 are in commits, 4 is in files, 6 in a commit, with a new
    column and the other timestamp type. 7 deletes the offsets below 20 in partition 0."""
    clock = Clock()
    store = pylogtable.open(tmp_path_factory.mktemp("mixed"), clock=clock)
    topic = store.create_topic("mixed", 3, {"k": TEXT, "v": INT}, key="k", config=ON)
    for version, change in enumerate(
        [
            lambda: topic.append(people(100, 0)),
            lambda: topic.append(people(100, 100)),
            lambda: topic.alter(config={"inline.max.bytes": 0}),
            lambda: topic.append(people(100, 200)),
            lambda: topic.alter(
                config={**ON, "message.timestamp.type": "LogAppendTime"},
                add_columns={"new": pa.list_(INT)},
            ),
            lambda: topic.append(
                people(60, 300).append_column("new", pa.array([[1]] * 60, pa.list_(INT)))
            ),
            lambda: topic.delete_records({0: 20}),
        ],
        1,
    ):
        clock.tick(1000)
        change()
        assert topic.version == version
    assert (inline_of(topic), topic.segments().num_rows) == (9, 12)
    return topic


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all": ({}, {}),
    "in commits only": ({"version": 2}, {"versionAsOf": 2}),
    "version by time": ({"version": at(1500)}, {"timestampAsOf": T0 + 1500}),
    "cut by offsets": (
        {"start": 25, "end": 90},
        {"startingOffsets": '{"*":25}', "endingOffsets": '{"*":90}'},
    ),
    "cut by times": (
        {"start": at(150), "end": at(230)},
        {"startingTimestamp": T0 + 150, "endingTimestamp": T0 + 230},
    ),
    "one partition": ({"partitions": 1}, {"assign": '{"mixed":[1]}'}),
    "columns": (
        {"columns": ["timestampType", "new", "offset", "topic", "partition"]},
        {"columns": "timestampType,new,offset,topic,partition"},
    ),
    "columns of a cut without offset": (
        {"columns": ["v", "timestampType"], "start": 25, "end": 90},
        {"columns": "v,timestampType", "startingOffsets": '{"*":25}', "endingOffsets": '{"*":90}'},
    ),
}


@pytest.mark.parametrize("by", ["driver", pytest.param("tasks", marks=pytest.mark.deep)])
@pytest.mark.parametrize("case", CASES)
def test_to_df_has_the_records_in_files_and_in_commits(
    spark: SparkSession, mixed: Topic, case: str, by: str
) -> None:
    if by == "tasks":
        mixed = limited(mixed, driver_commits=0)
    arguments, options = CASES[case]
    path = mixed.url.removesuffix("/mixed") if "assign" in options else mixed.url
    if "assign" in options:
        options = {**options, "columns": json.dumps(mixed.schema.names)}
    expected = without_spark(path, **options)
    check_same(natively(spark, mixed, **arguments), expected)
    if by == "driver":
        by_format = load(spark, path, **options).toArrow().cast(expected.schema)
        assert by_format.sort_by(_order(expected)) == expected.sort_by(_order(expected))


def _order(table: pa.Table) -> list[tuple[str, str]]:
    wanted = ("partition", "offset", "v")
    return [(name, "ascending") for name in wanted if name in table.column_names]


def check_same(df: DataFrame, expected: pa.Table) -> None:
    assert df.schema == spark_schema(expected.schema)
    found = df.toArrow().cast(expected.schema)
    assert found.num_rows == expected.num_rows > 0
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert df.count() == expected.num_rows


def natively(spark: SparkSession, topic: Topic, **arguments: Any) -> DataFrame:
    return LogTable(spark, topic.url, topic).to_df(**arguments)


def test_filters_and_views_work_on_both(spark: SparkSession, mixed: Topic) -> None:
    LogTable.for_path(spark, mixed.url).create_view("both")
    everything = rows(mixed.read())
    for condition, holds in [
        ("v > 90", lambda row: row["v"] > 90),
        ("offset < 25 AND partition = 1", lambda row: row["offset"] < 25 and row["partition"] == 1),
        ("new IS NOT NULL", lambda row: row["new"] is not None),
        ("k = 'u3'", lambda row: row["k"] == "u3"),
    ]:
        expected = sorted((r["partition"], r["offset"]) for r in everything if holds(r))
        found = spark.sql(f"SELECT partition, offset FROM both WHERE {condition}").collect()
        assert sorted(map(tuple, found)) == expected != []
    counted = spark.sql("SELECT count(*) FROM both").collect()[0][0]
    assert counted == len(everything)
    spark.catalog.dropTempView("both")


@pytest.mark.parametrize("inline_bytes", [0, 16384])
def test_a_null_struct_with_required_fields(
    spark: SparkSession, logs: Store, inline_bytes: int
) -> None:
    """Spark takes the fields of `named_struct` for required, and sends nulls in null structs."""
    config = {"inline.max.bytes": inline_bytes}
    schema = "struct<city:string not null, zip:int not null>"
    topic = logs.create_topic("structs", 2, {"id": "bigint", "home": schema}, "id", config=config)
    table = LogTable.for_path(spark, topic.url)
    home = "if(id % 2 = 0, null, named_struct('city', 'x', 'zip', 1)) home"
    made = spark.range(6).selectExpr("id", home)
    made.write.format("pylogtable").mode("append").save(topic.url)
    table.append(made.selectExpr("id + 6 id", "home"))
    expected = [(n, None if n % 2 == 0 else ("x", 1)) for n in range(12)]
    found = table.to_df(columns=["id", "home"]).orderBy("id").collect()
    assert [tuple(row) for row in found] == expected
    table.merge()
    found = table.to_df(columns=["id", "home"]).orderBy("id").collect()
    assert [tuple(row) for row in found] == expected


@inserts_some_columns
def test_an_insert_without_a_struct_of_required_fields(spark: SparkSession, logs: Store) -> None:
    schema = "struct<city:string not null, zip:int not null>"
    topic = logs.create_topic("structs", 2, {"id": "bigint", "home": schema}, "id")
    load(spark, topic.url).createOrReplaceTempView("structs")
    spark.sql("insert into structs (id) values (12)")
    found = LogTable.for_path(spark, topic.url).to_df(columns=["id", "home"]).collect()
    assert [tuple(row) for row in found] == [(12, None)]


def test_no_records_and_nested_columns(spark: SparkSession, logs: Store) -> None:
    nested = {"a": "array<string>", "m": "map<string,int>", "s": "struct<x:int>"}
    topic = logs.create_topic("nested", 2, {"id": "bigint", **nested}, "id", config=ON)
    table = LogTable.for_path(spark, topic.url)
    assert table.to_df().collect() == []
    topic.append(pa.table({"id": [1]}))
    assert table.to_df(start="latest").collect() == []
    assert table.to_df(version=0).collect() == []
    assert table.to_df(view="latest", keys=[99]).collect() == []
    assert table.to_df().columns[-4:] == ["id", *nested]


def test_too_many_bytes_for_the_driver_are_read_by_tasks(spark: SparkSession, mixed: Topic) -> None:
    expected = without_spark(mixed.url)
    check_same(natively(spark, limited(mixed, driver_inline_bytes=100)), expected)


def test_a_dataframe_keeps_its_version(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("pinned", 2, config=ON)
    topic.append(kafka(["a", "b", "c"]))
    df = natively(spark, topic)
    topic.append(kafka(["d"]))
    topic.merge()
    assert df.count() == 3
    assert natively(spark, topic).count() == 4
    assert natively(spark, topic, version=1).count() == 3


# format("pylogtable"), streams


@pytest.fixture
def trickle(logs: Store) -> Topic:
    """30 commits of 10 records in 3 partitions, all of them in commits."""
    topic = logs.create_topic("trickle", 3, config=ON)
    for number in range(30):
        topic.append(
            kafka(
                [str(10 * number + n) for n in range(10)],
                partition=pa.array([n % 3 for n in range(10)], INT),
            )
        )
    assert inline_of(topic) == 90
    return topic


def test_records_in_commits_share_a_task(trickle: Topic) -> None:
    from pyspark_pylogtable import DefaultSource

    source = DefaultSource({"path": trickle.url})
    assert len(source.reader(source.schema()).partitions()) == 1


@pytest.mark.deep  # `test_where_a_stream_starts` has limited batches, too.
def test_a_stream_reads_records_in_commits_in_limited_batches(
    spark: SparkSession, trickle: Topic, tmp_path: Path
) -> None:
    df = read_stream(spark, trickle.url, **EARLIEST, maxOffsetsPerTrigger=70)
    out = pylogtable.open(tmp_path / "logs").create_topic("copy", 1, config=ON)
    counts = run(df.select("key", "value"), tmp_path / "c", out.url)
    while sum(counts) < 300:  # before Spark 4.2 a run has one batch
        counts += run(df.select("key", "value"), tmp_path / "c", out.url)
    assert counts == [70, 70, 70, 70, 20]
    assert sorted(int(row["key"]) for row in rows(out.read())) == [*range(300)]
    trickle.append(kafka(["new"]))
    assert run(df.select("key", "value"), tmp_path / "c", out.url) == [1]
    # A merge of the source changes nothing for the stream.
    trickle.merge()
    assert inline_of(trickle) == 0
    trickle.append(kafka(["newer"]))
    assert run(df.select("key", "value"), tmp_path / "c", out.url) == [1]
    assert out.end_offsets() == {0: 302}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"*":50}'}, 150),
        pytest.param({"startingTimestamp": T0 + 10_000}, 200, marks=pytest.mark.deep),
        ({"startingOffsets": "earliest", "maxBytesPerTrigger": 1}, 300),
    ],
    ids=["offsets", "time", "bytes"],
)
def test_where_a_stream_starts(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], expected: int
) -> None:
    clock = Clock()
    topic = pylogtable.open(tmp_path / "logs", clock=clock).create_topic("t", 3, config=ON)
    for number in range(30):
        spread = pa.array([n % 3 for n in range(10)], INT)
        times = pa.array([at(1000 * number)] * 10, pa.timestamp("us", "UTC"))
        topic.append(kafka([str(n) for n in range(10)], partition=spread, timestamp=times))
    if "maxBytesPerTrigger" in options:
        size = topic.segments()["size_bytes"].to_pylist()
        options = {**options, "maxBytesPerTrigger": sum(size) // 3}
    if "startingOffsets" in options and options["startingOffsets"] != "earliest":
        expected = sum(end - 50 for end in topic.end_offsets().values())
    df = read_stream(spark, topic.url, **options)
    counts = run(df, tmp_path / "c")
    while sum(counts) < expected:
        more = run(df, tmp_path / "c")
        assert more
        counts += more
    assert sum(counts) == expected
    if "maxBytesPerTrigger" in options:
        assert len(counts) >= 3


# writes


def test_a_batch_write_of_few_rows_is_one_object(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", 6, {"id": pa.int64(), "text": TEXT}, key="id", config=ON)
    before = files(tmp_path / "logs" / "t")
    df = spark.range(0, 100, 1, 3).selectExpr("id", "concat('text ', id) AS text")
    save(df, topic.url)
    assert len(files(tmp_path / "logs" / "t")) == len(before) + 1
    assert topic.version == 1
    assert sorted(rows(topic.read(), "id")) == [*range(100)]
    # Tasks are put together: one segment for each partition, not one for each task.
    assert topic.segments().num_rows == inline_of(topic) == 6
    assert topic.verify(data=True)


def test_a_micro_batch_of_few_rows_is_one_object(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    source = logs.create_topic("source", 3, config=ON)
    copy = logs.create_topic("copy", 6, config=ON)
    df = read_stream(spark, source.url, **EARLIEST).select("key", "value")
    for turn in range(3):
        source.append(kafka([str(100 * turn + number) for number in range(100)]))
        before = files(tmp_path / "logs" / "copy")
        assert run(df, tmp_path / "c", copy.url) == [100]
        assert len(files(tmp_path / "logs" / "copy")) == len(before) + 1
    assert sorted(int(key) for key in rows(copy.read(), "key")) == [*range(300)]
    assert inline_of(copy) == 18
    assert copy.verify(data=True)


def test_a_repeated_micro_batch_of_few_rows_appends_nothing(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    source, copy = (logs.create_topic(name, 2, config=ON) for name in ("source", "copy"))
    source.append(kafka([str(number) for number in range(40)]))
    df = read_stream(spark, source.url, **EARLIEST).select("key", "value")
    assert run(df, tmp_path / "c", copy.url) == [40]
    before = files(tmp_path / "logs" / "copy")
    forget_last_commit(tmp_path / "c")
    assert run(df, tmp_path / "c", copy.url) == [40]
    assert files(tmp_path / "logs" / "copy") == before
    assert sum(copy.end_offsets().values()) == 40


def test_a_repeated_txn_of_few_rows_appends_nothing(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t", 2, config=ON)
    tasks = [kafka(["a", "b"]), kafka(["c"])]
    for _ in range(2):
        write(topic.url, tasks, txnAppId="etl", txnVersion=1)
    writer = plan(topic.url, tasks[0].schema, txnAppId="etl", txnVersion=2)
    messages = [stage(writer, table) for table in tasks]
    before = files(tmp_path / "logs" / "t")
    travelled(writer).commit([*messages])
    travelled(writer).commit([*messages])  # a driver that did not see the reply
    assert len(files(tmp_path / "logs" / "t")) == len(before) + 1
    assert sum(topic.end_offsets().values()) == 6
    assert topic.verify(data=True)


def test_an_aborted_write_of_few_rows_leaves_nothing(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t", 2, config=ON)
    before = files(tmp_path / "logs" / "t")
    writer = plan(topic.url, kafka(["a"]).schema)
    message = stage(writer, kafka(["a", "b"]))
    travelled(writer).abort([message, None])
    assert files(tmp_path / "logs" / "t") == before


def test_tasks_whose_rows_are_too_many_together_become_files(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t", 2, config={"inline.max.bytes": 2000})
    tasks = [kafka([f"{task}-{n}-{hash((task, n))}" for n in range(60)]) for task in range(8)]
    write(topic.url, tasks)
    assert inline_of(topic) == 0
    assert len(data_files(tmp_path / "logs" / "t")) == 2
    assert sum(topic.end_offsets().values()) == 480
    assert topic.verify(data=True)
    # Some tasks with files and others without: the order of tasks is kept.
    ordered = logs.create_topic("ordered", 1, config={"inline.max.bytes": 2000})
    large = kafka([f"large {n} {hash(n)}" for n in range(5000)])
    write(ordered.url, [kafka(["first"]), large, kafka(["last"])])
    keys = rows(ordered.read(), "key")
    assert (keys[0], keys[-1], len(keys)) == (b"first", b"last", 5002)
    assert ordered.verify(data=True)


def test_a_topic_column_sends_few_rows_to_several_topics(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    for name in ("red", "blue"):
        logs.create_topic(name, 2, config=ON)
    df = spark.range(0, 40, 1, 2).selectExpr(
        "CASE WHEN id % 2 = 0 THEN 'red' ELSE 'blue' END AS topic",
        "CAST(id AS string) AS key",
        "CAST(id AS string) AS value",
    )
    save(df, tmp_path / "logs")
    for name, odd in (("red", 0), ("blue", 1)):
        topic = logs.topic(name)
        assert topic.version == 1
        assert data_files(tmp_path / "logs" / name) == []
        assert sorted(int(key) for key in rows(topic.read(), "key")) == [*range(odd, 40, 2)]


def test_a_write_that_creates_the_topic_and_adds_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "made"
    settings = {"partitions": 2, "inline.max.bytes": 16384}
    save(spark.range(10).selectExpr("id"), path, **settings)
    save(spark.range(10).selectExpr("id", "id * 2 AS twice"), path, mergeSchema="true")
    assert data_files(path) == []
    topic = pylogtable.open_topic(path)
    found = rows(topic.read(), "id", "twice")
    assert sorted(found, key=repr) == sorted(
        [*((n, None) for n in range(10)), *((n, 2 * n) for n in range(10))], key=repr
    )
    check_same(LogTable.for_path(spark, str(path)).to_df(), without_spark(path))


def test_append_of_few_rows_by_log_table(spark: SparkSession, logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t", 3, {"id": pa.int64()}, config=ON)
    table = LogTable.for_path(spark, topic.url)
    for number in range(2):
        before = files(tmp_path / "logs" / "t")
        result = table.append(spark.range(0, 50, 1, 4), txn=("etl", number))
        assert (result.records, result.version) == (50, number + 1)
        assert len(files(tmp_path / "logs" / "t")) == len(before) + 1
    assert table.append(spark.range(0, 50, 1, 4), txn=("etl", 1)).repeated
    table.append(spark.range(0, 500_000, 1, 4))  # so many become files
    assert inline_of(table.topic) == 2
    assert table.to_df().count() == 500_100
    assert table.topic.verify(data=True)


# jobs


def test_jobs_on_records_in_commits(spark: SparkSession, logs: Store) -> None:
    topic = limited(logs, driver_segments=-1).create_topic(
        "t", 2, key="key", config={**ON, "cleanup.policy": "compact"}
    )
    for number in range(5):
        topic.append(kafka(["a", "b", "c"], [f"{number}"] * 3))
    table = LogTable(spark, topic.url, topic)
    found = table.erase(keys=[b"c"])
    assert found.records_erased == 5
    newest = {bytes(row.key): bytes(row.value) for row in table.to_df(view="latest").collect()}
    assert newest == {b"a": b"4", b"b": b"4"}
    topic.append(kafka(["d"]))
    report = LogTable(spark, topic.url, topic).compact(force=True)
    assert report.records_removed == 8
    table = LogTable.for_path(spark, topic.url)
    table.topic.append(kafka(["e"]))
    table.topic.append(kafka(["e"]))
    table.merge()
    assert inline_of(table.topic) == 0
    table.vacuum(dry_run=False)
    assert sorted(bytes(row.key) for row in table.to_df().collect()) == [
        b"a",
        b"b",
        b"d",
        b"e",
        b"e",
    ]
    assert table.topic.verify(data=True)
