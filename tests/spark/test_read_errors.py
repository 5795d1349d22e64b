"""Batch reads that are refused: when, and with which message. Most are the Kafka connector's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import pylogtable
from pylogtable import LogTableError, SchemaMismatchError, StorageError, Store
from pylogtable.engine import Scan
from pyspark_pylogtable import DefaultSource
from tests.builders import T0, ints, kafka, rows, times
from tests.spark.support import failure, in_order, load, without_spark


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two topics: `t` has 0 to 4 in partition 0 and 5 in partition 1; `cut` starts at 3."""
    store = pylogtable.open(tmp_path_factory.mktemp("errors"))
    topic = store.create_topic("t", partitions=2)
    partition = ints(0, 0, 0, 0, 0, 1)
    topic.append(kafka([None] * 6, partition=partition, timestamp=times(0, 1, 2, 3, 4, 5)))
    cut = store.create_topic("cut")
    cut.append(kafka([None] * 5))
    cut.delete_records({0: 3})
    return store


def of_t(p0: object, p1: object) -> str:
    return json.dumps({"t": {"0": p0, "1": p1}})


AT_LOAD: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "no choice": ("", {}, ["One of the following options must be specified", "cut, t"]),
    "two choices": (
        "",
        {"subscribe": "t", "assign": '{"t":[0]}'},
        ["Only one of the following options can be specified", "subscribe and assign"],
    ),
    "blank subscribe": ("", {"subscribe": " , "}, ["No topics to subscribe"]),
    "blank assign": ("", {"assign": "{}"}, ["No topicpartitions to assign"]),
    "blank pattern": ("", {"subscribePattern": " "}, ["Pattern to subscribe is empty"]),
    "end at earliest": (
        "t",
        {"endingOffsets": "earliest"},
        ["ending offset can't be earliest for batch queries"],
    ),
    "end of one at earliest": (
        "t",
        {"endingOffsets": of_t(1, -2)},
        ["ending offset for t-1 can't be earliest"],
    ),
    "bad JSON": ("t", {"startingOffsets": '{"t":'}, ["Expected e.g. {", 'got {"t":']),
    "bad JSON of assign": ("", {"assign": "t:0"}, ["Expected e.g. {", "got t:0"]),
    "no time": ("t", {"startingTimestamp": "soon"}, ["Expected a single long value, got 'soon'"]),
    "other partitions": (
        "t",
        {"startingOffsets": of_t(0, 0), "endingOffsets": '{"t":{"0":1}}'},
        [
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET]",
            "[t-0, t-1]",
            "[t-0]",
        ],
    ),
    "start after end": (
        "t",
        {"startingOffsets": of_t(1, 0), "endingOffsets": of_t(0, 0)},
        ["[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] t-0: start 1", "end 0"],
    ),
    "missing topic": ("", {"subscribe": "cutt"}, ["there is no topic at", "did you mean 'cut'?"]),
    "missing path": ("nowhere", {}, ["there is no topic at", "create it with"]),
    "pattern of no topic": ("", {"subscribePattern": "c"}, ["no topic of", "its topics: cut, t"]),
    "missing partition": (
        "",
        {"assign": '{"t":[1,7]}'},
        ["assign names partition(s) 7 of topic 't', which has only 0 to 1"],
    ),
    "unknown option": (
        "t",
        {"startingOffset": "earliest"},
        ["unknown option 'startingoffset'; did you mean 'startingOffsets'?"],
    ),
    "option of a broker": (
        "t",
        {"kafka.bootstrap.servers": "host:9092"},
        ["there is no broker here; use path instead"],
    ),
    "option of writes": (
        "t",
        {"txnAppId": "a", "txnVersion": 1},
        ["for writing, and this is a read"],
    ),
    "unknown column": ("t", {"columns": "offset,valu"}, ["valu", "value"]),
    "no such version": ("t", {"versionAsOf": 7}, ["no version 7; the newest is 1"]),
    "no such time": ("t", {"timestampAsOf": 1000}, ["has no version as old as"]),
    "two versions": ("t", {"versionAsOf": 0, "timestampAsOf": 1}, ["give one of them"]),
    "version of two topics": (
        "",
        {"subscribe": "t,cut", "versionAsOf": 1},
        ["versionAsOf is a version of one topic, and 2 topics are read"],
    ),
}
AT_ACTION: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "start at latest": (
        "t",
        {"startingOffsets": "latest"},
        ["starting offset can't be latest for batch queries"],
    ),
    "start of one at latest": (
        "t",
        {"startingOffsets": of_t(-1, 0)},
        ["starting offset for t-0 can't be latest for batch queries"],
    ),
    "not all partitions": (
        "t",
        {"startingOffsets": '{"t":{"0":0}}'},
        ["[START_OFFSET_DOES_NOT_MATCH_ASSIGNED]", "Specified: [t-0]", "Assigned: [t-0, t-1]"],
    ),
    "start after the end as resolved": (
        "t",
        {"startingOffsets": of_t(3, 0), "endingTimestamp": T0 + 1},
        ["[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] t-0: resolved start 3", "resolved end 1"],
    ),
    "start time after end time": (
        "t",
        {"startingTimestamp": T0 + 2, "endingTimestamp": T0 + 1},
        [
            "[UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP]",
            f"start {T0 + 2}",
            f"end {T0 + 1}",
        ],
    ),
    "removed by retention": (
        "cut",
        {"startingOffsets": '{"0":1}'},
        ["[DATA_LOSS]", "offset 1 of cut-0, whose log starts at 3", "failOnDataLoss=false"],
    ),
    "beyond the end": (
        "cut",
        {"endingOffsets": '{"0":9}'},
        ["[DATA_LOSS]", "offset 9 of cut-0, whose log ends at 5"],
    ),
    "short offsets of two topics": (
        "",
        {"subscribe": "t,cut", "startingOffsets": '{"*":0}'},
        ["startingOffsets names no topic, and 2 are read (cut, t)"],
    ),
}


