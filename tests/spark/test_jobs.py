"""Maintenance as Spark jobs gives the same result as in process; the scheduled job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pylogtable import EraseReport, InvalidRequestError, LogTableError, Store, Topic
from pylogtable.engine import Compaction, plan_append
from pylogtable.limits import DEFAULT_LIMITS
from pyspark_pylogtable import LogTable
from pyspark_pylogtable.table.jobs import run_each
from pyspark_pylogtable.table.maintain_job import main
from tests.builders import IN_FILES, ints, kafka, limited, rows, times, until_all_is_past
from tests.spark.conftest import CONNECT
from tests.spark.support import failure, in_order, load

COMPACT = {"cleanup.policy": "compact"}
COLUMNS = ("partition", "offset", "key", "value", "timestamp")


def filled(logs: Store, name: str, config: dict[str, Any] | None = None) -> Topic:
    """Three partitions of small segments, some of them shifted. Keys have several records; a
    compacted topic has tombstones too."""
    topic = logs.create_topic(name, partitions=3, config={**IN_FILES, **(config or {})})
    keys = [f"k{n}" for n in range(30)]
    stamps = times(*range(30))
    topic.append(kafka(keys, timestamp=stamps))
    staged = [
        plan_append(topic).stage(kafka(keys, [f"{n}-{k}" for k in keys], timestamp=stamps))
        for n in "xy"
    ]
    plan_append(topic).commit(staged)
    topic.append(kafka(keys[:4], [None, "z", None, "z"], timestamp=times(1, 2, 3, 4)))
    assert any(topic.segments()["shift"].to_pylist())
    return topic


def state(topic: Topic) -> tuple[Any, ...]:
    """Records, offsets and segments, without the names of files."""
    segments = topic.segments()
    return (
        rows(topic.read(), *COLUMNS),
        topic.start_offsets(),
        topic.end_offsets(),
        rows(segments, "partition", "base_offset", "end_offset", "records", "shift", "tombstones"),
        [part.clean_end for part in topic.at().snapshot.partitions],
    )


def plain(report: Any) -> dict[str, Any]:
    """The part of a report that does not depend on where the work ran."""
    return {k: v for k, v in vars(report).items() if k != "seconds"}


def pair(spark: SparkSession, logs: Store, config: dict[str, Any] | None) -> tuple[Topic, LogTable]:
    here, there = filled(logs, "here", config), filled(logs, "there", config)
    assert state(here) == state(there)
    return here, LogTable.for_path(spark, there.url)


# --- where jobs run --------------------------------------------------------------------------


def jobs_started(spark: SparkSession, action: Callable[[], object]) -> int:
    """How many Spark jobs this starts."""
    context, group = spark.sparkContext, "jobs of this test"
    context.setJobGroup(group, group)
    try:
        before = len(context.statusTracker().getJobIdsForGroup(group))
        action()
        return len(context.statusTracker().getJobIdsForGroup(group)) - before
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.skipif(CONNECT, reason="the jobs of a Spark Connect server cannot be counted")
def test_little_work_starts_no_spark_job(spark: SparkSession, logs: Store) -> None:
    table = LogTable.for_path(spark, filled(logs, "t", COMPACT).url)
    assert jobs_started(spark, lambda: spark.range(1).collect()) == 1
    assert jobs_started(spark, table.compact) == 0
    assert jobs_started(spark, lambda: table.erase(keys=["k1"])) == 0
    table.topic.append(kafka(["a"]))
    assert jobs_started(spark, table.merge) == 0
    assert jobs_started(spark, table.publish) == 0
    table.topic.append(kafka(["a"]))
    assert jobs_started(spark, table.maintain) == 0
    operations = table.topic.history()["operation"].to_pylist()
    assert {"compact", "erase", "merge"} <= set(operations)


@pytest.mark.skipif(CONNECT, reason="the jobs of a Spark Connect server cannot be counted")
def test_many_segments_or_many_bytes_start_a_spark_job(spark: SparkSession, logs: Store) -> None:
    many = logs.create_topic("many", config=IN_FILES)
    plan_append(many).commit(
        [plan_append(many).stage(kafka(["a"])) for _ in range(DEFAULT_LIMITS.driver_segments + 1)]
    )
    assert jobs_started(spark, LogTable.for_path(spark, many.url).merge) > 0
    assert many.segments().num_rows == 1
    large = filled(logs, "large")
    size = sum(large.segments()["size_bytes"].to_pylist())
    table = LogTable(spark, large.url, limited(large, driver_bytes=size - 1))
    assert jobs_started(spark, table.merge) > 0
    assert large.segments().num_rows == 3


@pytest.mark.skipif(CONNECT, reason="the jobs of a Spark Connect server cannot be counted")
def test_many_records_in_commits_are_little_work(spark: SparkSession, logs: Store) -> None:
    topic = logs.create_topic("t", config={"inline.max.bytes": 16384})
    for number in range(DEFAULT_LIMITS.driver_segments + 1):
        topic.append(kafka([f"{number}"]))
    assert jobs_started(spark, LogTable.for_path(spark, topic.url).merge) == 0
    assert topic.segments().num_rows == 1


# --- jobs ------------------------------------------------------------------------------------


@pytest.fixture
def on_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work is done by Spark jobs, however little it is."""
    opened = LogTable.for_path

    def for_path(spark: SparkSession, path: str, options: Any = None) -> LogTable:
        return LogTable(
            spark, path, limited(opened(spark, path, options).topic, driver_segments=-1)
        )

    monkeypatch.setattr(LogTable, "for_path", for_path)


