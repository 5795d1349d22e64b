"""The option `view`: the newest record of each key, and metadata about a topic."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import Store, Topic
from pyspark_pylogtable import DefaultSource, LogTable
from tests.builders import IN_FILES, kafka, rows
from tests.spark.support import failure, load, without_spark

METADATA = ["segments", "partitions", "history"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return pylogtable.open(tmp_path_factory.mktemp("views"))


@pytest.fixture(scope="module")
def users(store: Store) -> Topic:
    """Keys with several records, and a tombstone."""
    topic = store.create_topic("users", partitions=3)
    topic.append(kafka([f"u{n}" for n in range(20)] * 2))
    topic.append(kafka(["u3", "u4"], [None, "new"]), txn=("job", 7))
    topic.alter(config={"retention.ms": 1000})
    return topic


@pytest.fixture(scope="module")
def grown(store: Store) -> Topic:
    """Keys that changed their partition when partitions were added."""
    topic = store.create_topic("grown", partitions=2)
    topic.append(kafka([f"u{n}" for n in range(20)]))
    topic.alter(partitions=5)
    topic.append(kafka([f"u{n}" for n in range(0, 20, 2)], ["newer"] * 10))
    return topic


def records(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in df.select("partition", "offset", "key", "value").collect())


@pytest.mark.parametrize("name", ["users", "grown"])
def test_latest(spark: SparkSession, store: Store, users: Topic, grown: Topic, name: str) -> None:
    topic = store.topic(name)
    df = load(spark, topic.url, view="latest")
    assert df.columns == load(spark, topic.url).columns
    found = records(df)
    assert len({bytes(key) for _, _, key, _ in found}) == len(found) == 20
    assert found == sorted(rows(topic.latest(), "partition", "offset", "key", "value"))
    if name == "users":
        assert [value for *_, key, value in found if key == b"u3"] == [None]


def test_latest_of_an_older_version_with_some_columns(spark: SparkSession, users: Topic) -> None:
    df = load(spark, users.url, view="LATEST", versionAsOf=1, columns="value,key")
    assert df.columns == ["value", "key"]
    before = users.at(1).latest(columns=["value", "key"])
    assert sorted(map(tuple, df.collect())) == sorted(rows(before, "value", "key"))


def test_latest_needs_a_key_and_whole_topics(store: Store, users: Topic) -> None:
    keyless = store.create_topic("keyless", schema=pa.schema([("n", pa.int64())]))
    keyless.append(pa.table({"n": [1]}))
    for why, path, options in (
        ("'keyless' has no key columns", keyless.url, {}),
        ("view=latest reads whole topics", store.url, {"assign": '{"users":[0]}'}),
    ):
        # At load, not at the first action.
        source = DefaultSource({"path": path, "view": "latest", **options})
        with pytest.raises(pylogtable.InvalidRequestError, match=why):
            source.schema()
    found = without_spark(store.url, view="latest", assign='{"users":[0,1,2]}')
    assert found.num_rows == 20


def test_latest_with_a_lost_segment_is_an_error(store: Store) -> None:
    topic = store.create_topic("loses", config=IN_FILES)
    for value in ("old", "new"):
        topic.append(kafka(["a"], [value]))
    lost = topic.segments()["path"][1].as_py()
    Path(topic.url.removeprefix("file://"), lost).unlink()
    with pytest.raises(pylogtable.StorageError, match=r"^\[DATA_LOSS\] loses: a segment is gone"):
        without_spark(topic.url, view="latest")


@pytest.mark.parametrize("view", METADATA)
def test_segments_partitions_and_history_of_a_topic(
    spark: SparkSession, users: Topic, view: str
) -> None:
    expected: pa.Table = getattr(users.at(), view)()
    df = load(spark, users.url, view=view)
    assert df.columns == expected.column_names
    found = [row.asDict(recursive=True) for row in df.collect()]
    assert len(found) == expected.num_rows > 1
    assert found == [_plain(row) for row in expected.to_pylist()]


def test_segments_partitions_and_history_of_several_topics(
    spark: SparkSession, store: Store, users: Topic, grown: Topic
) -> None:
    df = load(spark, store.url, view="partitions", subscribe="users,grown")
    assert df.columns[:2] == ["topic", "partition"]
    found = sorted((row.topic, row.partition) for row in df.collect())
    assert found == [*(("grown", n) for n in range(5)), *(("users", n) for n in range(3))]
    some = load(spark, users.url, view="segments", columns="end_offset,partition")
    assert some.columns == ["end_offset", "partition"]
    asked = spark.read.format("pylogtable").schema("version bigint").option("view", "history")
    assert [row.version for row in asked.load(users.url).collect()] == [3, 2, 1, 0]


def test_consumer_groups_as_they_were_at_load(
    spark: SparkSession, store: Store, users: Topic, grown: Topic
) -> None:
    assert load(spark, users.url, view="groups").collect() == []
    assert LogTable.for_path(spark, users.url).groups().collect() == []
    billing = users.group("billing")
    billing.commit({0: 1, 2: 0}, metadata="m")
    grown.group("audit").commit({1: 0})
    expected = [_plain(row._asdict()) for row in users.describe_groups()]
    df = load(spark, users.url, view="groups")
    assert df.columns == [*expected[0]]
    billing.commit({0: 2})
    found = [_timeless(row.asDict()) for row in df.collect()]
    assert found == [_timeless(row) for row in expected]
    assert len(found) == 3
    every = load(spark, store.url, view="groups", subscribe="users,grown", columns="group,topic")
    assert sorted(set(map(tuple, every.collect()))) == [("audit", "grown"), ("billing", "users")]
    table = LogTable.for_path(spark, users.url).groups()
    assert [row.current_offset for row in table.collect()] == [2, None, 0]


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    """Without columns that depend on the time of the read."""
    return {name: value for name, value in row.items() if name != "lag_seconds"}


def test_metadata_views_of_an_older_version(users: Topic) -> None:
    found = without_spark(users.url, view="segments", versionAsOf=1)
    assert found["path"].to_pylist() == users.segments(1)["path"].to_pylist()
    assert without_spark(users.url, view="partitions", versionAsOf=0)["end"].to_pylist() == [0] * 3


def test_options_that_views_refuse(spark: SparkSession, users: Topic) -> None:
    said = failure(lambda: load(spark, users.url, view="record"))
    assert "must be one of records, latest" in said
    assert "did you mean 'records'?" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "groups", "versionAsOf": 1}, "versionAsOf is of no use with view=groups"),
        ({"view": "groups", "columns": "nope"}, "view=groups has no column 'nope'"),
        (
            {"view": "latest", "startingOffsets": "earliest"},
            "startingOffsets is of no use with view=latest",
        ),
        (
            {"view": "segments", "minPartitions": 2},
            "minPartitions is about records, and view=segments has none",
        ),
        ({"view": "history", "versionAsOf": 1}, "versionAsOf is of no use with view=history"),
        (
            {"view": "history", "columns": "nope"},
            "view=history has no column 'nope'; it has version",
        ),
    ],
)
def test_options_that_are_of_no_use_with_a_view_are_refused(
    users: Topic, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(pylogtable.InvalidRequestError, match=words):
        without_spark(users.url, **options)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """As Spark returns it in a session in UTC: times without a zone, maps as dicts."""
    for name, value in row.items():
        if name in {"end_offsets", "summary", "notes"}:
            row[name] = dict(value)
        elif isinstance(value, datetime):
            row[name] = value.replace(tzinfo=None)
    return row
