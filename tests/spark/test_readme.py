"""The README's Spark examples run as they stand, and its tables say what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError
from pyspark_pylogtable.options import VIEWS, Use, parse_options
from tests.spark.support import inserts_some_columns

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```python spark\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What Spark's Kafka connector has in 4.3 (reading, then writing), and consumer and producer
# settings that it forwards and its users have.
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
# A value that is well formed, where "1" is not.
VALUES = {
    "storageOptions": "{}",
    "assign": '{"a":[0]}',
    "startingOffsetsByTimestamp": '{"*":1}',
    "endingOffsetsByTimestamp": '{"*":1}',
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
    "view": "records",
}
BOTH, READING, WRITING = "Reading and writing:", "Reading:", "Writing:"
STREAM_READING, STREAM_WRITING = "Streams, reading:", "Streams, writing:"
TABLES = (BOTH, READING, WRITING, STREAM_READING, STREAM_WRITING)
# The tables whose options each use refuses, all of them.
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
    ),
    "stream write": ("txnVersion",),
}


def table(title: str) -> Iterator[list[str]]:
    """The cells of each row of the first table after a line."""
    _, _, rest = README.partition(f"\n{title}\n")
    assert rest, title
    lines = rest[rest.index("\n|") + 1 :].splitlines()
    for line in lines[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`*]+)`", cell)


def options_of(title: str) -> list[str]:
    return [name for cells in table(title) for name in names(cells[0])]


def options_with(name: str) -> dict[str, str]:
    together = {
        "txnAppId": {"txnVersion": "1"},
        "txnVersion": {"txnAppId": "etl"},
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
    blocks = _BLOCK.findall(README)
    assert len(blocks) >= 6
    session: dict[str, object] = {"spark": spark}
    for code in blocks:
        # Spark's processes are elsewhere than this one, so the examples name an absolute path.
        here = code.replace("/tmp/logs", f"{tmp_path}/logs")
        exec(compile(here, "README.md", "exec"), session)
    for view in ("orders", "log"):
        spark.catalog.dropTempView(view)
    store = pylogtable.open(tmp_path / "logs")
    assert store.topics() == ["clicks", "copy", "large", "orders", "views"]
    assert store.topic("copy").count() == 3002
    assert 0 < store.topic("large").count() < 3002
    # Thrice 1,000 (by format, LogTable and once by txn), and one by each INSERT.
    assert store.topic("orders").count() == 3002
    # Each DataFrame shows what was there when it was loaded.
    expected = {"every": 1000, "recent": 1000, "before": 1000, "newest": 1000, "commits": 2}
    counted = {name: session[name].count() for name in expected}  # type: ignore[attr-defined]
    assert counted == expected


def test_the_option_tables_name_every_option_once() -> None:
    listed = [name for title in TABLES for name in options_of(title)]
    assert sorted(listed) == sorted(known_options())


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("title", TABLES)
def test_options_are_taken_for_what_their_table_says(title: str, use: Use) -> None:
    for name in options_of(title):
        given = options_with(name)
        refused = title in USES[use] or any(key in NOT_OF_STREAMS.get(use, ()) for key in given)
        if refused:
            # An option that goes with this one may be the one that is refused.
            with pytest.raises(InvalidRequestError, match=name if title in USES[use] else None):
                parse_options(given).refuse_for(use)
        else:
            parse_options(given).refuse_for(use)


def test_the_defaults_are_those_of_the_code() -> None:
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
def test_the_migration_table_says_what_happens(name: str, here: str, note: str) -> None:
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