@pytest.mark.usefixtures("on_executors")
def test_compact_and_merge_give_the_same_result_as_spark_jobs(
    spark: SparkSession, logs: Store
) -> None:
    here, there = pair(spark, logs, COMPACT)
    report = there.compact()
    assert plain(report) == plain(here.compact())
    assert (report.operation, report.units, report.skipped) == ("compact", 3, 0)
    assert (report.records_in, report.records_removed) == (94, 64)
    assert report.seconds > 0
    assert state(here) == state(there.topic)
    assert len(rows(there.topic.read(), "key")) == 30
    newest = there.topic.history(3).to_pylist()
    assert [row["operation"] for row in newest] == ["compact"] * 3
    assert sum(dict(row["summary"])["records_removed"] for row in newest) == 64

    merged = there.merge()
    assert plain(merged) == plain(here.merge())
    assert merged.units > 0
    assert state(here) == state(there.topic)
    assert there.topic.history(1)["operation"].to_pylist() == ["merge"]
    assert there.topic.verify(data=True)
    # Without work there is no job and no commit.
    version = there.topic.version
    assert (there.compact().units, there.merge().units) == (0, 0)
    assert there.topic.version == version


@pytest.mark.usefixtures("on_executors")
def test_merge_of_shifted_segments(spark: SparkSession, logs: Store) -> None:
    here, there = pair(spark, logs, None)
    before = rows(there.topic.read(), *COLUMNS)
    report = there.merge()
    assert plain(report) == plain(here.merge())
    assert (report.units, report.segments_out, report.records_removed) == (3, 3, 0)
    assert state(here) == state(there.topic)
    assert rows(there.topic.read(), *COLUMNS) == before
    assert there.topic.segments()["shift"].to_pylist() == [0, 0, 0]


@pytest.mark.usefixtures("on_executors")
def test_erase_gives_the_same_result_as_a_spark_job(spark: SparkSession, logs: Store) -> None:
    here, there = pair(spark, logs, COMPACT)
    keys = spark.createDataFrame([(b"k1",), (b"k7",), (b"k1",)], "key binary")
    looked = there.erase(keys=keys, dry_run=True)
    assert (looked.records_erased, there.topic.count()) == (7, 94)
    report = there.erase(keys=keys)
    assert erased(report) == erased(here.erase(keys=["k1", "k7"]))
    assert state(here) == state(there.topic)
    where = (pc.field("value") == b"z") | (pc.field("offset") == 3)
    assert erased(there.erase(where=where)) == erased(here.erase(where=where))
    assert state(here) == state(there.topic)
    assert there.topic.history(1)["operation"].to_pylist() == ["erase"]
    assert there.topic.verify(data=True)
    with pytest.raises(InvalidRequestError, match="pyarrow expression"):
        there.erase(where="value = 'z'")


