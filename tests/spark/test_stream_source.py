"""Streams of topics in Spark itself. The contents of batches are tested without Spark in
`tests/spark_unit/test_stream_reader.py`."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pylogtable import Store, Topic
from pyspark_pylogtable import offsets_behind
from tests.builders import ints, kafka
from tests.spark.streams import (
    COPIED,
    EARLIEST,
    HAS_ADMISSION_CONTROL,
    copied,
    places,
    read_stream,
    run,
    start,
)
from tests.spark.support import failure


@pytest.fixture
def topic(logs: Store) -> Topic:
    return logs.create_topic("t", partitions=3)


def fill(topic: Topic, *counts: int) -> None:
    where = [partition for partition, count in enumerate(counts) for _ in range(count)]
    topic.append(kafka([None] * len(where), partition=ints(*where)))


def test_a_query_reads_what_is_new_since_its_last_run(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 5, 2, 1)
    df = read_stream(spark, topic.url, **EARLIEST)
    assert df.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]
    assert run(df, tmp_path / "c") == [8]
    fill(topic, 1)
    assert run(read_stream(spark, topic.url), tmp_path / "c") == [1]


def test_case_27_available_now_and_once(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """Before Spark 4.2 both have a single batch, to which the limit applies."""
    fill(topic, 15)
    df = read_stream(spark, topic.url, **EARLIEST, maxOffsetsPerTrigger=5, minOffsetsPerTrigger=2)
    if HAS_ADMISSION_CONTROL:
        assert run(df, tmp_path / "now") == [5, 5, 5]
        assert run(df, tmp_path / "once", trigger={"once": True}) == [15]
    else:
        assert [run(df, tmp_path / "now") for _ in range(4)] == [[5], [5], [5], []]
        assert run(df, tmp_path / "once", trigger={"once": True}) == [5]


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="before Spark 4.2 a run has one batch")
def test_group_knows_the_last_batch_of_a_run_and_none_that_failed(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 15)
    group = topic.group("billing")
    assert group.lag().records == 15  # and not 0, though nobody has committed
    df = read_stream(spark, topic.url, **EARLIEST, maxOffsetsPerTrigger=10, group="billing")
    assert run(df, tmp_path / "c") == [10, 5]
    assert group.lag().records == 0

    def failing(batch: DataFrame, number: int) -> None:
        raise RuntimeError(f"batch {number} fails after {batch.count()} records")

    fill(topic, 3)
    query = df.writeStream.foreachBatch(failing).trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "c"))
    assert "fails after 3" in failure(lambda: query.start().awaitTermination(600))
    assert group.lag().records == 3
    assert run(df, tmp_path / "c") == [3]  # Spark repeats the batch
    assert group.lag().records == 0


def test_a_running_query_keeps_its_limits_and_finds_new_partitions(
    spark: SparkSession, topic: Topic, logs: Store, tmp_path: Path
) -> None:
    """On every Spark version: without admission control the reader remembers its offset."""
    fill(topic, 8)
    df = read_stream(spark, topic.url, **EARLIEST, maxOffsetsPerTrigger=5, group="g")
    df = df.selectExpr(*COPIED)
    into = tmp_path / "logs" / "copy"
    query = start(df, tmp_path / "c", into, trigger={"processingTime": "0 seconds"}, partitions=1)
    try:
        query.processAllAvailable()
        fill(topic, 15)
        query.processAllAvailable()
        topic.alter(partitions=4)
        fill(topic, 0, 0, 0, 3)
        query.processAllAvailable()
        progress = [p for p in query.recentProgress if p.numInputRows]
        assert [p.numInputRows for p in progress] == [5, 3, 5, 5, 5, 3]
        # Before Spark 4.2 the latest offset is the end of the batch, so that one tells it too.
        behind = [each for p in progress if (each := offsets_behind(p)) is not None]
        assert [each.max for each in behind] == [3, 0, 10, 5, 0, 0]
        assert [each.offsets for each in behind] == [3, 0, 10, 5, 0, 0]
        assert [bool(each.bytes) for each in behind] == [True, False, True, True, False, False]
        assert offsets_behind(progress[2].json) == behind[2]
        assert (behind[2].min, behind[2].avg) == (0, 10 / 3)
        shown = json.loads(progress[2].json)["sources"][0]["latestOffset"]
        shown = ast.literal_eval(shown) if isinstance(shown, str) else shown  # Spark 4.1
        assert shown["metrics"] == {
            "minOffsetsBehindLatest": 0,
            "maxOffsetsBehindLatest": 10,
            "avgOffsetsBehindLatest": 10 / 3,
            "offsetsBehindLatest": {"t": 10},
            "bytesBehindLatest": {"t": behind[2].bytes},
        }
        last = query.lastProgress
    finally:
        query.stop()
    assert copied(logs.topic("copy")) == places(topic)
    # Spark has looked for more after the last batch. So that batch is done.
    assert topic.group("g").positions() == topic.end_offsets()
    # The query has ended, and its last progress cannot tell what was appended since.
    fill(topic, 2, 0, 1)
    now = offsets_behind(last, logs)
    assert now is not None
    assert (now.max, now.offsets) == (2, 3)
    assert now.bytes == topic.group("g").lag().bytes
    assert now.seconds is not None
    assert now.seconds > 0


def test_a_stream_sees_each_record_once_while_the_topic_is_compacted(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    """Records that were not compacted away before they were read arrive once and in order."""
    topic = logs.create_topic("t", 2, config={"cleanup.policy": "compact"})
    df = read_stream(spark, topic.url, **EARLIEST, maxOffsetsPerTrigger=150).selectExpr(*COPIED)
    query = start(
        df,
        tmp_path / "c",
        tmp_path / "logs" / "copy",
        trigger={"processingTime": "0 seconds"},
        partitions=1,
    )
    try:
        for number in range(12):
            topic.append(kafka([f"{key % (20 + number)}" for key in range(100)]))
            topic.compact(force=True)
            if number % 3 == 0:
                topic.merge()
            assert query.isActive
        query.processAllAvailable()
        counted = sum(p.numInputRows for p in query.recentProgress)
    finally:
        query.stop()
    read = copied(logs.topic("copy"))
    assert len(read) == len(set(read)) == counted
    assert set(read) >= set(places(topic))
    assert len(read) < 1200  # some were compacted away before they were read
    assert logs.topic("copy").verify(data=True)


def test_error_messages_reach_the_user(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    fill(topic, 1)
    df = read_stream(spark, topic.url, endingOffsets="latest")
    message = failure(lambda: run(df, tmp_path / "a"))
    assert "endingOffsets is not valid in streaming queries" in message
    assert (
        "UnboundLocalError" not in message
    )  # Spark's own error, if the reader is refused too early
    df = spark.read.format("pylogtable").option("maxOffsetsPerTrigger", 1).load(topic.url)
    assert "maxOffsetsPerTrigger is for streams" in failure(df.collect)


def test_data_loss_is_an_error_or_a_warning(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    fill(topic, 2)
    df = read_stream(spark, topic.url, **EARLIEST)
    assert run(df, tmp_path / "c") == [2]
    fill(topic, 6)
    topic.delete_records({0: 5})
    message = failure(lambda: run(df, tmp_path / "c"))
    for words in ("[DATA_LOSS] t-0", "offset 2", "starts at 5", "failOnDataLoss=false"):
        assert words in message
    df = read_stream(spark, topic.url, failOnDataLoss=False)
    assert run(df, tmp_path / "c") == [3]