def source(store: Store, name: str, options: dict[str, Any]) -> DefaultSource:
    """What Spark creates: it passes the names of options in small letters, and values as text."""
    given = {option.lower(): str(value) for option, value in options.items()}
    return DefaultSource({"path": f"{store.url}/{name}".rstrip("/"), **given})


@pytest.mark.parametrize("case", AT_LOAD)
def test_refused_at_load(store: Store, case: str) -> None:
    """`load` asks for the schema."""
    name, options, gist = AT_LOAD[case]
    with pytest.raises(LogTableError) as caught:
        source(store, name, options).schema()
    for words in gist:
        assert words in str(caught.value)


@pytest.mark.parametrize("case", AT_ACTION)
def test_refused_at_the_first_action(store: Store, case: str) -> None:
    """An action asks for the partitions."""
    name, options, gist = AT_ACTION[case]
    asked = source(store, name, options)
    schema = asked.schema()
    with pytest.raises(LogTableError) as caught:
        asked.reader(schema).partitions()
    for words in gist:
        assert words in str(caught.value)


def test_messages_reach_the_user_through_spark(spark: SparkSession, store: Store) -> None:
    for case in ("unknown option", "start after end"):
        name, options, gist = AT_LOAD[case]
        message = failure(lambda o=options, n=name: load(spark, f"{store.url}/{n}", **o))
        assert all(words in message for words in gist)
    name, options, gist = AT_ACTION["removed by retention"]
    df = load(spark, f"{store.url}/{name}", **options)
    message = failure(df.collect)
    assert all(words in message for words in gist)


def test_fail_on_data_loss_false_skips_lost_records(spark: SparkSession, store: Store) -> None:
    asked = {"startingOffsets": '{"0":1}', "endingOffsets": '{"0":9}', "failOnDataLoss": "false"}
    df = load(spark, store.topic("cut").url, **asked)
    assert [row.offset for row in in_order(df)] == [3, 4]


@pytest.mark.parametrize(
    ("schema", "gist"),
    [
        ("offset bigint, valu binary", "topic 't' has no column 'valu'; did you mean 'value'?"),
        (
            "value string",
            "column 'value' of topic 't' is binary, and was requested as string; read it as it is",
        ),
    ],
)
def test_user_schema_that_does_not_fit_is_refused(
    spark: SparkSession, store: Store, schema: str, gist: str
) -> None:
    df = spark.read.format("pylogtable").schema(schema).load(store.topic("t").url)
    assert gist in failure(df.collect)


def test_nulls_in_a_not_null_column_are_an_error(logs: Store) -> None:
    """Spark would optimise `IS NULL` away and count wrongly."""
    topic = logs.create_topic("t")
    topic.append(kafka(["a", "b"], [b"1", None]))
    asked = StructType(
        [StructField("offset", LongType(), False), StructField("value", BinaryType(), False)]
    )
    source = DefaultSource({"path": topic.url})

    def read(schema: StructType) -> list[dict[str, Any]]:
        reader = source.reader(schema)
        batches = (batch for part in reader.partitions() for batch in reader.read(part))
        return [row for batch in batches for row in batch.to_pylist()]

    with pytest.raises(
        SchemaMismatchError, match="'value' was requested as NOT NULL, but it has nulls"
    ):
        read(asked)
    assert read(StructType(asked.fields[:1])) == [{"offset": 0}, {"offset": 1}]


def test_no_path(spark: SparkSession) -> None:
    message = failure(lambda: spark.read.format("pylogtable").load())
    assert "CREATE TEMPORARY VIEW v USING pylogtable OPTIONS (path '<path>')" in message
    message = failure(lambda: spark.read.format("pylogtable").load(["/a", "/b"]))
    assert "several paths at once" in message


@pytest.mark.records_in("files")
def test_lost_segment_loses_only_its_own_records(logs: Store) -> None:
    topic = logs.create_topic("t")
    for value in "abc":
        topic.append(kafka([None], [value]))
    part = Scan(topic.at()).parts()[0]
    assert len(part.tasks) == 3
    _path(topic.url, part.tasks[1].segment.path).unlink()
    with pytest.raises(StorageError, match=r"^\[DATA_LOSS\] t-0: offsets 1 to 1 cannot be read"):
        without_spark(topic.url)
    with pytest.warns(UserWarning, match=r"^\[DATA_LOSS\] t-0: offsets 1 to 1 cannot be read"):
        found = without_spark(topic.url, failOnDataLoss="false")
    assert rows(found, "value") == [b"a", b"c"]


@pytest.mark.records_in("files")
def test_fail_on_data_loss_false_hides_no_other_error(logs: Store) -> None:
    topic = logs.create_topic("t")
    topic.append(kafka([None]))
    path = _path(topic.url, topic.segments()["path"][0].as_py())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(pylogtable.LogTableError) as caught:
        without_spark(topic.url, failOnDataLoss="false")
    assert "DATA_LOSS" not in str(caught.value)


def _path(url: str, path: str) -> Path:
    return Path(url.removeprefix("file://"), path)