def erased(report: EraseReport) -> dict[str, Any]:
    """The part of a report that is the same for two topics with the same records."""
    names = {"old_files", "vacuumed_from_ms"}
    return {name: value for name, value in plain(report).items() if name not in names}


@pytest.mark.usefixtures("on_executors")
def test_publication_seals_segments_as_a_job(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "published")
    shifted = sum(shift > 0 for shift in topic.segments()["shift"].to_pylist())
    expected = rows(topic.read(), *COLUMNS)
    table = LogTable.for_path(spark, topic.url)
    (shown,) = table.publish().tables
    assert (shown.version, shown.segments_sealed) == (topic.version - 1, shifted)
    delta = polars.scan_delta(topic.url.removeprefix("file://")).sort("partition", "offset")
    assert rows(delta.collect().to_arrow(), *COLUMNS) == expected
    assert table.unpublish() == 2


@pytest.mark.usefixtures("on_executors")
def test_maintain_as_jobs(spark: SparkSession, logs: Store) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": -1, "retention.bytes": 2000}
    here, there = pair(spark, logs, config)
    before = state(there.topic)
    foreseen, version = there.maintain(dry_run=True), there.topic.version
    assert plain(foreseen.merge) == plain(here.maintain(dry_run=True).merge)
    assert plain(foreseen.retention) == plain(there.apply_retention(dry_run=True))
    assert (state(there.topic), there.topic.version) == (before, version)
    ours, theirs = here.maintain(), there.maintain()
    assert state(here) == state(there.topic)
    for job in ("retention", "compaction", "merge", "vacuum"):
        assert plain(getattr(ours, job)) == plain(getattr(theirs, job)), job
    assert theirs.topic == "there"
    assert theirs.vacuum is not None
    assert not theirs.vacuum.dry_run
    assert there.maintain(vacuum=False).vacuum is None
    assert there.topic.verify(data=True)


@pytest.mark.usefixtures("on_executors")
def test_retention_and_vacuum(spark: SparkSession, logs: Store) -> None:
    here, there = pair(spark, logs, {"retention.ms": 1000})
    assert plain(there.apply_retention(keep_from={0: 0})) == plain(
        here.apply_retention(keep_from={0: 0})
    )
    assert there.topic.start_offsets()[0] == 0 < there.topic.count()
    report = there.apply_retention()
    assert plain(report) == plain(here.apply_retention())
    assert report.segments_removed > 0
    assert state(here) == state(there.topic)
    until_all_is_past(here)
    until_all_is_past(there.topic)
    dry = there.vacuum(retention_ms=0)
    assert dry.dry_run
    real = there.vacuum(dry_run=False, retention_ms=0, force=True)
    assert real.files == dry.files
    assert (
        real.data_files == here.vacuum(dry_run=False, retention_ms=0, force=True).data_files == 12
    )
    assert state(here) == state(there.topic)


@pytest.mark.usefixtures("on_executors")
def test_each_unit_of_work_is_a_spark_task(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "t", COMPACT)
    units = Compaction(force=True).plan(topic._maintained)

    def where(unit: Any) -> tuple[int, int]:
        return unit.partition, TaskContext.get().partitionId()

    assert run_each(spark, where, units) == [(0, 0), (1, 1), (2, 2)]
    assert run_each(spark, where, []) == []


