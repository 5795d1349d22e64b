"""The stream source with the calls that Spark makes: contents of batches, restarts."""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import pylogtable
from pylogtable import InvalidRequestError, SchemaMismatchError, Store, Topic, TopicNotFoundError
from pylogtable.runtime import Runtime
from pylogtable.storage.open import open_store
from pyspark_pylogtable import OffsetsBehind, TopicBehind, offsets_behind
from pyspark_pylogtable.columns import check_requested
from pyspark_pylogtable.stream import source as stream_source
from tests.builders import IN_FILES, T0, ints, kafka, limited, rows, times
from tests.spark_unit.streams import Query, offsets
from tests.stores import CountingStore

EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def logs(tmp_path: Path) -> Store:
    return pylogtable.open(tmp_path / "logs")


@pytest.fixture
def topic(logs: Store) -> Topic:
    return logs.create_topic("t", partitions=3)


def fill(topic: Topic, *counts: int) -> None:
    """Append this many records to each partition, in one commit."""
    where = [partition for partition, count in enumerate(counts) for _ in range(count)]
    topic.append(kafka([None] * len(where), partition=ints(*where)))


def ends(query: Query, topic: str = "t") -> dict[str, int]:
    found: dict[str, int] = json.loads(query.log[-1])["topics"][topic]["offsets"]
    return found


# --- where a query starts --------------------------------------------------------------------


def test_a_stream_begins_at_latest(topic: Topic) -> None:
    fill(topic, 2, 1)
    query = Query(topic.url)
    # The first batch is empty and stores the start.
    assert query.trigger().num_rows == 0  # type: ignore[union-attr]
    assert query.trigger() is None
    fill(topic, 1, 0, 2)
    assert offsets(query.trigger()) == {0: [2], 2: [0, 1]}


def test_checkpoint_offsets_have_the_documented_form(topic: Topic) -> None:
    fill(topic, 2, 1)
    query = Query(topic.url, **EARLIEST)
    query.trigger()
    fill(topic, 1)
    query.trigger()

    def at(*row: int) -> dict[str, Any]:
        listed = {str(partition): offset for partition, offset in enumerate(row)}
        return {"t": {"id": topic.topic_id, "offsets": listed}}

    assert json.loads(query.log[0]) == {"from": at(0, 0, 0), "topics": at(2, 1, 0)}
    assert json.loads(query.log[1]) == {"topics": at(3, 1, 0)}
    latest = query.reader.reportLatestOffset()
    assert latest is not None
    assert latest["topics"] == at(3, 1, 0)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"t":{"0":1,"1":-1,"2":-2}}'}, {0: [1, 2], 2: [0]}),
        ({"startingOffsets": '{"0":2,"*":-1}'}, {0: [2]}),
        ({"startingTimestamp": T0 + 1}, {0: [1, 2], 1: [0], 2: [0]}),
        ({"startingOffsetsByTimestamp": f'{{"*":{T0 + 2}}}'}, {0: [2], 1: [0], 2: [0]}),
    ],
)
def test_stream_starts_where_the_options_say(
    topic: Topic, options: dict[str, Any], expected: dict[int, list[int]]
) -> None:
    topic.append(kafka([None] * 5, partition=ints(0, 0, 0, 1, 2), timestamp=times(0, 1, 2, 2, 3)))
    assert offsets(Query(topic.url, **options).trigger()) == expected


def test_a_time_without_a_record_is_an_error_or_the_end(topic: Topic) -> None:
    fill(topic, 1, 1, 1)
    late = {"startingTimestamp": "9999-01-01T00:00:00Z"}
    with pytest.raises(InvalidRequestError, match="No offset matched"):
        Query(topic.url, **late).trigger()
    query = Query(topic.url, **late, startingOffsetsByTimestampStrategy="latest")
    assert query.drain() == [0]


def test_start_is_decided_once_and_kept_for_a_replay(topic: Topic) -> None:
    fill(topic, 2)
    query = Query(topic.url)
    assert query.plan()
    fill(topic, 3)
    again = query.reader.latestOffset(query.reader.initialOffset(), None)
    assert again["from"] == json.loads(query.log[0])["from"]
    # The process dies before the batch ran; the next one must run it from the start.
    query.start()
    assert query.run(0).num_rows == 0
    assert offsets(query.trigger()) == {0: [2, 3, 4]}


def test_after_a_restart_the_checkpoint_wins_over_the_options(topic: Topic) -> None:
    fill(topic, 2)
    query = Query(topic.url, **EARLIEST)
    assert query.drain() == [2]
    fill(topic, 2)
    query.start(startingOffsets='{"*":1}')
    assert offsets(query.trigger()) == {0: [2, 3]}


def test_repeated_batch_has_the_same_rows(topic: Topic) -> None:
    fill(topic, 2, 1)
    query = Query(topic.url, **EARLIEST)
    first = query.trigger()
    fill(topic, 5)
    second = query.trigger()
    fill(topic, 5)
    query.start(**EARLIEST)
    assert query.run(0).equals(first)
    assert query.run(1).equals(second)


def test_without_new_records_the_start_offset_is_returned(topic: Topic) -> None:
    fill(topic, 2)
    query = Query(topic.url, **EARLIEST)
    query.trigger()
    start = query.start_of(1)
    assert "from" in start
    assert query.reader.latestOffset(start, None) == start
    assert query.trigger() is None


