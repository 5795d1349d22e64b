"""Guarded copies refuse what Spark appends, in every way it has; `tests/library/append` has the
ways of the library."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pylogtable import Store, Topic
from pyspark_pylogtable import LogTable
from tests.builders import ints, kafka, rows
from tests.library.append.test_guarded_copies import LARGE, REFUSED, SOURCE, bring
from tests.spark.streams import EARLIEST, read_stream, run
from tests.spark.support import load
from tests.spark.writes import files, save, travelled, write

Way = Callable[[SparkSession, Topic, Topic, Path], object]


@pytest.fixture
def copy(logs: Store) -> Topic:
    topic = logs._create_copy(SOURCE, "orders", 2)
    bring(topic, "ab")
    return topic


@pytest.fixture
def source(logs: Store) -> Topic:
    """A log whose records would follow those of the copy."""
    topic = logs.create_topic("source", 2, start_offsets={0: 2})
    data = kafka("xy", partition=ints(0, 1), offset=pa.array([2, 0]))
    topic.append(data, keep_offsets=True)
    return topic


def plain(spark: SparkSession, source: Topic) -> DataFrame:
    return load(spark, source.url).select("key", "value")


def kept(df: DataFrame) -> DataFrame:
    return df.select("partition", "offset", "key", "value")


def streamed(spark: SparkSession, source: Topic) -> DataFrame:
    return read_stream(spark, source.url, **EARLIEST)


def each_batch(spark: SparkSession, source: Topic, copy: Topic, checkpoint: Path) -> None:
    def append(df: DataFrame, number: int) -> None:
        LogTable.for_path(spark, copy.url).append(df.select("key", "value"), txn=("job", number))

    query = streamed(spark, source).writeStream.foreachBatch(append)
    query = query.option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(600)


WAYS: dict[str, Way] = {
    "batch": lambda spark, source, copy, _: save(plain(spark, source), copy.url),
    "batch with offsets": lambda spark, source, copy, _: save(
        kept(load(spark, source.url)), copy.url, keepOffsets=True
    ),
    "batch with a txn": lambda spark, source, copy, _: save(
        plain(spark, source), copy.url, txnAppId="etl", txnVersion=1
    ),
    "batch with a new column": lambda spark, source, copy, _: save(
        plain(spark, source).selectExpr("key", "value", "1 AS n"), copy.url, mergeSchema=True
    ),
    "rows that name their topic": lambda spark, source, copy, _: save(
        plain(spark, source).selectExpr("'orders' AS topic", "key", "value"),
        os.path.dirname(copy.url),
    ),
    "stream": lambda spark, source, copy, checkpoint: run(
        streamed(spark, source).select("key", "value"), checkpoint, copy.url
    ),
    "stream with offsets": lambda spark, source, copy, checkpoint: run(
        kept(streamed(spark, source)), checkpoint, copy.url, keepOffsets=True
    ),
    "each batch of a stream": each_batch,
    "table": lambda spark, source, copy, _: LogTable.for_path(spark, copy.url).append(
        plain(spark, source)
    ),
    "table with offsets": lambda spark, source, copy, _: LogTable.for_path(spark, copy.url).append(
        kept(load(spark, source.url)), keep_offsets=True
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_but_its_import_appends_and_nothing_is_left(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path, way: str
) -> None:
    before = files(Path(copy.url))
    with pytest.raises(Exception, match=REFUSED):
        WAYS[way](spark, source, copy, tmp_path / "c")
    assert files(Path(copy.url)) == before
    bring(copy, "c")
    assert rows(copy.read(), "key") == [b"a", b"b", b"c"]


def test_write_that_has_begun_before_leaves_no_file(logs: Store) -> None:
    """Its tasks have staged files when the topic becomes a copy."""
    from tests.spark.writes import plan, stage

    topic = logs.create_topic("orders", 2)
    writer: Any = plan(topic.url, LARGE.schema)
    messages = [stage(writer, LARGE)]
    topic._guard(SOURCE)
    with pytest.raises(Exception, match=REFUSED):
        travelled(writer).commit([*messages])
    travelled(writer).abort([*messages])
    assert not [name for name in files(Path(topic.url)) if "partition=" in name]


def test_stream_goes_on_after_the_promotion(
    spark: SparkSession, source: Topic, copy: Topic, tmp_path: Path
) -> None:
    df = streamed(spark, source).select("key", "value")
    with pytest.raises(Exception, match=REFUSED):
        run(df, tmp_path / "c", copy.url)
    copy.promote()
    run(df, tmp_path / "c", copy.url)
    assert copy.count() == 4


def test_rows_of_several_topics_name_the_one_that_is_a_copy(logs: Store, copy: Topic) -> None:
    data = kafka("xy", topic=pa.array(["orders", "free"]))
    logs.create_topic("free")
    with pytest.raises(Exception, match=REFUSED):
        write(logs.url, [data])
    assert copy.count() == 2