@pytest.mark.usefixtures("on_executors")
def test_failed_task_leaves_the_topic_unchanged(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "t", COMPACT)
    lost = topic.segments().to_pylist()[-1]
    path = Path(topic.url.removeprefix("file://")) / lost["path"]
    content = path.read_bytes()
    version, before = topic.version, state(topic)
    path.unlink()
    table = LogTable.for_path(spark, topic.url)
    with pytest.raises(PySparkException, match=path.name):
        table.compact()
    path.write_bytes(content)
    assert (topic.version, state(topic)) == (version, before)
    assert topic.verify(data=True)
    assert table.compact().units == 3


@pytest.mark.usefixtures("on_executors")
def test_compaction_of_a_topic_without_the_policy_is_refused(
    spark: SparkSession, logs: Store
) -> None:
    topic = logs.create_topic("t")
    with pytest.raises(InvalidRequestError, match=r"cleanup\.policy=delete"):
        LogTable.for_path(spark, topic.url).compact()


# --- view="latest" ---------------------------------------------------------------------------


def test_latest_is_what_compaction_leaves(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "t", COMPACT)
    table = LogTable.for_path(spark, topic.url)
    version = topic.version
    topic.compact()
    compacted = table.to_df()
    topic.append(kafka(["k0", "new"], ["later", "later"]))
    latest = table.to_df(view="latest", version=version)
    assert latest.schema == compacted.schema
    assert sorted(latest.collect()) == (kept := sorted(compacted.collect()))
    assert len(kept) == 30
    table.create_view("newest", columns=["key", "value"], view="latest")
    found = {bytes(row.key): row.value for row in spark.sql("SELECT * FROM newest").collect()}
    assert len(found) == 31
    assert (found[b"k0"], found[b"k2"]) == (b"later", None)


def test_latest_of_given_keys(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "t", COMPACT)
    table = LogTable.for_path(spark, topic.url)
    everything = table.to_df(view="latest")
    wanted = sorted(everything.where("key IN (X'6B30', X'6B32')").collect())  # k0, k2
    assert len(wanted) == 2
    by_python = table.to_df(view="latest", keys=["k0", "k2", "none"])
    assert by_python.schema == everything.schema
    assert sorted(by_python.collect()) == wanted
    frame = spark.createDataFrame([(b"k0",), (b"k2",), (b"k0",)], "key binary")
    assert sorted(table.to_df(view="latest", keys=frame).collect()) == wanted
    reader = spark.read.format("pylogtable").option("view", "latest")
    by_option = reader.option("keys", '["k0", "k2", "none"]').load(topic.url)
    shown = by_option.select(everything.columns)
    assert sorted(shown.collect()) == wanted
    assert by_option.rdd.getNumPartitions() == 1
    assert table.to_df(view="latest", keys=[]).count() == 0
    for view, keys, said in (
        ("segments", '["k0"]', "keys is about records, and view=segments has none"),
        ("records", "[17]", "do not fit key column 'key'"),
        ("latest", '{"k0": 1}', 'must be a JSON array, as ["u1","u2"]'),
        ("latest", "k0", "must be a JSON array"),
        ("latest", "[17]", "do not fit key column 'key'"),
    ):
        df = spark.read.format("pylogtable").option("view", view).option("keys", keys)
        assert said in failure(lambda df=df: df.load(topic.url).collect())