def test_maintenance_rewrites_are_no_new_records(topic: Topic) -> None:
    fill(topic, 2)
    fill(topic, 2)
    query = Query(topic.url, **EARLIEST)
    assert query.drain() == [4]
    topic.merge()
    topic.alter(config={"retention.ms": 10**9})
    assert query.trigger() is None


# --- limits ----------------------------------------------------------------------------------


def test_case_26_limits_are_shared_in_proportion_and_small_batches_wait(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 10**15
    monkeypatch.setattr(stream_source.time, "monotonic_ns", lambda: now_ns)
    fill(topic, 21, 11, 1)
    limits = {"minOffsetsPerTrigger": 15, "maxOffsetsPerTrigger": 20, "maxTriggerDelay": "5s"}
    query = Query(topic.url, **EARLIEST, **limits)
    assert {p: len(rows) for p, rows in offsets(query.trigger()).items()} == {0: 12, 1: 6, 2: 1}
    assert query.trigger() is None  # 14 are left
    fill(topic, 4)
    assert query.trigger().num_rows == 18  # type: ignore[union-attr]
    fill(topic, 1)
    assert query.trigger() is None
    now_ns += 5 * 10**9
    assert query.trigger().num_rows == 1  # type: ignore[union-attr]


def test_case_27_everything_at_once_ignores_the_limits(topic: Topic) -> None:
    fill(topic, 15)
    query = Query(topic.url, **EARLIEST, maxOffsetsPerTrigger=5, minOffsetsPerTrigger=5)
    assert query.trigger(everything=True).num_rows == 15  # type: ignore[union-attr]
    fill(topic, 1)
    assert query.trigger(everything=True).num_rows == 1  # type: ignore[union-attr]


def test_case_27_available_now_keeps_maximum_limits_only(topic: Topic) -> None:
    fill(topic, 15)
    limits = {"maxOffsetsPerTrigger": 5, "minOffsetsPerTrigger": 4}
    query = Query(topic.url, available_now=True, **EARLIEST, **limits)
    assert query.drain() == [5, 5, 5]
    fill(topic, 7)
    query.start(available_now=True, **EARLIEST, **limits)
    assert query.drain() == [5, 2]


def test_case_33_largest_possible_limit(topic: Topic) -> None:
    fill(topic, 21, 11, 1)
    assert Query(topic.url, **EARLIEST, maxOffsetsPerTrigger=2**63 - 1).drain() == [33]


def test_limits_count_records_not_holes(logs: Store) -> None:
    topic = logs.create_topic("t", config={"cleanup.policy": "compact"})
    for _ in range(3):
        topic.append(kafka([str(key) for key in range(10)]))
    topic.append(kafka(["x"] * 10))
    topic.compact(force=True)
    kept = topic.read().read_all()["offset"].to_pylist()
    assert kept == [*range(20, 30), 39]
    query = Query(topic.url, **EARLIEST, maxOffsetsPerTrigger=4)
    assert query.drain() == [4, 4, 3]
    assert ends(query) == {"0": 40}


def test_bytes_are_a_soft_limit(topic: Topic) -> None:
    fill(topic, 300, 100)
    size = sum(extent.bytes for extent in topic.at().range_sizes().values())
    counts = Query(topic.url, **EARLIEST, maxBytesPerTrigger=size // 4).drain()
    assert sum(counts) == 400
    assert 4 <= len(counts) <= 8
    # Each partition advances by at least one record.
    query = Query(topic.url, **EARLIEST, maxBytesPerTrigger=1)
    assert query.trigger().num_rows == 2  # type: ignore[union-attr]


def test_a_batch_exceeds_its_bytes_by_one_row_group_of_each_partition_at_most(topic: Topic) -> None:
    """Records are of very different sizes, in row groups of 4,000 bytes."""
    topic = limited(topic, row_group_bytes=4000)
    topic.alter(config={"compression.type": "uncompressed"})
    chance = random.Random(7)
    for partition in (0, 1):
        for _ in range(8):
            sizes = [chance.choice([1, 10, 100, 3000]) for _ in range(40)]
            values = [chance.randbytes(size) for size in sizes]
            where = ints(*[partition] * len(values))
            topic.append(kafka(["k"] * len(values), values, partition=where))
    largest = max(
        pq.ParquetFile(Path(topic.url[7:], path)).metadata.row_group(group).total_byte_size
        for path in topic.segments()["path"].to_pylist()
        for group in range(pq.ParquetFile(Path(topic.url[7:], path)).num_row_groups)
    )
    records = topic.count()
    for limit in (1, 5_000, 20_000, 100_000):
        query = Query(topic.url, **EARLIEST, maxBytesPerTrigger=limit)
        read = 0
        while read < records:
            batch = query.trigger()
            assert batch is not None
            read += batch.num_rows
            assert sum(map(len, batch["value"].to_pylist())) <= limit + 2 * largest
        assert read == records


def test_large_records_after_small_ones_do_not_make_a_large_batch(topic: Topic) -> None:
    """The mean of a segment says nothing about its parts."""
    topic.alter(config={"compression.type": "uncompressed"})
    chance = random.Random(7)
    for size in [10] * 10 + [20_000] * 10:
        values = [chance.randbytes(size) for _ in range(10)]
        topic.append(kafka(["k"] * 10, values, partition=ints(*[0] * 10)))
    query = Query(topic.url, **EARLIEST, maxBytesPerTrigger=250_000)
    sizes = []
    for _ in range(20):
        batch = query.trigger()
        if batch is None:
            break
        sizes.append(sum(map(len, batch["value"].to_pylist())))
    assert sum(sizes) == 10 * 10 * 20_010
    assert max(sizes) <= 250_000


@pytest.mark.parametrize(("options", "tasks"), [({"minPartitions": 6}, 6), ({}, 1)])
def test_the_tasks_of_a_batch(topic: Topic, options: dict[str, Any], tasks: int) -> None:
    """A few records of several partitions are one task, unless the user asks for more."""
    fill(topic, 60, 60)
    query = Query(topic.url, **EARLIEST, **options)
    query.plan()
    planned = query.reader.partitions(query.start_of(0), json.loads(query.log[0]))
    assert len(planned) == tasks
    found = query.run()
    assert rows(found, "partition", "offset") == [(p, n) for p in (0, 1) for n in range(60)]


def test_tasks_respect_max_records_per_partition(topic: Topic) -> None:
    fill(topic, 10)
    query = Query(topic.url, **EARLIEST, maxRecordsPerPartition=4)
    query.plan()
    assert len(query.reader.partitions(query.start_of(0), json.loads(query.log[0]))) == 3


# --- Spark before 4.2 ------------------------------------------------------------------------


def old_trigger(query: Query) -> int | None:
    """The number of new rows, with the calls of Spark 4.0. It passes neither start nor limit, and
    asks for the start only when it has the end."""
    end = query.reader.latestOffset()
    start = query.start_of(len(query.log))
    if json.dumps(end) == json.dumps(start):
        return None
    query.log.append(json.dumps(end))
    return query.run().num_rows


def resume(query: Query, **options: Any) -> None:
    """Start a run like Spark 4.0, which passes the end of the checkpoint's last batch, if any."""
    query.start(**options)
    if query.log:
        at = query.start_of(len(query.log))
        assert query.reader.partitions(at, at) == []


def test_before_spark_4_2_limits_apply_to_each_batch(topic: Topic) -> None:
    fill(topic, 7)
    query = Query(topic.url, **EARLIEST, maxOffsetsPerTrigger=5)
    with pytest.warns(UserWarning, match="ends after one batch"):
        assert old_trigger(query) == 5
    # Warned once only: a second warning would be an error here.
    assert [old_trigger(query) for _ in range(2)] == [2, None]
    fill(topic, 12)
    assert [old_trigger(query) for _ in range(4)] == [5, 5, 2, None]


@pytest.mark.filterwarnings("ignore:this Spark version does not tell")
def test_before_spark_4_2_limits_apply_after_a_restart(topic: Topic) -> None:
    options = {**EARLIEST, "maxOffsetsPerTrigger": 5}
    query = Query(topic.url, **options)
    assert old_trigger(query) == 0
    fill(topic, 12)
    assert old_trigger(query) == 5
    resume(query, **options)
    assert old_trigger(query) == 5
    resume(query, **options)
    assert query.run().num_rows == 5  # the batch that was planned before the run ended
    assert [old_trigger(query) for _ in range(2)] == [2, None]
    resume(query, **options)
    assert old_trigger(query) is None


@pytest.mark.filterwarnings("ignore:this Spark version does not tell")
def test_before_spark_4_2_the_end_of_a_batch_tells_how_far_the_topic_was(topic: Topic) -> None:
    fill(topic, 7, 1)
    query = Query(topic.url, **EARLIEST, maxOffsetsPerTrigger=5)
    assert old_trigger(query) == 5
    end = json.loads(query.log[-1])
    behind = offsets_behind(progress(end, end))
    assert behind is not None
    assert (behind.min, behind.max, behind.offsets) == (0, 3, 3)
    assert behind.bytes == sizes(topic, {0: (4, 7)})
    assert end["latest"]["t"]["offsets"] == {"0": 7}  # only what is not at its end
    # What is added does not disturb the next batches, nor a restart by a newer Spark.
    assert old_trigger(query) == 3
    end = json.loads(query.log[-1])
    assert "latest" not in end
    assert offsets_behind(progress(end, end)) == (
        OffsetsBehind(0, 0, 0.0, {"t": TopicBehind(0, 0)})
    )
    assert old_trigger(query) is None
    query.start(**EARLIEST)
    assert query.trigger() is None
    fill(topic, 1)
    assert query.trigger().num_rows == 1  # type: ignore[union-attr]


def test_before_spark_4_2_a_run_without_limits_reads_everything(topic: Topic) -> None:
    fill(topic, 7)
    query = Query(topic.url, **EARLIEST, minOffsetsPerTrigger=100)
    assert old_trigger(query) == 7
    fill(topic, 12)
    assert old_trigger(query) is None  # too few records, and the delay is not over
    resume(query, **EARLIEST)
    assert [old_trigger(query) for _ in range(2)] == [12, None]


# --- what Spark shows of it ------------------------------------------------------------------


def progress(end: object, latest: object) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest}]}


