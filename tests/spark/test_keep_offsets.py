"""`keepOffsets`: rows bring their partition and their offset, in batches and in streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import pylogtable
from pylogtable import CommitConflictError, InvalidRequestError, Store, Topic
from pyspark_pylogtable import LogTable
from tests.builders import ints, kafka, rows, times
from tests.spark.streams import EARLIEST, forget_last_commit, read_stream, run
from tests.spark.support import failure, load
from tests.spark.writes import save, write

NAMES = ("partition", "offset", "timestamp", "key", "value", "headers")


@pytest.fixture
def source(logs: Store) -> Topic:
    """A log with holes, like a topic of Kafka after a compaction, that begins above 0."""
    topic = logs.create_topic("source", partitions=3, start_offsets={0: 500})
    for first in (0, 40):
        offsets = [first + step * 3 for step in range(9)]
        places = ints(*(number % 3 for number in range(9)))
        table = kafka(
            [str(offset) for offset in offsets],
            [None if offset % 7 == 0 else f"v{offset}" for offset in offsets],
            partition=places,
            offset=ints(*(offset + 500 for offset in offsets)),
            timestamp=times(*offsets),
        )
        topic.append(table, keep_offsets=True)
    return topic


def content(topic: Topic) -> list[tuple[object, ...]]:
    return rows(topic.read(columns=list(NAMES)), *NAMES)


def records(spark: SparkSession, source: Topic, **options: object) -> DataFrame:
    return load(spark, source.url, includeHeaders=True, **options).select(*NAMES)


def test_batch_write_keeps_every_place(spark: SparkSession, source: Topic, logs: Store) -> None:
    df = records(spark, source, minPartitions=7)
    save(df, f"{logs.url}/copy", keepOffsets=True, partitions=3)
    copy = logs.topic("copy")
    assert content(copy) == content(source)
    assert copy.end_offsets() == source.end_offsets()
    assert copy.verify(data=True)
    said = failure(lambda: save(df, copy.url, keepOffsets=True))
    assert f"the end of the partition is {copy.end_offsets()[0]} already" in said
    assert copy.version == 1


def test_table_append_joins_and_keeps_every_place(
    spark: SparkSession, source: Topic, logs: Store
) -> None:
    copy = logs.create_topic("copy", partitions=3)
    table = LogTable.for_path(spark, copy.url)
    df = records(spark, source, minPartitions=7)
    result = table.append(df, keep_offsets=True)
    assert result.segments == 3
    assert content(copy) == content(source)
    with pytest.raises(CommitConflictError, match="already"):
        table.append(df, keep_offsets=True)


def test_shuffled_rows_are_refused_until_they_are_sorted(
    spark: SparkSession, source: Topic, logs: Store
) -> None:
    copy = logs.create_topic("copy", partitions=3)
    table = LogTable.for_path(spark, copy.url)
    df = records(spark, source)
    shuffled = df.repartition(2, "key").sortWithinPartitions("key")
    with pytest.raises(Exception, match=r"sort the rows|repartition the rows"):
        table.append(shuffled, keep_offsets=True)
    assert copy.version == 0
    ordered = shuffled.repartition("partition").sortWithinPartitions("partition", "offset")
    table.append(ordered, keep_offsets=True)
    assert content(copy) == content(source)


def test_stream_keeps_every_place_and_a_batch_that_runs_again_is_written_once(
    spark: SparkSession, source: Topic, logs: Store, tmp_path: Path
) -> None:
    copy = logs.create_topic("copy", partitions=3, start_offsets=source.start_offsets())
    df = read_stream(spark, source.url, includeHeaders=True, **EARLIEST).select(*NAMES)
    run(df, tmp_path / "c", copy.url, keepOffsets=True)
    assert content(copy) == content(source)
    forget_last_commit(tmp_path / "c")
    run(df, tmp_path / "c", copy.url, keepOffsets=True)
    assert content(copy) == content(source)
    ends = source.end_offsets()
    source.append(kafka("abc", partition=ints(0, 1, 2)))
    said = failure(lambda: run(df, tmp_path / "other", copy.url, keepOffsets=True))
    assert "the end of the partition is" in said
    # A new checkpoint begins where the copy ends.
    positions = {source.name: {str(number): end for number, end in ends.items()}}
    later = read_stream(
        spark, source.url, includeHeaders=True, startingOffsets=str(positions).replace("'", '"')
    ).select(*NAMES)
    run(later, tmp_path / "third", copy.url, keepOffsets=True)
    assert content(copy) == content(source)


def test_offset_without_the_option_is_refused_and_the_option_named(
    spark: SparkSession, source: Topic, logs: Store
) -> None:
    copy = logs.create_topic("copy", partitions=3)
    for path, options in ((copy.url, {}), (f"{logs.url}/new", {"partitions": 3})):
        said = failure(lambda to=path, by=options: save(records(spark, source), to, **by))
        assert '.option("keepOffsets", True)' in said
    with pytest.raises(InvalidRequestError, match=r"LogTable.append\(..., keep_offsets=True\)"):
        LogTable.for_path(spark, copy.url).append(records(spark, source))
    no_offset = records(spark, source).drop("offset")
    said = failure(lambda: save(no_offset, copy.url, keepOffsets=True))
    assert "column 'offset' is missing" in said


def test_rows_of_several_topics_keep_their_places(tmp_path: Path) -> None:
    """As from Kafka with several topics. The tasks of a topic may come in any order."""
    names = pa.array(["a", "b", "a"])
    first = kafka("xyz", topic=names, partition=ints(0, 1, 0), offset=ints(7, 7, 9))
    second = kafka("uvw", topic=names, partition=ints(0, 1, 0), offset=ints(2, 3, 4))
    path = f"{tmp_path}/logs"
    write(path, [first, second], keepOffsets=True, createTopics=True, partitions=2)
    store = pylogtable.open(path)
    assert rows(store.topic("a").read(), "partition", "offset") == [(0, 2), (0, 4), (0, 7), (0, 9)]
    assert rows(store.topic("b").read(), "partition", "offset") == [(1, 3), (1, 7)]