@pytest.mark.parametrize("by", ["driver", "tasks", "tasks that get few bytes back"])
def test_all_records_of_given_keys(spark: SparkSession, logs: Store, by: str) -> None:
    """A key has records in several partitions, in commits, and in shifted files."""
    topic = filled(logs, "t")
    topic.append(kafka(["k0", "k2", "k9"], partition=ints(0, 1, 2)))
    topic.alter(config={"inline.max.bytes": None}, partitions=4)
    topic.append(kafka(["k0", "k2", None], ["in a commit", None, "x"]))
    changed = {"tasks": {"driver_segments": -1}, "driver": {}}.get(by, {"driver_inline_bytes": 10})
    table = LogTable(spark, topic.url, limited(topic, **changed))
    columns = ["partition", "offset", "key", "value"]
    for keys in (["k0"], ["k2", "k0", "none"], ["none"], []):
        expected = rows(topic.read(keys=keys), *columns)
        assert {row[2] for row in expected} == {key.encode() for key in keys} - {b"none"}
        df = table.to_df(columns=columns, keys=keys)
        assert [(r.partition, r.offset, bytes(r.key), r.value) for r in in_order(df)] == expected
        by_option = load(spark, topic.url, keys=json.dumps(keys), columns=",".join(columns))
        assert in_order(by_option) == in_order(df)
    frame = spark.createDataFrame([(b"k0",), (b"k2",), (b"k0",)], "key binary")
    part = table.to_df(start={0: 3, "*": 1}, end={"*": 12}, partitions=[0, 1], keys=frame)
    wanted = topic.read([0, 1], {0: 3, "*": 1}, {"*": 12}, keys=["k0", "k2"])
    assert [(row.partition, row.offset) for row in in_order(part)] == rows(
        wanted, "partition", "offset"
    )
    assert part.schema == table.to_df().schema


def test_all_records_of_given_keys_in_sql(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "t")
    LogTable.for_path(spark, topic.url).create_view("of_k1", keys=["k1"])
    count = len(rows(topic.read(keys=["k1"])))
    assert spark.table("of_k1").count() == count > 3
    spark.sql(
        f"CREATE TEMPORARY VIEW of_k2 USING pylogtable OPTIONS (path '{topic.url}', "
        """keys '["k2"]', startingOffsets '{"*": 1}', minPartitions 7)"""
    )
    wanted = rows(topic.read(start=1, keys=["k2"]), "partition", "offset")
    found = spark.sql("SELECT partition, offset FROM of_k2 ORDER BY 1, 2").collect()
    assert [tuple(row) for row in found] == wanted
    keyless = logs.create_topic("keyless", schema={"n": pa.int64()})
    with pytest.raises(InvalidRequestError, match="'keyless' has no key columns"):
        LogTable.for_path(spark, keyless.url).to_df(keys=[1])
    told = failure(lambda: load(spark, keyless.url, keys="[1]").collect())
    assert "'keyless' has no key columns" in told
    for view in ("of_k1", "of_k2"):
        spark.catalog.dropTempView(view)


@pytest.mark.parametrize("view", ["latest", "records"])
def test_only_files_of_the_partitions_of_the_keys_are_opened(
    spark: SparkSession, logs: Store, tmp_path: Path, view: str
) -> None:
    topic = logs.create_topic("t", 4, config={**IN_FILES, **COMPACT})
    topic.append(kafka([f"k{n}" for n in range(40)], [str(n) for n in range(40)]))
    partition = dict(rows(topic.read(), "key", "partition"))[b"k7"]
    for file in (tmp_path / "logs" / "t").glob("partition=*/*.parquet"):
        if file.parent.name != f"partition={partition}":
            file.unlink()
    df = LogTable.for_path(spark, topic.url).to_df(view=view, keys=["k7"])
    assert [bytes(row.value) for row in df.collect()] == [b"7"]
    reader = spark.read.format("pylogtable").option("view", view)
    by_option = reader.option("keys", '["k7"]').load(topic.url)
    assert [bytes(row.value) for row in by_option.collect()] == [b"7"]
    reader = spark.read.format("pylogtable").option("view", view)
    assert "[DATA_LOSS]" in failure(lambda: reader.load(topic.url).collect())


def test_view_is_refreshed_with_its_own_range(spark: SparkSession, logs: Store) -> None:
    topic = filled(logs, "t")
    table = LogTable.for_path(spark, topic.url)
    table.create_view("tail", {0: topic.end_offsets()[0]}, columns=["value"], partitions=0)
    assert spark.table("tail").count() == 0
    topic.append(kafka(["a"], ["later"], partition=ints(0)))
    assert spark.table("tail").count() == 0
    table.refresh_view("tail")
    assert [bytes(row.value) for row in spark.table("tail").collect()] == [b"later"]
    with pytest.raises(InvalidRequestError, match=r"no view 'other' .it has created: 'tail'."):
        table.refresh_view("other")