def sizes(topic: Topic, ranges: dict[int, tuple[int, int]]) -> int:
    return sum(size.bytes for size in topic.at().range_sizes(ranges).values())


def test_progress_has_the_metrics_of_the_kafka_connector_and_more_by_topic(logs: Store) -> None:
    topics = [logs.create_topic(name, 2) for name in ("a", "b")]
    fill(topics[0], 6, 3)
    query = Query(logs.url, subscribe="a,b", **EARLIEST, maxOffsetsPerTrigger=3)
    assert query.trigger().num_rows == 3  # type: ignore[union-attr]
    assert ends(query, "a") == {"0": 2, "1": 1}
    latest = query.reader.reportLatestOffset()
    assert latest is not None
    assert latest["metrics"] == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 1.5,
        "offsetsBehindLatest": {"a": 6, "b": 0},
        "bytesBehindLatest": {"a": sizes(topics[0], {0: (2, 6), 1: (1, 3)}), "b": 0},
    }
    behind = offsets_behind(progress(json.loads(query.log[-1]), latest))
    assert behind is not None
    assert behind.by_topic["a"] == TopicBehind(6, latest["metrics"]["bytesBehindLatest"]["a"])
    assert (behind.min, behind.max, behind.avg, behind.seconds) == (0, 4, 1.5, None)


