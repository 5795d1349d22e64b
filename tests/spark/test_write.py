"""Appends with `df.write.format("pylogtable")`: where rows go, options, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import (
    CommitConflictError,
    InvalidRequestError,
    SchemaMismatchError,
    Store,
    TopicNotFoundError,
)
from pylogtable.engine import plan_append
from tests.builders import IN_FILES, T0, at, ints, kafka, rows, times
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.opened_files import opened_by
from tests.spark.faults import on_store, store_with
from tests.spark.support import failure
from tests.spark.writes import data_files, files, plan, save, write

HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def events(spark: SparkSession, count: int = 600, tasks: int = 3) -> Any:
    """Rows with a key, numbered in the order of the tasks."""
    every = spark.range(0, count, 1, tasks)
    return every.selectExpr("concat('user-', id % 40) AS user", "id AS number", "id * 0.5D AS half")


def same_events(count: int = 600) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "user": [f"user-{number % 40}" for number in numbers],
            "number": list(numbers),
            "half": [number * 0.5 for number in numbers],
        }
    )


# --- where rows go ---------------------------------------------------------------------------


def test_keyed_rows_get_the_same_partitions_and_order_as_from_the_library(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "events"
    save(events(spark), path, key="user", partitions=4)
    save(events(spark, 60, tasks=1), path)
    by_spark = logs.topic("events")
    schema = {"user": pa.string(), "number": pa.int64(), "half": pa.float64()}
    by_hand = logs.create_topic("by-hand", 4, schema, "user")
    by_hand.append(same_events())
    by_hand.append(same_events(60))
    columns = ("partition", "offset", "user", "number", "half")
    assert rows(by_spark.read(), *columns) == rows(by_hand.read(), *columns)
    assert rows(by_spark.history(), "operation") == ["append", "append", "create"]
    assert by_spark.describe().key == ("user",)
    assert by_spark.verify(data=True)


def test_planning_an_append_opens_the_topic_once(logs: Store, tmp_path: Path) -> None:
    """It asks a few times for newer commits: before the version is pinned, and for each check."""
    topic = logs.create_topic("t", schema={"n": pa.int64()})
    for number in range(3):
        topic.append(pa.table({"n": [number]}))
    path = str(tmp_path / "logs" / "t")
    planned = opened_by(lambda: plan(path, pa.schema({"n": pa.int64()})))
    read = Counter(Path(name).name for name in planned if "_manifest" in name)
    assert read[f"{1:020d}.json"] == 1
    assert read[f"{4:020d}.json"] <= 5


def test_append_of_many_tasks_is_one_commit_with_one_file_per_task_and_partition(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", partitions=2, config=IN_FILES)
    df = spark.range(0, 500, 1, 5).selectExpr("cast(id AS string) key", "cast(id AS string) value")
    save(df, tmp_path / "logs" / "t")
    assert topic.version == 1
    assert topic.count() == 500
    assert len(data_files(tmp_path)) == len(topic.segments()) == 10


def test_partition_column_wins_and_null_means_by_key(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", partitions=3)
    df = spark.range(0, 60, 1, 2).selectExpr(
        "cast(id AS string) AS key",
        "cast(id AS string) AS value",
        "if(id < 20, 2, cast(null AS int)) AS partition",
    )
    save(df, tmp_path / "logs" / "t")
    found = dict(rows(topic.read(), "value", "partition"))
    by_key = logs.create_topic("by-key", partitions=3)
    by_key.append(kafka([str(number) for number in range(60)]))
    hashed = dict(rows(by_key.read(), "value", "partition"))
    for number in range(60):
        value = str(number).encode()
        assert found[value] == (2 if number < 20 else hashed[value])


def test_rows_without_a_key_spread_over_partitions(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", partitions=3)
    save(spark.range(0, 300, 1, 3).selectExpr("cast(id AS string) value"), tmp_path / "logs" / "t")
    assert topic.end_offsets() == {0: 100, 1: 100, 2: 100}
    assert set(rows(topic.read(), "key")) == {None}


def test_timestamps_and_headers_are_kept_and_a_missing_time_is_the_append_time(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t")
    headers = [[("h", b"1"), ("h", None)], None, []]
    table = pa.table(
        {
            "value": ["a", "b", "c"],
            "timestamp": times(0.5, None, 2),
            "headers": pa.array(headers, HEADERS),
        }
    )
    began = datetime.now(timezone.utc)
    save(spark.createDataFrame(table).coalesce(1), tmp_path / "logs" / "t")
    first, second, third = rows(topic.read())
    assert [first["timestamp"], third["timestamp"]] == [at(0.5), at(2)]
    assert abs((second["timestamp"] - began).total_seconds()) < 60
    assert first["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert (second["headers"], third["headers"]) == (None, [])


def test_every_type_that_spark_writes_comes_back(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    df = spark.sql(
        "SELECT 1Y AS b, 2S AS s, 3 AS i, 4L AS l, 5.5F AS f, 6.25D AS d, 7.10BD AS m, true AS t, "
        "'ä' AS txt, X'00FF' AS bin, DATE'2026-01-02' AS day, "
        "TIMESTAMP'2026-01-02 03:04:05Z' AS ts, TIMESTAMP_NTZ'2026-01-02 03:04:05' AS ntz, "
        "array(1, null) AS arr, named_struct('x', 1, 'y', 'z') AS rec, map('k', 1) AS dict"
    )
    path = tmp_path / "logs" / "types"
    save(df, path, partitions=1)
    back = spark.read.format("pylogtable").load(str(path)).drop("partition", "offset", "timestamp")
    assert dict(back.dtypes) == dict(df.dtypes)
    assert back.select(*df.columns).collect() == df.collect()


def test_spark_settings_that_change_arrow_types_and_batches_change_nothing(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.session.timeZone": "America/New_York",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name in ("a", "b"):
        logs.create_topic(name, 2)
    df = spark.range(0, 100, 1, 2).selectExpr(
        "if(id < 30, 'a', 'b') AS topic",
        "cast(id AS string) AS key",
        "cast(id AS string) AS value",
        f"timestamp_millis({T0} + id) AS timestamp",
    )
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        save(df, tmp_path / "logs")
    finally:
        for name, old in before.items():
            spark.conf.set(name, old)
    found = rows(logs.topic("a").read(), "value", "timestamp")
    assert sorted(found) == sorted((str(n).encode(), at(n)) for n in range(30))
    assert logs.topic("b").count() == 70


def test_log_append_time_ignores_the_given_time(logs: Store, tmp_path: Path) -> None:
    table = kafka(["a"], timestamp=times(0))
    config = {"message.timestamp.type": "LogAppendTime"}
    write(tmp_path / "logs" / "t", [table], partitions=1, **config)
    (stamp,) = rows(logs.topic("t").read(), "timestamp")
    assert abs((stamp - datetime.now(timezone.utc)).total_seconds()) < 60


# --- options ---------------------------------------------------------------------------------


def test_partitions_creates_the_topic_with_its_key_and_settings(
    logs: Store, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "t"
    table = pa.table({"id": [1, 2], "v": ["a", "b"], "timestamp": times(1, 2)})
    options = {"partitions": 3, "key": "id", "cleanup.policy": "compact", "retention.ms": "1000"}
    write(path, [table], **options)
    write(path, [table], **options)
    topic = logs.topic("t")
    has = topic.describe()
    assert (has.key, len(has.partitions)) == (("id",), 3)
    assert (has.config["cleanup.policy"], has.config["retention.ms"]) == ("compact", "1000")
    assert has.schema.names == ["partition", "offset", "timestamp", "id", "v"]
    assert topic.count() == 4


@pytest.mark.parametrize(
    ("table", "options", "key", "columns"),
    [
        (pa.table({"key": ["a"], "value": ["b"]}), {}, ("key",), ["key", "value", "headers"]),
        (pa.table({"value": ["b"]}), {}, ("key",), ["key", "value", "headers"]),
        (pa.table({"key": ["a"], "value": ["b"]}), {"key": "value"}, ("value",), ["key", "value"]),
        (pa.table({"value": ["b"], "n": [1]}), {}, (), ["value", "n"]),
        (pa.table({"a": ["b"], "n": [1]}), {"key": "a, n"}, ("a", "n"), ["a", "n"]),
    ],
)
def test_columns_decide_the_shape_of_a_topic_that_a_write_creates(
    logs: Store,
    tmp_path: Path,
    table: pa.Table,
    options: dict[str, str],
    key: tuple[str, ...],
    columns: list[str],
) -> None:
    write(tmp_path / "logs" / "t", [table], partitions=1, **options)
    has = logs.topic("t").describe()
    assert has.key == key
    own = [name for name in has.schema.names if name not in ("partition", "offset", "timestamp")]
    assert own == columns


def test_creation_options_that_differ_from_an_existing_topic_are_a_warning(
    logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", partitions=2)
    writer_for = {"partitions": 3, "retention.ms": "5"}
    with pytest.warns(UserWarning, match="partitions is 2, not 3") as caught:
        write(tmp_path / "logs" / "t", [kafka(["a"]), kafka(["b"])], **writer_for)
    assert "retention.ms is 604800000, not 5" in str(caught[0].message)
    assert len([said for said in caught if "exists, so" in str(said.message)]) == 1
    assert topic.count() == 2
    assert len(topic.end_offsets()) == 2


def test_rows_that_retention_would_remove_at_once_are_a_warning(
    logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t", config=IN_FILES)
    now = pa.array([datetime.now(timezone.utc)], pa.timestamp("us", tz="UTC"))
    tasks = [kafka("abc", timestamp=times(0, 1, 2)), kafka("d", timestamp=now)]
    with pytest.warns(UserWarning, match="3 of 4 records .* are already older") as caught:
        write(tmp_path / "logs" / "t", tasks)
    assert len(caught) == 1
    assert "retention.ms=604800000: the next retention removes them" in str(caught[0].message)
    assert topic.count() == 4


def test_key_option_that_differs_from_the_topic_is_refused(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("t")
    before = files(tmp_path)
    said = failure(lambda: save(events(spark), tmp_path / "logs" / "t", key="user"))
    assert "its key is key, not user: a topic's key cannot be changed" in said
    assert files(tmp_path) == before


def test_a_repeated_txn_appends_nothing_and_writes_no_file(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t")
    path = tmp_path / "logs" / "t"
    df = spark.range(0, 10, 1, 2).selectExpr("cast(id AS string) value")
    save(df, path, txnAppId="job", txnVersion=1)
    before = files(tmp_path)
    written = {name: (tmp_path / name).stat().st_mtime_ns for name in before}
    save(df, path, txnAppId="job", txnVersion=1)
    assert files(tmp_path) == before
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == written
    save(df, path, txnAppId="job", txnVersion=2)
    save(df, path, txnAppId="other", txnVersion=1)
    assert topic.count() == 30


def test_tasks_of_a_repeated_txn_use_no_store(logs: Store, tmp_path: Path) -> None:
    logs.create_topic("t")
    write(tmp_path / "logs" / "t", [kafka(["a"])], txnAppId="job", txnVersion=1)
    writer = plan(tmp_path / "logs" / "t", kafka(["a"]).schema, txnAppId="job", txnVersion=1)
    used: list[str] = []
    faulty = store_with(tmp_path / "logs", lambda verb, key: used.append(verb))
    assert on_store(writer, faulty).write(iter(kafka(["a"]).to_batches())).staged == {}
    assert used == []


def test_a_txn_without_rows_is_remembered(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t")
    write(tmp_path / "logs" / "t", [kafka([])], txnAppId="job", txnVersion=7)
    found = plan_append(topic).find_txn("job", 7)
    assert found is not None
    assert found.records == 0
    write(tmp_path / "logs" / "t", [kafka(["a"])], txnAppId="job", txnVersion=7)
    assert topic.count() == 0


def test_no_rows_and_no_txn_make_no_commit(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t")
    save(spark.createDataFrame([], "value string"), tmp_path / "logs" / "t")
    assert topic.version == 0


def test_txn_version_that_goes_back_is_refused_before_anything_is_written(
    logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("t")
    path = tmp_path / "logs" / "t"
    write(path, [kafka(["a"])], txnAppId="job", txnVersion=5)
    before = files(tmp_path)
    with pytest.raises(InvalidRequestError, match="Numbers of an app id must grow"):
        write(path, [kafka(["a"])], txnAppId="job", txnVersion=4)
    assert files(tmp_path) == before


def test_a_write_that_expects_another_last_txn_is_refused_before_anything_is_written(
    logs: Store, tmp_path: Path
) -> None:
    topic = logs.create_topic("t")
    path = tmp_path / "logs" / "t"
    write(path, [kafka(["a"])], txnAppId="job", txnVersion=5, txnExpectedLast="none")
    before = files(tmp_path)
    for last in ("none", 4):
        with pytest.raises(CommitConflictError, match="of app id 'job' is 5 in version 1"):
            plan(path, kafka(["b"]).schema, txnAppId="job", txnVersion=6, txnExpectedLast=last)
    assert files(tmp_path) == before
    write(path, [kafka(["a"])], txnAppId="job", txnVersion=5, txnExpectedLast="none")
    write(path, [kafka(["b"])], txnAppId="job", txnVersion=6, txnExpectedLast=5)
    assert topic.count() == 2


def test_a_write_has_a_note(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t")
    path = tmp_path / "logs" / "t"
    note = {"read_to": {"0": 12}}
    write(path, [kafka(["a"])], txnAppId="job", txnVersion=5, txnNote=json.dumps(note))
    write(path, [kafka(["a"])], txnAppId="job", txnVersion=5, txnNote="1")  # a repeat
    last = topic.txn("job")
    assert last is not None
    assert (last.number, last.note, last.records) == (5, note, 1)
    before = files(tmp_path)
    with pytest.raises(InvalidRequestError, match="may have 4,096 bytes"):
        write(path, [kafka(["b"])], txnAppId="job", txnVersion=6, txnNote=json.dumps("x" * 4096))
    assert files(tmp_path) == before


def test_rows_that_name_their_topics_have_no_expected_last_txn(logs: Store, tmp_path: Path) -> None:
    logs.create_topic("a")
    table = kafka(["x"], topic=pa.array(["a"]))
    options = {"txnAppId": "job", "txnVersion": 1, "txnExpectedLast": "none"}
    with pytest.raises(InvalidRequestError, match="is the last txnVersion of one topic"):
        plan(tmp_path / "logs", table.schema, **options)
    write(tmp_path / "logs", [table.drop_columns("topic")], topic="a", **options)


def test_a_repeated_txn_over_several_topics_removes_what_it_staged(
    logs: Store, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        logs.create_topic(name)
    table = kafka(["x", "y"], topic=pa.array(["a", "b"]))
    write(tmp_path / "logs", [table], txnAppId="job", txnVersion=1)
    before = files(tmp_path)
    write(tmp_path / "logs", [table], txnAppId="job", txnVersion=1)
    assert files(tmp_path) == before
    assert logs.topic("a").count() == logs.topic("b").count() == 1


def test_storage_options_reach_the_tasks_and_the_commit(
    spark: SparkSession, s3_endpoint: str
) -> None:
    secrets = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    path = f"s3a://{S3_BUCKET}/spark-write/t"
    df = spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) key", "cast(id AS string) value")
    save(df, path, partitions=2, storageOptions=json.dumps(secrets))
    topic = pylogtable.open_topic(path, storage_options=secrets)
    assert (topic.count(), topic.version) == (100, 1)


# --- topics of a store -----------------------------------------------------------------------


def test_a_topic_column_writes_to_several_topics_with_one_commit_each(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    df = spark.range(0, 90, 1, 3).selectExpr(
        "concat('t', id % 3) AS topic", "cast(id AS string) AS key", "cast(id AS string) AS value"
    )
    save(df, tmp_path / "logs", partitions=2, createTopics=True)
    assert logs.topics() == ["t0", "t1", "t2"]
    for number in range(3):
        topic = logs.topic(f"t{number}")
        found = {int(value) for value in rows(topic.read(), "value")}
        assert found == set(range(number, 90, 3))
        assert rows(topic.history(), "operation") == ["append", "create"]
    save(df, tmp_path / "logs", topic="t1")
    assert logs.topic("t1").count() == 30 + 90
    assert logs.topic("t0").count() == 30


def test_the_topic_option_alone_chooses_a_topic_of_the_store(logs: Store, tmp_path: Path) -> None:
    logs.create_topic("a")
    write(tmp_path / "logs", [kafka(["x"])], topic=" a ")
    assert logs.topic("a").count() == 1


def test_topic_column_must_name_the_topic_of_the_path(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("a")
    path = tmp_path / "logs" / "a"
    df = spark.range(0, 20, 1, 2).selectExpr("if(id = 19, 'b', 'a') AS topic", "'x' AS value")
    said = failure(lambda: save(df, path))
    assert "a column 'topic' with 'b', and they go to the topic 'a'. Drop the column" in said
    assert (logs.topic("a").version, logs.topics()) == (0, ["a"])
    with pytest.raises(InvalidRequestError, match="column 'topic' with null"):
        write(path, [kafka(["x", "y"], topic=pa.array(["a", None]))])
    write(path, [kafka(["x", "y"], topic=pa.array(["a", "a"]))])
    write(tmp_path / "logs", [kafka(["x"], topic=pa.array(["b"]))], topic="a")
    assert (logs.topic("a").count(), logs.topics()) == (3, ["a"])


def test_topic_column_makes_no_store_without_an_option_that_says_so(tmp_path: Path) -> None:
    rows_of_two = kafka(["x", "y"], topic=pa.array(["a", "b"]))
    path = tmp_path / "logs"
    with pytest.raises(
        InvalidRequestError, match=r"nothing is at .*drop that column.*createTopics"
    ):
        write(path, [rows_of_two], partitions=1)
    with pytest.raises(InvalidRequestError, match="createTopics needs the number of partitions"):
        write(path, [rows_of_two], createTopics=True)
    assert files(tmp_path) == []
    pylogtable.open(path).create_topic("a")
    with pytest.raises(TopicNotFoundError, match=r"let this write create it: .*createTopics"):
        write(path, [rows_of_two], partitions=1)
    assert pylogtable.open(path).topics() == ["a"]
    for options in ({}, {"topic": "a"}):
        place = path if options else path / "a"
        with pytest.raises(InvalidRequestError, match=r"createTopics .* this write goes to one"):
            write(place, [kafka(["x"])], createTopics=True, **options)


def test_topic_column_works_on_a_store_whose_folder_is_no_topic_name(tmp_path: Path) -> None:
    folder = tmp_path / "my logs"
    write(folder, [kafka(["x"], topic=pa.array(["a"]))], partitions=1, createTopics=True)
    assert pylogtable.open(folder).topic("a").count() == 1


def test_store_path_needs_a_topic_option_or_column(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("a")
    before = files(tmp_path)
    df = spark.createDataFrame([("x",)], "value string")
    for options in ({}, {"partitions": 2}):
        said = failure(lambda options=options: save(df, tmp_path / "logs", **options))
        assert "topic option required when no 'topic' attribute is present" in said
        assert "store with the topic(s) a." in said
    assert files(tmp_path) == before


def test_null_topic_fails_the_write_for_all_topics(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        logs.create_topic(name)
    df = spark.range(0, 40, 1, 4).selectExpr(
        "if(id = 39, null, if(id % 2 = 0, 'a', 'b')) AS topic", "cast(id AS string) AS value"
    )
    said = failure(lambda: save(df, tmp_path / "logs"))
    assert "null topic present in the data. Use the topic option for setting a topic." in said
    assert logs.topic("a").count() == logs.topic("b").count() == 0
    assert logs.topic("a").version == logs.topic("b").version == 0


def test_unknown_topic_in_the_rows_fails_the_write(logs: Store, tmp_path: Path) -> None:
    logs.create_topic("a")
    table = kafka(["x", "y"], topic=pa.array(["a", "nope"]))
    with pytest.raises(TopicNotFoundError, match="let this write create it"):
        write(tmp_path / "logs", [table])
    assert logs.topics() == ["a"]
    assert data_files(tmp_path) == []


# --- refusals, before any data is written ----------------------------------------------------

TEXT, BYTES, INT = pa.string(), pa.binary(), pa.int32()

REFUSED = [
    ({"value": INT}, {}, r"value must be a\(n\) string or binary, and is int32; cast it"),
    ({"key": INT, "value": TEXT}, {}, r"key must be a\(n\) string or binary, and is int32"),
    ({"value": TEXT, "topic": INT}, {}, r"topic must be a\(n\) string, and is int32"),
    ({"value": TEXT, "partition": TEXT}, {}, "column 'partition' is .*; it must be an integer"),
    ({"value": TEXT, "timestamp": pa.timestamp("us")}, {}, "timestamp with a time zone"),
    ({"value": TEXT, "timestamp": pa.int64()}, {}, "timestamp with a time zone"),
    ({"value": TEXT, "offset": pa.int64()}, {}, "column 'offset' is given by the log"),
    ({"value": TEXT}, {"startingOffsets": "earliest"}, "startingOffsets is for reading"),
    ({"value": TEXT}, {"subscribe": "t"}, "subscribe is for reading.*topic names the topic"),
    ({"value": TEXT}, {"versionAsOf": "1", "view": "latest"}, "versionAsOf, view are for read"),
    ({"value": TEXT}, {"txnAppId": "a"}, "txnAppId is given without txnVersion"),
    ({"value": TEXT}, {"partition": "3"}, "did you mean"),
]
#: A topic that the write creates would have such columns.
REFUSED_BY_A_TOPIC = [
    ({"key": TEXT}, {}, "Required attribute 'value' not found"),
    ({"value": TEXT, "headers": TEXT}, {}, "column 'headers'"),
    ({"value": TEXT, "valve": TEXT}, {}, "no column 'valve'; did you mean 'value'?"),
]


@pytest.mark.parametrize(
    ("columns", "options", "message", "exists"),
    [
        *((*case, True) for case in (*REFUSED, *REFUSED_BY_A_TOPIC)),
        *((*case, False) for case in REFUSED),
    ],
)
def test_refused_write_leaves_no_file(
    logs: Store,
    tmp_path: Path,
    columns: dict[str, pa.DataType],
    options: dict[str, str],
    message: str,
    exists: bool,
) -> None:
    if exists:
        logs.create_topic("t")
    else:
        options = {**options, "partitions": "2"}
    before = files(tmp_path)
    with pytest.raises(InvalidRequestError, match=message):
        plan(tmp_path / "logs" / "t", pa.schema(columns), **options)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"id": TEXT}, {"key": "nope"}),
        ({"id": TEXT}, {"retention.ms": "soon"}),
        ({"id": TEXT, "offset": INT}, {}),
        ({"id": TEXT}, {"cleanup.policy": "compact"}),
    ],
)
def test_topic_that_cannot_be_created_leaves_no_file(
    tmp_path: Path, columns: dict[str, pa.DataType], options: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError):
        plan(tmp_path / "logs" / "t", pa.schema(columns), partitions=1, **options)
    assert files(tmp_path) == []


def test_kafka_column_names_with_other_types_are_kept(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t", 2, {"key": pa.int64(), "value": pa.float64()}, "key")
    write(tmp_path / "logs" / "t", [pa.table({"key": [1, 2], "value": [0.5, 1.5]})])
    assert sorted(rows(topic.read(), "key", "value")) == [(1, 0.5), (2, 1.5)]
    with pytest.raises(SchemaMismatchError, match="column 'value' is string"):
        write(tmp_path / "logs" / "t", [pa.table({"key": [1], "value": ["x"]})])


def test_missing_topic_error_says_how_to_create_it(spark: SparkSession, tmp_path: Path) -> None:
    said = failure(lambda: save(events(spark), tmp_path / "logs" / "nope"))
    assert "there is no topic at" in said
    assert ".create_topic('nope', partitions=...)" in said
    assert '.option("partitions", <how many>)' in said
    assert files(tmp_path) == []


def test_unsupported_column_type_is_refused_by_name(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("t")
    path = tmp_path / "logs" / "t"
    odd = spark.sql("SELECT 'x' AS value, INTERVAL '1' YEAR AS gap")
    assert "gap" in failure(lambda: save(odd, path))
    assert data_files(tmp_path) == []


def test_other_modes_and_partition_by_are_refused(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("t").append(kafka(["a"]))
    path = tmp_path / "logs" / "t"
    before = files(tmp_path)
    df = spark.createDataFrame([("x", "y")], "key string, value string")
    said = failure(lambda: save(df, path, mode="overwrite"))
    assert "records are appended, never overwritten. Use mode('append')" in said
    for mode in ("ignore", "errorifexists"):
        said = failure(lambda mode=mode: save(df, path, mode=mode))
        assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in said
    by_key = df.write.format("pylogtable").mode("append").partitionBy("key")
    assert "partitioning" in failure(lambda: by_key.save(str(path)))
    assert files(tmp_path) == before


def test_unknown_partition_fails_the_write(logs: Store, tmp_path: Path) -> None:
    topic = logs.create_topic("t", 2)
    with pytest.raises(InvalidRequestError, match="row 1: partition 2 is out of range"):
        write(tmp_path / "logs" / "t", [kafka(["a", "b"], partition=ints(0, 2))])
    assert topic.version == 0
    assert data_files(tmp_path) == []


# --- concurrent writes, and large ones -------------------------------------------------------


def test_racing_writes_create_one_topic_and_lose_no_row(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    path = tmp_path / "logs" / "t"
    failed: list[BaseException] = []

    def append(first: int) -> None:
        try:
            # In a new thread Spark finds Python sources only if a session is active.
            spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
            df = spark.range(first, first + 50, 1, 1).selectExpr("id AS number")
            save(df, path, partitions=2)
        except BaseException as error:
            failed.append(error)

    together(*(lambda first=first: append(first) for first in (0, 50, 100)))
    assert failed == []
    topic = logs.topic("t")
    assert rows(topic.history(), "operation") == [*["append"] * 3, "create"]
    assert sorted(rows(topic.read(), "number")) == list(range(150))


def together(*actions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "topics",
    [pytest.param(1, marks=pytest.mark.deep), 24],
)
def test_a_task_writes_a_long_stream_in_bounded_memory(tmp_path: Path, topics: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG_STREAM, str(tmp_path / "logs"), str(topics)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    at_first, at_last, count = map(int, done.stdout.split())
    assert count == 1_500_000
    assert at_last - at_first < 600 << 20


# 1.5 million rows of 600 bytes (900 MB), with only one batch in memory at a time.
LONG_STREAM = """
import sys
import numpy as np, pyarrow as pa
import pylogtable
from tests.memory import peak_bytes
from tests.spark.writes import plan

path, topics = sys.argv[1], int(sys.argv[2])
schema = pa.schema({"topic": pa.string(), "key": pa.binary(), "value": pa.binary()})

def batches():
    chance = np.random.default_rng(1)
    for _ in range(150):
        names = pa.array([f"t{n}" for n in range(topics)])
        topic = names.take(pa.array(chance.integers(0, topics, 10_000)))
        noise = pa.py_buffer(chance.bytes(10_000 * 16))
        text = pa.Array.from_buffers(pa.binary(16), 10_000, [None, noise])
        key = text.cast(pa.binary())
        import pyarrow.compute as pc
        value = pc.binary_join_element_wise(*[key] * 36, b"")
        yield pa.RecordBatch.from_arrays([topic, key, value], schema=schema)

options = {"topic": "t0"} if topics == 1 else {"createTopics": True}
writer = plan(path, schema, partitions=3, **{"compression.type": "lz4"}, **options)
first = peak_bytes()
message = writer.write(batches())
last = peak_bytes()
writer.commit([message])
store = pylogtable.open(path)
print(first, last, sum(store.topic(name).count() for name in store.topics()))
"""