def test_options_that_view_latest_refuses(spark: SparkSession, logs: Store) -> None:
    table = LogTable.for_path(spark, filled(logs, "t").url)
    for given in ({"start": 1}, {"end": 0}, {"partitions": 0}):
        (name,) = given
        with pytest.raises(InvalidRequestError, match=f"{name}=. is of no use with view='latest'"):
            table.to_df(**given, view="latest")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match=name):
            table.create_view("v", **given, view="latest")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="'records' or 'latest', not 'newest'"):
        table.to_df(view="newest")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="nope"):
        table.to_df(view="latest", columns=["nope"])
    keyless = logs.create_topic("keyless", schema={"n": pa.int64()})
    with pytest.raises(InvalidRequestError, match="'keyless' has no key columns"):
        LogTable.for_path(spark, keyless.url).to_df(view="latest")


# --- the scheduled job -----------------------------------------------------------------------


@pytest.mark.usefixtures("on_executors")
def test_the_scheduled_job(
    spark: SparkSession, logs: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    place = logs.url.removeprefix("file://")
    users, orders = filled(logs, "users", COMPACT), filled(logs, "orders", {"retention.ms": -1})
    main([place, "--dry-run"])
    assert "orders: nothing was changed, retention would remove 0" in capsys.readouterr().out
    assert main([place, "--output", "json", "--no-vacuum"]) is None  # type: ignore[func-returns-value]
    first, second = json.loads(capsys.readouterr().out)
    assert (first["topic"], second["topic"]) == ("orders", "users")
    assert (first["compaction"], first["vacuum"], first["error"]) == (None, None, None)
    assert second["compaction"]["records_removed"] == 64
    assert users.count() == 30
    assert orders.segments().num_rows == 3

    broken = Path(place) / "orders" / "_manifest"
    max(broken.glob("0*.json")).write_bytes(b"{")
    with pytest.raises(LogTableError, match=r"failed for 1 of 2 topic\(s\): orders"):
        main([place])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("orders: FAILED: CorruptTopicError: ")
    assert lines[1].startswith("users: compaction removed 0 records")
    main([f"{place}/", "--topic", "users", "--storage-options", "{}"])
    assert capsys.readouterr().out.startswith("users: ")
    assert spark.range(1).count() == 1  # the job did not stop the session


def test_arguments_that_the_scheduled_job_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRequestError, match="there is no topic below"):
        main([str(tmp_path)])
    for options in ("{", "[]"):
        with pytest.raises(InvalidRequestError, match="--storage-options"):
            main([str(tmp_path), "--storage-options", options])
    twice = [str(tmp_path), "--output", "text", "--output", "json"]
    for wrong, why in (([], "store"), (twice, "--output takes one value, and two are given")):
        with pytest.raises(SystemExit) as ended:
            main(wrong)
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


def test_jobs_keep_what_a_protected_group_has_not_read(spark: SparkSession, logs: Store) -> None:
    config = {"retention.ms": 1}
    topic, other = filled(logs, "t", config), filled(logs, "u", config)
    ends = topic.end_offsets()
    topic.group("slow").commit({0: 0, 1: ends[1], 2: ends[2]})
    table = LogTable.for_path(spark, topic.url)
    with pytest.raises(InvalidRequestError, match="no group 'typo'"):
        table.maintain(protect_groups=["typo"])
    assert table.apply_retention(groups=["slow"]).log_starts == {1: ends[1], 2: ends[2]}
    with pytest.raises(InvalidRequestError, match="no topic has a group 'typo'"):
        main([logs.url, "--protect-group", "typo"])
    assert other.start_offsets() == dict.fromkeys(range(3), 0)
    main([logs.url, "--protect-group", "slow", "--no-vacuum"])
    assert topic.start_offsets() == {0: 0, 1: ends[1], 2: ends[2]}
    assert other.start_offsets() == other.end_offsets()
    assert table.maintain(vacuum=False).retention is not None
    assert topic.start_offsets() == ends