def test_records_that_are_held_back_are_behind(topic: Topic) -> None:
    query = Query(topic.url, **EARLIEST, minOffsetsPerTrigger=100, failOnDataLoss=False)
    assert query.trigger().num_rows == 0  # type: ignore[union-attr]
    fill(topic, 5)
    topic.delete_records({0: 2})
    with pytest.warns(UserWarning, match="log starts at 2"):
        assert query.trigger() is None
    latest = query.reader.reportLatestOffset()
    assert latest is not None
    assert latest["metrics"]["offsetsBehindLatest"] == {"t": 5}  # as Kafka counts
    assert latest["metrics"]["bytesBehindLatest"] == {"t": sizes(topic, {0: (2, 5)})}


def test_metrics_of_a_compacted_topic_ask_nothing_of_the_store(logs: Store) -> None:
    """Not even of a segment with holes in which the batch ends."""
    topic = logs.create_topic("t", config={"cleanup.policy": "compact", **IN_FILES})
    for number in range(3):
        topic.append(kafka([str(key) for key in range(number, 30)]))
    topic.compact(force=True)
    query = Query(topic.url, **EARLIEST, maxOffsetsPerTrigger=1)
    counting = CountingStore(open_store(logs.url, None))
    query.reader._topics._store = Store(counting, Runtime())
    assert query.plan()
    assert counting.opened  # to find the end of the batch
    counting.reset()
    latest = query.reader.reportLatestOffset()
    assert counting.counts == {}
    assert latest is not None
    whole = topic.at().range_sizes()[0].bytes
    assert whole / 2 < latest["metrics"]["bytesBehindLatest"]["t"] < whole


# --- topics that change while a stream runs --------------------------------------------------


def test_case_30_new_partitions_are_read_from_0(topic: Topic) -> None:
    fill(topic, 1)
    query = Query(topic.url)
    assert query.drain() == [0]
    topic.alter(partitions=5)
    fill(topic, 1, 0, 0, 0, 2)
    assert offsets(query.trigger()) == {0: [1], 4: [0, 1]}


def test_new_partitions_are_limited_from_0(topic: Topic) -> None:
    query = Query(topic.url, maxOffsetsPerTrigger=2)
    assert query.drain() == [0]
    topic.alter(partitions=4)
    fill(topic, 0, 0, 0, 5)
    assert query.drain() == [2, 2, 1]


def test_partitions_added_while_stopped_are_read_from_0(topic: Topic) -> None:
    fill(topic, 1)
    query = Query(topic.url)
    assert query.drain() == [0]
    topic.alter(partitions=4)
    fill(topic, 0, 0, 0, 2)
    query.start(available_now=True)
    assert offsets(query.trigger()) == {3: [0, 1]}


def test_case_32_a_planned_batch_runs_as_planned(topic: Topic) -> None:
    fill(topic, 2)
    query = Query(topic.url, **EARLIEST)
    query.plan()
    topic.alter(partitions=5)
    fill(topic, 1, 0, 0, 0, 2)
    query.start(available_now=True, **EARLIEST)
    assert offsets(query.run(0)) == {0: [0, 1]}
    assert offsets(query.trigger()) == {0: [2], 4: [0, 1]}


def test_case_28_available_now_ignores_later_appends(topic: Topic) -> None:
    fill(topic, 10)
    query = Query(topic.url, available_now=True, **EARLIEST, maxOffsetsPerTrigger=4)
    assert query.trigger().num_rows == 4  # type: ignore[union-attr]
    fill(topic, 10)
    topic.alter(partitions=6)
    fill(topic, 0, 0, 0, 0, 5)
    assert query.drain() == [4, 2]


@pytest.mark.parametrize("fail", [True, False])
def test_case_28_available_now_fails_if_the_topic_is_recreated(logs: Store, fail: bool) -> None:
    fill(logs.create_topic("t", 3), 10)
    query = Query(
        f"{logs.url}/t", available_now=True, **EARLIEST, maxOffsetsPerTrigger=4, failOnDataLoss=fail
    )
    query.trigger()
    logs.delete_topic("t")
    with pytest.raises(InvalidRequestError, match=r"LOST_TOPIC_PARTITIONS.*is gone.*Restart"):
        query.trigger()
    fill(logs.create_topic("t", 1), 3)
    with pytest.raises(InvalidRequestError, match=r"LOST_TOPIC_PARTITIONS.*now has.*Restart"):
        query.trigger()


def lose_by_retention(logs: Store) -> None:
    logs.topic("t").delete_records({0: 4})


