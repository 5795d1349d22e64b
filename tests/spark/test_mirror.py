"""Mirrors to another store: files that executors copy, and the scheduled job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, Store, Topic
from pyspark_pylogtable import LogTable
from pyspark_pylogtable.table.mirror_job import main
from tests.builders import IN_FILES, kafka, limited
from tests.spark.conftest import CONNECT
from tests.spark.test_jobs import jobs_started


def filled(logs: Store, name: str) -> Topic:
    """Files in two partitions, and records in a commit."""
    topic = logs.create_topic(name, partitions=2)
    topic.alter(config=IN_FILES)
    for value in "ab":
        topic.append(kafka([f"k{n}" for n in range(20)], [value] * 20))
    topic.alter(config={"inline.max.bytes": 16384})
    topic.append(kafka(["k1"], ["c"]))
    return topic


@pytest.fixture
def backup(tmp_path: Path) -> str:
    return str(tmp_path / "backup")


@pytest.mark.skipif(CONNECT, reason="the jobs of a Spark Connect server cannot be counted")
def test_few_files_are_copied_by_the_driver_and_many_by_a_spark_job(
    spark: SparkSession, logs: Store, backup: str
) -> None:
    topic = filled(logs, "t")
    topic.group("billing").commit({0: 3})
    table = LogTable.for_path(spark, topic.url)
    assert jobs_started(spark, lambda: table.mirror(backup)) == 0
    table = LogTable(spark, topic.url, limited(topic, driver_copy_bytes=0))
    assert jobs_started(spark, lambda: table.mirror(backup)) == 0  # nothing is new
    reports = []

    def mirror() -> None:
        reports.append(
            table.mirror(
                backup, name="whole", groups=True, retention="own", config={"retention.ms": -1}
            )
        )

    assert jobs_started(spark, mirror) > 0
    assert (reports[0].records, reports[0].groups) == (41, {"billing": {0: 3}})
    assert reports[0].files_copied == 4
    for name in ("t", "whole"):
        copy = pylogtable.open(backup).topic(name)
        assert topic.compare(copy)
        assert copy.verify(data=True)


def test_store_in_memory_is_refused(spark: SparkSession, logs: Store) -> None:
    table = LogTable.for_path(spark, filled(logs, "t").url)
    with pytest.raises(InvalidRequestError, match="memory of this process"):
        table.mirror("memory://copies")


def test_job_mirrors_all_topics_and_fails_at_the_end(
    spark: SparkSession, logs: Store, backup: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = filled(logs, "good")
    filled(logs, "bad")
    copies = pylogtable.open(backup)
    copies.create_topic("bad", partitions=2)
    with pytest.raises(LogTableError, match=r"the mirror failed for 1 of 2 topic\(s\): bad"):
        main([logs.url, backup])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("bad: FAILED: InvalidRequestError: the topic at ")
    assert said[1].startswith("good: 41 records copied, ")
    assert good.compare(copies.topic("good"))
    main([logs.url, backup, "--topic", "good", "--output", "json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["topic"], row["records"], row["error"]) == ("good", 0, None)


def test_job_says_what_is_wrong_before_it_starts(logs: Store, backup: str) -> None:
    with pytest.raises(InvalidRequestError, match="there is no topic below"):
        main([logs.url, backup])
    with pytest.raises(InvalidRequestError, match="--to-storage-options is not JSON"):
        main([logs.url, backup, "--to-storage-options", "{secret"])
    with pytest.raises(InvalidRequestError, match="'x' is not name=value"):
        main([logs.url, backup, "--config", "x"])
    with pytest.raises(InvalidRequestError, match=r"--config retention.ms is given twice"):
        main([logs.url, backup, "--config", "retention.ms=1", "--config", "retention.ms=2"])
