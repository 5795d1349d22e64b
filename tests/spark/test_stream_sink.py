"""Streams into topics: each batch is written once, whatever fails or runs again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pylogtable import Store, Topic
from pylogtable.engine import plan_append
from pyspark_pylogtable import LogTable
from tests.builders import kafka, rows
from tests.spark.conftest import CONNECT
from tests.spark.streams import (
    COPIED,
    EARLIEST,
    copied,
    forget_last_commit,
    places,
    read_stream,
    run,
)
from tests.spark.support import failure
from tests.spark.writes import data_files


@pytest.fixture
def source(logs: Store) -> Topic:
    topic = logs.create_topic("source", partitions=3)
    topic.append(kafka([str(number) for number in range(40)]))
    return topic


@pytest.fixture
def copy(logs: Store) -> Topic:
    schema = {"value": pa.string(), "was_in": pa.int32(), "was_at": pa.int64()}
    return logs.create_topic("copy", partitions=2, schema=schema)


def stream(spark: SparkSession, source: Topic, **options: Any) -> DataFrame:
    df = read_stream(spark, source.url, **EARLIEST, **options)
    return df.selectExpr(*COPIED)


def txns(topic: Topic) -> list[tuple[str, int]]:
    commits = (topic._log.manifest.commits.read(version) for version in range(topic.version + 1))
    return [(c.txn.app_id, c.txn.version) for c in commits if c is not None and c.txn is not None]


def test_repeated_batch_is_appended_once(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path
) -> None:
    df = stream(spark, source, maxOffsetsPerTrigger=15)
    counts = run(df, tmp_path / "c", copy.url)
    while sum(counts) < 40:  # before Spark 4.2 a run has one batch
        counts += run(df, tmp_path / "c", copy.url)
    assert len(counts) == 3
    files = data_files(tmp_path / "logs" / "copy")
    forget_last_commit(tmp_path / "c")
    assert run(df, tmp_path / "c", copy.url) == counts[-1:]
    assert copied(copy) == places(source)
    # The files that the repeat staged are gone.
    assert data_files(tmp_path / "logs" / "copy") == files
    query, versions = zip(*txns(copy), strict=True)
    assert len(set(query)) == 1
    assert versions == tuple(range(len(counts)))
    source.append(kafka(["new"]))
    assert run(df, tmp_path / "c", copy.url) == [1]
    assert copied(copy) == places(source)
    assert copy.verify(data=True)


@pytest.mark.skipif(CONNECT, reason="registers a class of this module")
def test_commit_that_landed_with_an_error_is_not_repeated(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path
) -> None:
    from pyspark_pylogtable import DefaultSource
    from pyspark_pylogtable.stream.sink import StreamWriter

    told = str(tmp_path / "failed-once")

    class Flaky(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            import os

            super().commit(messages, batchId)
            if not os.path.exists(told):
                open(told, "w").close()
                raise RuntimeError("the reply was lost")

    class FlakySource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "flaky"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            writer = super().streamWriter(schema, overwrite)
            writer.__class__ = Flaky
            return writer

    spark.dataSource.register(FlakySource)
    df = stream(spark, source)
    message = failure(lambda: run(df, tmp_path / "c", copy.url, sink="flaky"))
    assert "the reply was lost" in message
    assert copied(copy) == places(source)
    assert run(df, tmp_path / "c", copy.url, sink="flaky") == [40]
    assert copied(copy) == places(source)
    assert len(txns(copy)) == 1
    assert copy.verify(data=True)


def test_new_checkpoint_with_an_old_txn_app_id_is_refused(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path
) -> None:
    df = stream(spark, source)
    run(df, tmp_path / "a", copy.url, txnAppId="etl")
    ((app_id, version),) = txns(copy)
    assert (app_id, version) == ("etl", 0)
    first = plan_append(copy).find_txn("etl", 0)
    assert first is not None
    source.append(kafka(["more"]))
    files = data_files(tmp_path / "logs" / "copy")
    message = failure(lambda: run(df, tmp_path / "b", copy.url, txnAppId="etl"))
    for words in (
        "[TXN_OF_ANOTHER_QUERY] batch 0 under txnAppId 'etl'",
        f"by the streaming query {first.origin}",
        "Nothing was written",
        "txnAppId of its own, or the checkpoint of the old query",
    ):
        assert words in message
    assert copy.count() == 40
    assert data_files(tmp_path / "logs" / "copy") == files
    # The query with the old checkpoint continues.
    assert run(df, tmp_path / "a", copy.url, txnAppId="etl") == [1]
    assert copied(copy) == places(source)


@pytest.mark.skipif(
    CONNECT, reason="with Connect the function of foreachBatch runs in another process"
)
def _by_format(batch: DataFrame, number: int, url: str) -> None:
    writer = batch.write.format("pylogtable").mode("append")
    writer.option("txnAppId", "each").option("txnVersion", number).save(url)


def _by_table(batch: DataFrame, number: int, url: str) -> None:
    LogTable.for_path(batch.sparkSession, url).append(batch, txn=("each", number))


@pytest.mark.parametrize("write", [_by_format, _by_table])
def test_foreach_batch_writes_happen_once(
    spark: SparkSession,
    source: Topic,
    copy: Topic,
    tmp_path: Path,
    write: Callable[[DataFrame, int, str], None],
) -> None:
    url = copy.url

    def each(checkpoint: str) -> None:
        writer = stream(spark, source).writeStream.foreachBatch(
            lambda batch, number: write(batch, number, url)
        )
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    each("a")
    forget_last_commit(tmp_path / "a")
    each("a")
    assert copied(copy) == places(source)
    assert txns(copy) == [("each", 0)]
    message = failure(lambda: each("b"))
    assert "[TXN_OF_ANOTHER_QUERY] batch 0 under txnAppId 'each'" in message
    assert copied(copy) == places(source)


def test_append_without_rows_knows_its_query(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path
) -> None:
    """Otherwise a batch of another query with the same number would look like a repeat."""

    def each(starting: str) -> None:
        df = read_stream(spark, source.url, startingOffsets=starting).selectExpr(*COPIED)
        writer = df.writeStream.foreachBatch(lambda batch, n: _by_table(batch, n, copy.url))
        writer = writer.option("checkpointLocation", str(tmp_path / starting))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)

    each("latest")
    assert (txns(copy), copy.count()) == ([("each", 0)], 0)
    assert "[TXN_OF_ANOTHER_QUERY] batch 0" in failure(lambda: each("earliest"))


def test_case_34_rows_name_their_topic(
    spark: SparkSession, source: Topic, logs: Store, tmp_path: Path
) -> None:
    df = read_stream(spark, source.url, **EARLIEST)
    named = df.selectExpr("concat('to-', partition) AS topic", "key", "value")
    run(named, tmp_path / "a", tmp_path / "logs", partitions=1, createTopics=True)
    assert logs.topics() == ["source", "to-0", "to-1", "to-2"]
    for number in range(3):
        assert rows(logs.topic(f"to-{number}").read(), "key") == rows(source.read(number), "key")
    forget_last_commit(tmp_path / "a")
    run(named, tmp_path / "a", tmp_path / "logs", partitions=1)
    assert sum(logs.topic(f"to-{number}").count() for number in range(3)) == 40


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("complete", ["output mode complete", "never overwritten", "outputMode('append')"]),
        ("update", ["does not support Update mode"]),  # Spark's own message
    ],
)
def test_other_output_modes_are_refused(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path, mode: str, words: list[str]
) -> None:
    df = stream(spark, source).groupBy("value").count()
    df = df.selectExpr("value", "cast(null AS int) was_in", "count AS was_at")
    message = failure(lambda: run(df, tmp_path / "c", copy.url, mode=mode))
    for text in words:
        assert text in message
    assert copy.version == 0
