"""The examples of the Spark guide run as they stand, and its tables say what the code does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.options import VIEWS, Use
from pyspark_pylogtable.request.parsing import parse_options
from tests.documents import code, quoted, read
from tests.documents import table as rows_of
from tests.spark.support import inserts_some_columns, run_examples

GUIDE = read("spark_ext/README.md")
# The options of Spark's Kafka connector in 4.3 (reading, then writing), and common consumer and
# producer settings that it forwards.
KAFKA_OPTIONS = {
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "kafka.group.id",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "topic",
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.key.serializer",
    "kafka.value.serializer",
}
# Valid values for options that do not accept "1".
VALUES = {
    "storageOptions": "{}",
    "assign": '{"a":[0]}',
    "startingOffsetsByTimestamp": '{"*":1}',
    "endingOffsetsByTimestamp": '{"*":1}',
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "true",
    "createTopics": "true",
    "mergeSchema": "true",
    "keepOffsets": "true",
    "includeHeaders": "true",
    "view": "records",
    "keys": "[1]",
}
BOTH, READING, WRITING = "Reading and writing:", "Reading:", "Writing:"
STREAM_READING, STREAM_WRITING = "Streams, reading:", "Streams, writing:"
TABLES = (BOTH, READING, WRITING, STREAM_READING, STREAM_WRITING)
# For each use the tables whose options it refuses.
USES: dict[Use, tuple[str, ...]] = {
    "batch read": (WRITING, STREAM_READING, STREAM_WRITING),
    "write": (READING, STREAM_READING, STREAM_WRITING),
    "stream read": (WRITING, STREAM_WRITING),
    "stream write": (READING, STREAM_READING),
}
NOT_OF_STREAMS: dict[str, tuple[str, ...]] = {
    "stream read": (
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "versionAsOf",
        "timestampAsOf",
        "keys",
    ),
    "stream write": ("txnVersion", "txnExpectedLast", "txnNote"),
}


def table(title: str) -> Iterator[list[str]]:
    """The cells of each row of the first table after a title."""
    _, _, rest = GUIDE.partition(f"\n{title}\n")
    assert rest, title
    return rows_of(rest)


def names(cell: str) -> list[str]:
    return [name for name in quoted(cell) if "*" not in name]


def options_of(title: str) -> list[str]:
    return [name for cells in table(title) for name in names(cells[0])]


def options_with(name: str) -> dict[str, str]:
    together = {
        "txnAppId": {"txnVersion": "1"},
        "txnVersion": {"txnAppId": "etl"},
        "txnExpectedLast": {"txnAppId": "etl", "txnVersion": "2"},
        "txnNote": {"txnAppId": "etl", "txnVersion": "2"},
        "maxTriggerDelay": {"minOffsetsPerTrigger": "1"},
    }
    return {name: VALUES.get(name, "1"), **together.get(name, {})}


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        parse_options(options)
    return str(caught.value)


def known_options() -> list[str]:
    return refusal({"qqq": "1"}).partition("known: ")[2].split(", ")


def migration() -> list[tuple[str, str, str]]:
    rows = list(table('### Coming from `format("kafka")`'))
    return [(name, here, note) for cell, here, note in rows for name in names(cell)]


@inserts_some_columns
@pytest.mark.timeout(900)
def test_every_spark_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    notes = {note for note, _ in code(GUIDE, "python")}
    assert all(note == "spark" or note.startswith("no-run: ") for note in notes)
    store, session = run_examples(spark, "spark_ext/README.md", tmp_path)
    assert store.topics() == ["clicks", "copy", "large", "orders", "orders-copy", "views"]
    assert store.topic("orders-copy").count() == 2100
    assert store.topic("copy").count() == 3102
    assert 0 < store.topic("large").count() < 3102
    # 1,000 each by format, by txn and by LogTable, 100 after that txn, and one by each INSERT.
    assert store.topic("orders").count() == 3102
    # Each DataFrame shows the topic as it was when it was loaded.
    expected = {"every": 2100, "recent": 2100, "before": 1000, "newest": 1000, "commits": 4}
    counted = {name: session[name].count() for name in expected}  # type: ignore[attr-defined]
    assert counted == expected
    copy = pylogtable.open(tmp_path / "logs-backup").topic("orders")
    assert store.topic("orders").compare(copy)


def test_the_option_tables_name_every_option_once() -> None:
    listed = [name for title in TABLES for name in options_of(title)]
    assert sorted(listed) == sorted(known_options())


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("title", TABLES)
def test_each_use_accepts_the_options_of_its_tables(title: str, use: Use) -> None:
    for name in options_of(title):
        given = options_with(name)
        refused = title in USES[use] or any(key in NOT_OF_STREAMS.get(use, ()) for key in given)
        if refused:
            # The refused option may be one that was given together with this one.
            with pytest.raises(InvalidRequestError, match=name if title in USES[use] else None):
                parse_options(given).refuse_for(use)
        else:
            parse_options(given).refuse_for(use)


def test_the_defaults_match_the_code() -> None:
    said = {name: names(cells[1]) for cells in table(READING) for name in names(cells[0])}
    nothing = parse_options({})
    for name, field in (("failOnDataLoss", "fail_on_data_loss"), ("view", "view")):
        assert said[name] == [str(getattr(nothing, field)).lower()]
    assert said["startingOffsetsByTimestampStrategy"] == [nothing.starting_strategy]


def test_every_view_is_named() -> None:
    (meaning,) = (cells[2] for cells in table(READING) if cells[0] == "`view`")
    assert set(names(meaning)) == set(VIEWS)


def test_the_migration_table_names_every_option_of_the_kafka_connector() -> None:
    named = [name for name, _, _ in migration()]
    assert len(named) == len(set(named))
    assert set(named) >= KAFKA_OPTIONS


@pytest.mark.parametrize(("name", "here", "note"), migration(), ids=lambda text: text[:30])
def test_the_migration_table_matches_the_code(name: str, here: str, note: str) -> None:
    if here == "same":
        assert name in known_options()
        parse_options(options_with(name))
        return
    why = refusal({name: "1"})
    assert not why.startswith("unknown option")
    if here == "instead":
        (first, *_) = names(note)
        assert first in known_options()
        assert first in why
    else:
        assert here == "refused"
