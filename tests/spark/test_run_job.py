"""`pylogtable-run-job`: the loop in the driver, heavy work on executors."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from pylogtable import InvalidRequestError, Store
from pylogtable.format.paths import commit_path
from pylogtable.run import JobRun, Loop, RunOptions
from pylogtable.run.lanes import OneThread
from pyspark_pylogtable.table.jobs import where_it_pays
from pyspark_pylogtable.table.run_job import main
from tests.builders import kafka, limited
from tests.kafka.broker import free_ports
from tests.library.metrics.values import Values
from tests.spark.conftest import CONNECT
from tests.spark.test_jobs import COMPACT, filled, jobs_started, state


@pytest.mark.skipif(CONNECT, reason="the jobs of a Spark Connect server cannot be counted")
def test_jobs_of_the_loop_run_on_executors(spark: SparkSession, logs: Store) -> None:
    here, there = filled(logs, "here", COMPACT), filled(logs, "there", COMPACT)
    here.compact()
    runs: list[JobRun] = []
    options = RunOptions(topics=["there"], jobs=["compaction"], on_job=runs.append)
    on_executors = limited(logs, driver_segments=-1, small_work_bytes=-1)
    loop = Loop(on_executors, options, where_it_pays(spark), OneThread())
    assert jobs_started(spark, loop.tick) > 0
    assert [(run.job, run.error, run.has_changed) for run in runs] == [("compaction", None, True)]
    assert state(there) == state(here)


class Ending(io.StringIO):
    """An output that ends the process, as a scheduler does, when something was printed."""

    def write(self, text: str) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return super().write(text)


def test_run_job_ends_at_sigterm(logs: Store) -> None:
    topic = logs.create_topic("t", config={"publish.formats": "delta"})
    topic.append(kafka(["a", "b"]))
    with redirect_stdout(Ending()) as printed:
        main([logs.url.removeprefix("file://"), "--every", "20ms", "--output", "json"])
    first = json.loads(printed.getvalue().splitlines()[0])
    assert (first["topic"], first["job"]) == ("t", "publication")
    assert topic.describe().published[0].lag_records == 0


def test_run_job_refuses_a_group_that_no_topic_has(logs: Store) -> None:
    """It is most likely misspelt, and retention would remove what the real one has not read."""
    logs.create_topic("t").group("slow").commit({0: 0})
    with pytest.raises(InvalidRequestError, match="no topic has a group 'slwo'"):
        main([logs.url.removeprefix("file://"), "--protect-group", "slwo"])


def test_run_job_prints_what_failed(logs: Store) -> None:
    logs.create_topic("t", config={"publish.formats": "delta"})
    folder = Path(logs.url.removeprefix("file://"))
    (folder / "t" / commit_path(0)).write_text("{")
    with redirect_stdout(Ending()) as printed:
        main([str(folder), "--every", "20ms", "--jobs", "merge, publication", "--output", "json"])
    first = json.loads(printed.getvalue().splitlines()[0])
    assert (first["topic"], first["job"], first["report"]) == ("t", "look", None)
    assert first["error"].startswith("CorruptTopicError: ")


def test_run_job_once_does_what_the_maintenance_job_does(
    logs: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(logs, "users", COMPACT)
    main([logs.url.removeprefix("file://"), "--once", "--jobs", "compaction", "--output", "json"])
    (report,) = json.loads(capsys.readouterr().out)
    assert report["compaction"]["records_removed"] == 64
    assert report["merge"] is report["vacuum"] is None


@pytest.fixture
def kept_level() -> Iterator[None]:
    logger = logging.getLogger("pylogtable")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.usefixtures("kept_level")
@pytest.mark.parametrize("form", ["text", "json"])
def test_run_job_logs_what_is_done_if_it_is_asked_to(
    logs: Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """As the command line does, in a process in which nobody has set up logs."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    arguments = [logs.url.removeprefix("file://"), "--once", "--jobs", "publication"]
    arguments += ["--log-format", form]
    topic = logs.create_topic("t", config={"publish.formats": "delta"})
    topic.append(kafka(["a"]))
    main(arguments)
    assert capsys.readouterr().err == ""
    topic.append(kafka(["b"]))
    main([*arguments, "--log-level", "info"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "table of topic t" in line]
    if form == "json":
        assert json.loads(line)["logger"] == "pylogtable.publish.publisher"
    else:
        assert " INFO " in line


class Scraping(Ending):
    """An output that reads the metrics when something was printed, and then ends the process."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.found = Values("")
        self._port = port

    def write(self, text: str) -> int:
        with urlopen(f"http://127.0.0.1:{self._port}/metrics") as reply:
            self.found = Values(reply.read().decode())
        return super().write(text)


def test_run_job_serves_metrics(logs: Store) -> None:
    topic = logs.create_topic("t", config={"publish.formats": "delta"})
    topic.append(kafka(["a", "b"]))
    (port,) = free_ports(1)
    folder = logs.url.removeprefix("file://")
    with redirect_stdout(Scraping(port)) as printed:
        main([folder, "--every", "20ms", "--output", "json", "--metrics-port", str(port)])
    assert printed.found.of("build_info", command="run", store=logs.url) == 1
    assert printed.found.of("topic_records", topic="t") == 2
    assert printed.found.of("job_runs_total", job_name="publication", outcome="ok") == 1


def test_run_job_that_ends_serves_no_metrics(
    logs: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([logs.url.removeprefix("file://"), "--once", "--metrics-port", "0"])
    assert "--metrics-port is for a job that goes on" in capsys.readouterr().err
