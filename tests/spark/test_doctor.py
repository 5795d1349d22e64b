"""`doctor` in a Spark session: what works, what does not, and why. The rules of its advice are in
tests/spark_unit/test_diagnosis.py; test_smoke.py has it in a Connect session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable.cli.app import main
from pyspark_pylogtable import SparkReport, doctor
from tests.builders import kafka
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET

DRIVER = [
    "driver: " + name
    for name in (
        "place",
        "list",
        "create",
        "read",
        "put-if-absent",
        "race",
        "listed",
        "replace",
        "stream",
        "clock",
        "delete",
    )
]


def statuses(report: SparkReport) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}


def test_all_works_on_a_disk_and_the_store_is_left_unchanged(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = pylogtable.open(tmp_path / "logs")
    store.create_topic("t").append(kafka(["a"]))
    before = sorted(tmp_path.rglob("*"))
    report = doctor(spark, str(tmp_path / "logs"))
    assert report
    assert list(statuses(report)) == [
        "session",
        "workers",
        "python",
        "pyspark",
        "pyarrow",
        "pandas",
        "pylogtable",
        "registration",
        *DRIVER,
        "workers: list",
        "workers: read",
        "workers: put-if-absent",
        "workers: clock",
        "workers: race",
        "write",
        "read",
        "native read",
    ]
    assert set(statuses(report).values()) == {"ok"}, str(report)
    assert sorted(tmp_path.rglob("*")) == before
    assert str(report).endswith("works in this Spark session")
    assert "<td>native read</td><td>ok</td>" in report._repr_html_()


@pytest.mark.deep
def test_s3_without_hadoop_is_read_by_python(spark: SparkSession, s3_endpoint: str) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    report = doctor(spark, f"s3://{S3_BUCKET}/doctor-spark", storage_options=options)
    found = statuses(report)
    # moto looks first and writes later: whether it errs in races is a matter of luck.
    found = {name: status for name, status in found.items() if not name.endswith("race")}
    assert found.pop("native read") == "warning"
    assert set(found.values()) == {"ok"}, str(report)
    assert found["credentials"] == found["s3fs"] == "ok"
    assert "hadoop-aws" in report.checks[-1].advice
    assert S3_SECRET not in str(report)
    left = pylogtable.open(f"s3://{S3_BUCKET}/doctor-spark", storage_options=options)
    assert list(left._store.list()) == []


def test_dead_store_ends_soon_and_is_named_on_both_sides(spark: SparkSession) -> None:
    """Each side asks once: a driver without a way to the store tells nothing of the workers."""
    options = {
        "key": S3_KEY,
        "secret": S3_SECRET,
        "endpoint_url": "http://127.0.0.1:9",
        "timeout_seconds": 1,
    }
    report = doctor(spark, "s3://bucket/logs", storage_options=options)
    failed = {check.name: check for check in report.checks if check.status == "failed"}
    assert list(failed) == ["driver: list", "workers: list"]
    for check in failed.values():
        assert "does not answer" in check.advice
    assert S3_SECRET not in str(report)


def test_path_that_the_workers_cannot_write_is_not_a_place_to_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    report = doctor(spark, str(tmp_path / "nowhere"))
    assert statuses(report)["driver: place"] == "failed"
    assert statuses(report)["workers: place"] == "failed"
    assert "write" not in statuses(report)


def test_command_line_tells_the_same_as_json(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["doctor", "--spark", "--output", "json"])
    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (found["url"], found["sound"]) == ("", True)
    assert [check["name"] for check in found["checks"]][-1] == "registration"
    assert main(["doctor", "--spark", str(tmp_path / "nowhere")]) == 1
    assert "does not work in this Spark session" in capsys.readouterr().out