def lose_by_recreation(logs: Store) -> None:
    logs.delete_topic("t")
    fill(logs.create_topic("t", partitions=1), 2)


def lose_by_deletion(logs: Store) -> None:
    logs.delete_topic("t")


LOSSES: dict[str, tuple[Callable[[Store], None], str, dict[int, list[int]]]] = {
    "retention": (
        lose_by_retention,
        r"\[DATA_LOSS\] t-0: this query continues at offset 2, but its log starts at 4.*"
        "failOnDataLoss=false",
        {0: [4, 5]},
    ),
    "recreation": (
        lose_by_recreation,
        r"\[DATA_LOSS\] topic 't' was deleted and recreated, or is a copy in another store: it was "
        r"read up to \{0:2, 1:0, 2:0\} as id .*"
        r"ends at \{0:2\}.*failOnDataLoss=false",
        {0: [0, 1]},
    ),
    "deletion": (
        lose_by_deletion,
        r"\[DATA_LOSS\] topic 't' .*was read up to \{0:2, 1:0, 2:0\}, and now it does not exist.*"
        "failOnDataLoss=false",
        {},
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_case_31_a_loss_is_an_error(logs: Store, name: str) -> None:
    lose, message, _ = LOSSES[name]
    fill(logs.create_topic("t", partitions=3), 2)
    query = Query(f"{logs.url}/t", **EARLIEST)
    query.trigger()
    fill(logs.topic("t"), 4)
    lose(logs)
    with pytest.raises(InvalidRequestError, match=message):
        query.trigger()


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_case_31_without_fail_on_data_loss_a_loss_is_a_warning(
    logs: Store, name: str, restart: bool
) -> None:
    lose, message, rest = LOSSES[name]
    options = {**EARLIEST, "failOnDataLoss": False}
    fill(logs.create_topic("t", partitions=3), 2)
    query = Query(f"{logs.url}/t", **options)
    query.trigger()
    fill(logs.topic("t"), 4)
    lose(logs)
    if restart and name != "deletion":  # a missing topic cannot be loaded
        query.start(**options)
    with pytest.warns(UserWarning, match=message.rpartition(".*")[0]):
        assert offsets(query.trigger()) == rest
    assert query.trigger() is None
    if name == "deletion":
        logs.create_topic("t", partitions=3)
        with pytest.warns(UserWarning, match="deleted and recreated"):
            query.trigger()
    fill(logs.topic("t"), 1)
    (read,) = offsets(query.trigger()).values()
    assert len(read) == 1


def test_retention_between_planning_and_reading_is_a_loss(topic: Topic) -> None:
    fill(topic, 6)
    query = Query(topic.url, **EARLIEST)
    query.plan()
    topic.delete_records({0: 4})
    query.start(**EARLIEST)
    with pytest.raises(InvalidRequestError, match="its log starts at 4"):
        query.run(0)
    query.start(**EARLIEST, failOnDataLoss=False)
    with pytest.warns(UserWarning, match="its log starts at 4"):
        assert offsets(query.run(0)) == {0: [4, 5]}


def test_planned_batch_of_a_recreated_topic(logs: Store) -> None:
    fill(logs.create_topic("t"), 3)
    query = Query(f"{logs.url}/t", **EARLIEST)
    query.plan()
    logs.delete_topic("t")
    fill(logs.create_topic("t"), 1)
    query.start(**EARLIEST)
    with pytest.raises(InvalidRequestError, match=r"DATA_LOSS.* now has the id"):
        query.run(0)
    query.start(**EARLIEST, failOnDataLoss=False)
    with pytest.warns(UserWarning, match="now has the id"):
        assert query.run(0).num_rows == 0
    with pytest.warns(UserWarning, match="deleted and recreated"):
        assert offsets(query.trigger()) == {0: [0]}


def test_offset_beyond_the_end_is_a_loss(topic: Topic) -> None:
    """For example if the topic was restored from an older copy."""
    fill(topic, 3)
    query = Query(topic.url, **EARLIEST, failOnDataLoss=False)
    query.trigger()
    query.log[0] = query.log[0].replace('"0": 3', '"0": 9')
    with pytest.warns(UserWarning, match="t-0 was read up to offset 9, but its log ends at 3"):
        assert query.trigger().num_rows == 0  # type: ignore[union-attr]
    fill(topic, 1)
    assert offsets(query.trigger()) == {0: [3]}


def test_missing_file_is_an_error_or_a_warning(topic: Topic, tmp_path: Path) -> None:
    topic.alter(config=IN_FILES)
    fill(topic, 3)
    fill(topic, 2)
    query = Query(topic.url, **EARLIEST)
    query.plan()
    (first, _) = sorted((tmp_path / "logs" / "t" / "partition=0").iterdir())
    first.unlink()
    with pytest.raises(pylogtable.StorageError, match=r"\[DATA_LOSS\] t-0: offsets"):
        query.run()
    query.start(**EARLIEST, failOnDataLoss=False)
    with pytest.warns(UserWarning, match="DATA_LOSS"):
        assert offsets(query.run()) == {0: [3, 4]}


def test_offsets_survive_compaction_merge_and_retention_of_what_was_read(logs: Store) -> None:
    topic = logs.create_topic("t", config={"cleanup.policy": "compact,delete"})
    query = Query(topic.url, **EARLIEST)
    query.drain()
    seen: list[int] = []
    for number in range(6):
        topic.append(kafka(["a", "b", f"c{number}"]))
        seen += offsets(query.trigger()).get(0, [])
        if number % 2:
            query.start(**EARLIEST)
        topic.compact(force=True)
        topic.merge()
        topic.delete_records({0: seen[-1]})
    assert seen == list(range(18))


def test_each_batch_has_exactly_the_records_of_its_range() -> None:
    """Whatever happens to the topic: a batch has the offsets of its range without the holes."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(4):
        with tempfile.TemporaryDirectory() as folder:
            _run_beside_maintenance(chance, pylogtable.open(folder))


def _run_beside_maintenance(chance: random.Random, logs: Store) -> None:
    topic = logs.create_topic("t", 2, config={"cleanup.policy": "compact,delete"})
    options = {**EARLIEST, "maxOffsetsPerTrigger": chance.randint(1, 40)}
    query = Query(topic.url, **options)
    seen: dict[int, list[int]] = {0: [], 1: []}

    def run(*, again: bool = False) -> None:
        begin, end = query.start_of(len(query.log) - 1), json.loads(query.log[-1])
        first = end["from"] if "initial" in begin else begin["topics"]
        spans = {
            int(number): (first["t"]["offsets"][number], to)
            for number, to in end["topics"]["t"]["offsets"].items()
        }
        view = topic.at()
        read = offsets(query.run())
        assert {p: len(read.get(p, [])) for p in spans} == {
            p: extent.records for p, extent in view.range_sizes(spans).items()
        }
        for partition, found in read.items():
            low, high = spans[partition]
            assert all(low <= offset < high for offset in found)
            if not again:
                seen[partition] += found

    for _ in range(25):
        match chance.randrange(6):
            case 0 | 1:
                topic.append(kafka([str(chance.randrange(30)) for _ in range(20)]))
            case 2:
                topic.compact(force=True)
            case 3:
                topic.merge()
            case 4:
                query.start(**options)
                if query.log:
                    run(again=True)
            case _:
                if query.plan():
                    run()
    while query.plan():
        run()
    alive = offsets(topic.read().read_all())
    for partition, found in seen.items():
        assert found == sorted(set(found))
        assert set(found) >= set(alive.get(partition, []))


# --- several topics --------------------------------------------------------------------------


def test_topics_that_match_a_pattern_are_found_while_it_runs(logs: Store) -> None:
    fill(logs.create_topic("log-a"), 1)
    query = Query(logs.url, subscribePattern="log-.*", **EARLIEST)
    assert query.drain() == [1]
    fill(logs.create_topic("log-b"), 2)
    fill(logs.create_topic("other"), 2)
    query.reader._topics._discover_at = 0
    table = query.trigger()
    assert table is not None
    assert table["topic"].to_pylist() == ["log-b"] * 2
    logs.create_topic("log-c")
    query.start(subscribePattern="log-.*")
    fill(logs.topic("log-c"), 1)
    assert query.drain() == [1]


def test_between_two_lookups_of_a_pattern_the_store_is_not_listed(logs: Store) -> None:
    logs.create_topic("log-a")
    query = Query(logs.url, subscribePattern="log-.*", **EARLIEST)
    counting = CountingStore(open_store(logs.url, None))
    query.reader._topics._store = Store(counting, Runtime())
    query.drain()
    assert counting.counts["list_folders"] >= 1
    query.reader._topics._discover_at += 3600
    counting.reset()
    for _ in range(20):
        query.trigger()
    assert counting.counts["list_folders"] == 0


def test_limits_are_shared_by_all_topics(logs: Store) -> None:
    fill(logs.create_topic("a"), 30)
    fill(logs.create_topic("b"), 10)
    query = Query(logs.url, subscribe="a,b", **EARLIEST, maxOffsetsPerTrigger=8)
    query.trigger()
    assert (ends(query, "a"), ends(query, "b")) == ({"0": 6}, {"0": 2})
    assert sum(query.drain()) == 32


def test_only_assigned_partitions_are_read(topic: Topic, logs: Store) -> None:
    fill(topic, 1, 2, 3)
    query = Query(logs.url, assign='{"t":[0,2]}', **EARLIEST)
    assert offsets(query.trigger()) == {0: [0], 2: [0, 1, 2]}
    assert ends(query) == {"0": 1, "2": 3}
    query.start(assign='{"t":[0]}')
    with pytest.raises(
        InvalidRequestError, match=r"partition\(s\) 2 of topic 't' .*failOnDataLoss"
    ):
        query.trigger()


def test_unsubscribed_topic_keeps_its_offsets(logs: Store) -> None:
    for name in ("a", "b"):
        fill(logs.create_topic(name), 2)
    query = Query(logs.url, subscribe="a,b", **EARLIEST)
    assert query.drain() == [4]
    fill(logs.topic("b"), 1)
    query.start(subscribe="a")
    with pytest.raises(InvalidRequestError, match=r"topic 'b' .*not subscribed.*failOnDataLoss"):
        query.trigger()
    fill(logs.topic("a"), 1)
    query.start(subscribe="a", failOnDataLoss=False)
    with pytest.warns(UserWarning, match="not subscribed"):
        assert query.drain() == [1]
    query.start(subscribe="a,b")
    assert query.drain() == [1]


# --- columns ---------------------------------------------------------------------------------


def test_columns_headers_and_a_schema_of_the_users(topic: Topic) -> None:
    fill(topic, 2)
    names = Query(topic.url, **EARLIEST).trigger().schema.names  # type: ignore[union-attr]
    assert names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    with_headers = Query(topic.url, **EARLIEST, includeHeaders=True)
    assert with_headers.trigger().schema.names == [*names, "headers"]  # type: ignore[union-attr]
    few = Query(topic.url, **EARLIEST, columns="offset,value").trigger()
    assert few is not None
    assert few.schema.names == ["offset", "value"]
    own = Query(topic.url, **EARLIEST, schema=pa.schema({"offset": pa.int64()})).trigger()
    assert own is not None
    assert own.schema.names == ["offset"]
    with pytest.raises(SchemaMismatchError, match="no column 'valu'"):
        Query(topic.url, schema=pa.schema({"valu": pa.binary()}))


def test_a_stream_keeps_its_columns_when_the_topic_gets_more(topic: Topic) -> None:
    fill(topic, 1)
    query = Query(topic.url, **EARLIEST)
    first = query.trigger()
    topic.alter(add_columns={"region": pa.string()})
    topic.append(kafka(["a"], region=pa.array(["north"])))
    second = query.trigger()
    assert first is not None
    assert second is not None
    assert second.schema == first.schema
    assert second.num_rows == 1


def test_a_widened_column_is_read_as_it_was_until_a_value_does_not_fit(logs: Store) -> None:
    topic = logs.create_topic("t", schema={"n": pa.int32()})
    query = Query(topic.url, **EARLIEST)
    assert query.drain() == [0]
    topic.alter(widen_columns={"n": pa.int64()})
    topic.append(pa.table({"n": [1]}))
    read = query.trigger()
    assert read is not None
    assert (read.schema.field("n").type, read["n"].to_pylist()) == (pa.int32(), [1])
    topic.append(pa.table({"n": [2**40]}))
    assert query.plan()
    with pytest.raises(SchemaMismatchError, match=r"'n' of topic 't' was int32 .* is int64 now"):
        query.run()
    # The batch failed, so it is repeated, now with the new type of the column.
    query.start()
    assert query.run()["n"].to_pylist() == [2**40]


CHANGES: dict[str, dict[str, Any]] = {
    "renamed": {"rename_columns": {"a": "name"}},
    "swapped": {"rename_columns": {"a": "b", "b": "a"}},
    "dropped": {"drop_columns": ["a"]},
    "dropped and added again": {"drop_columns": ["a"], "add_columns": {"a": pa.string()}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_stream_whose_column_was_renamed_or_dropped_says_to_restart(
    logs: Store, change: dict[str, Any]
) -> None:
    topic = logs.create_topic("t", schema=dict.fromkeys(["a", "b", "c"], pa.string()))
    topic.append(pa.table({"a": ["1"], "b": ["x"]}))
    query = Query(topic.url, **EARLIEST)
    query.trigger()
    topic.append(pa.table({"a": ["2"], "b": ["y"]}))
    topic.alter(**change)
    with pytest.raises(SchemaMismatchError, match=r"'t' were renamed or dropped.* Restart it"):
        query.trigger()
    # The checkpoint still has its place, and the columns are those of the topic now.
    query.start()
    again = query.trigger()
    assert again is not None
    assert again.column_names == topic.schema.names
    assert again.to_pylist() == topic.read(start=1).read_all().to_pylist()


def test_a_stream_goes_on_if_another_column_was_renamed_or_dropped(logs: Store) -> None:
    topic = logs.create_topic("t", schema=dict.fromkeys(["a", "b", "c"], pa.string()))
    query = Query(topic.url, columns="offset,a", **EARLIEST)
    assert query.drain() == [0]
    topic.alter(rename_columns={"b": "name"}, drop_columns=["c"])
    topic.append(pa.table({"a": ["2"], "name": ["y"]}))
    read = query.trigger()
    assert read is not None
    assert read.to_pylist() == [{"offset": 0, "a": "2"}]


def test_a_column_that_changed_between_load_and_start_is_noticed(logs: Store) -> None:
    topic = logs.create_topic("t", schema=dict.fromkeys(["a", "b"], pa.string()))
    query = Query(topic.url, **EARLIEST)
    topic.alter(rename_columns={"a": "b", "b": "a"})
    with pytest.raises(SchemaMismatchError, match="STREAM_COLUMNS_CHANGED"):
        query.trigger()


def test_old_name_of_a_column_is_answered_with_the_new_one(logs: Store) -> None:
    topic = logs.create_topic("t", schema={"a": pa.string()})
    topic.alter(rename_columns={"a": "name"})
    asked = StructType([StructField("a", StringType())])
    with pytest.raises(SchemaMismatchError, match="no column 'a'; it was renamed to 'name'"):
        check_requested(asked, {"t": topic.at()})
    with pytest.raises(InvalidRequestError, match="no column 'a'; it was renamed to 'name'"):
        Query(topic.url, columns="a", **EARLIEST)


def test_new_topic_with_other_columns_is_refused(logs: Store) -> None:
    logs.create_topic("log-a")
    query = Query(logs.url, subscribePattern="log-.*")
    query.drain()
    logs.create_topic("log-b", schema={"amount": pa.int64()})
    query.reader._topics._discover_at = 0
    with pytest.raises(SchemaMismatchError, match="topic 'log-b' has no column 'key'"):
        query.trigger()


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "endingTimestamp is not valid in streaming queries"),
        ({"versionAsOf": "1"}, "versionAsOf is of no use in a stream"),
        ({"view": "latest"}, "view=latest cannot be read as a stream"),
        ({"group": "not a name"}, "not a name"),
    ],
)
def test_options_that_a_stream_refuses(topic: Topic, options: dict[str, str], message: str) -> None:
    fill(topic, 1)
    with pytest.raises(InvalidRequestError, match=message):
        Query(topic.url, **options).trigger()


def test_missing_topic_is_refused(logs: Store, topic: Topic) -> None:
    with pytest.raises(TopicNotFoundError, match="there is no topic"):
        Query(f"{logs.url}/nowhere")


@pytest.mark.parametrize("offset", ['{"t":{"0":23}}', "23"])
def test_checkpoint_of_another_source_is_refused(topic: Topic, offset: str) -> None:
    query = Query(topic.url)
    query.log.append(offset)
    with pytest.raises(InvalidRequestError, match="belongs to another source"):
        query.trigger()


# --- consumer groups -------------------------------------------------------------------------


def test_positions_are_committed_to_a_group_with_the_next_batch(topic: Topic) -> None:
    query = Query(topic.url, **EARLIEST, group="billing")
    fill(topic, 4, 1)
    query.trigger()
    assert topic.group("billing").positions() == {}
    fill(topic, 2)
    query.trigger()
    assert topic.group("billing").positions() == {0: 4, 1: 1, 2: 0}
    assert topic.group("billing").lag().records == 2


def test_last_batch_is_committed_when_spark_asks_for_another_in_vain(topic: Topic) -> None:
    """As it does at the end of a run with AvailableNow, and while a stream waits for records."""
    fill(topic, 4, 1)
    query = Query(topic.url, **EARLIEST, group="billing", maxOffsetsPerTrigger=3)
    assert topic.group("billing").lag().records == 5
    assert query.drain() == [3, 2]
    assert topic.group("billing").positions() == topic.end_offsets()
    assert topic.group("billing").lag().records == 0


def test_planned_batch_is_not_committed_before_it_is_done(topic: Topic) -> None:
    query = Query(topic.url, **EARLIEST, group="billing")
    fill(topic, 4)
    query.trigger()
    fill(topic, 2)
    assert query.plan()
    assert topic.group("billing").positions()[0] == 4
    query.run()
    assert topic.group("billing").positions()[0] == 4
    query.start(**EARLIEST, group="billing")  # the batch failed: Spark repeats it
    query.run()
    assert topic.group("billing").positions()[0] == 4
    assert query.trigger() is None
    assert topic.group("billing").positions()[0] == 6


def test_runs_without_records_write_no_state_of_the_group(topic: Topic, tmp_path: Path) -> None:
    fill(topic, 4)
    query = Query(topic.url, **EARLIEST, group="billing")
    query.drain()
    folder = tmp_path / "logs" / "t" / "_groups" / "billing"
    states = list(folder.iterdir())
    assert states
    for _ in range(3):
        query.start(**EARLIEST, group="billing")
        assert query.drain() == []
        assert query.drain() == []
    assert list(folder.iterdir()) == states


def test_refused_group_commit_is_not_repeated_while_nothing_happens(topic: Topic) -> None:
    topic.consumer("billing", "member").assignment()
    fill(topic, 1)
    query = Query(topic.url, **EARLIEST, group="billing")
    query.trigger()
    with pytest.warns(UserWarning, match="active member"):
        query.drain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        query.drain()


def test_conflicting_group_commit_is_a_warning(topic: Topic) -> None:
    query = Query(topic.url, **EARLIEST, group="billing")
    for _ in range(2):
        fill(topic, 1)
        query.trigger()
    other = topic.group("billing")
    other.positions()
    other.commit({0: 0})
    fill(topic, 1)
    with pytest.warns(UserWarning, match="group 'billing' of topic 't'"):
        assert query.trigger() is not None
    fill(topic, 1)
    query.trigger()
    assert topic.group("billing").positions()[0] == 3


# --- Spark's read limits ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "ReadAllAvailable"),
        ({"maxOffsetsPerTrigger": 5, "minOffsetsPerTrigger": 2}, "ReadMaxRows"),
        ({"maxBytesPerTrigger": 5}, "ReadMaxBytes"),
        ({"minOffsetsPerTrigger": 2}, "ReadMinRows"),
    ],
)
def test_default_read_limit_reflects_the_options(
    topic: Topic, options: dict[str, Any], expected: str
) -> None:
    """With Spark's own code for both directions."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.2 and newer")
    from pyspark.sql.datasource_internal import ReadLimitRegistry
    from pyspark.sql.streaming import python_streaming_source_runner as runner

    fill(topic, 20)
    query = Query(topic.url, **EARLIEST, **options)
    sent = io.BytesIO()
    runner.get_default_read_limit_func(query.reader, sent)
    limit = json.loads(sent.getvalue()[4:])
    assert limit["_type"] == expected
    back = ReadLimitRegistry().get(limit)
    end = query.reader.latestOffset(query.reader.initialOffset(), back)
    query.log.append(json.dumps(end))
    most = options.get("maxOffsetsPerTrigger", 20)
    assert 0 < query.run().num_rows <= most
    query.start(available_now=True, **options)
    sent = io.BytesIO()
    runner.get_default_read_limit_func(query.reader, sent)
    # The minimum number of records might never come.
    assert json.loads(sent.getvalue()[4:])["_type"] == expected.replace("MinRows", "AllAvailable")
