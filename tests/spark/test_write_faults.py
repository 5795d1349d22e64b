"""Tasks, commits and drivers that fail: no record is lost, none is doubled, and no file that a
commit may name is removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import (
    CommitUnknownError,
    LogTableError,
    StorageError,
    Store,
    Topic,
)
from pylogtable.write.stager import Stager, _Lane
from pyspark_pylogtable.tasks import writing
from pyspark_pylogtable.tasks.writing import BatchWriter, Written
from tests.builders import kafka, rows
from tests.disk import REFUSED, UNKNOWN, fail_commits
from tests.spark.support import failure
from tests.spark.writes import data_files, files, plan, save, stage, travelled, write


@pytest.fixture
def topic(logs: Store) -> Topic:
    return logs.create_topic("t", 2)


def staged_by_two(tmp_path: Path, **options: Any) -> tuple[BatchWriter, list[Written | None]]:
    writer = plan(tmp_path / "logs" / "t", kafka([]).schema, **options)
    return writer, [stage(writer, kafka(["a", "b"])), stage(writer, kafka(["c"]))]


# --- tasks -----------------------------------------------------------------------------------


def test_when_a_task_fails_no_record_is_left_and_no_file_of_those_that_finished(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    """Of three tasks on two cores the first has finished when the third begins; the second fails
    then, and not before a segment of it lies there. Spark kills its process, so these may stay, for
    vacuum to take; nothing of the first does.

    The tasks are processes that only see each other's files: the second looks for two of them, for
    a minute at most, after which its failure is another one."""
    topic = logs.create_topic("t", config={"segment.bytes": 100_000})
    third_began = tmp_path / "third-began"
    data = tmp_path / "logs" / "t"

    def fail_the_second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        import pyarrow.parquet as pq
        from pyspark import TaskContext

        def is_time() -> bool:
            firsts = (
                int(pq.read_table(file, columns=["value"], partitioning=None)["value"][0].as_py())
                for file in data.glob("partition=*/*.parquet")
            )
            return third_began.exists() and any(200_000 <= first < 400_000 for first in firsts)

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 2:
            third_began.touch()
            for _ in batches:
                pass
            return
        yield from batches
        if context.partitionId() == 1:
            deadline = time.monotonic() + 60
            while not is_time():
                assert time.monotonic() < deadline, "no third task, or no segment of the second"
                time.sleep(0.02)
            raise RuntimeError("the task failed")

    df = spark.range(0, 600_000, 1, 3).mapInArrow(fail_the_second, "id long")
    df = df.selectExpr("cast(id AS string) value")
    assert "the task failed" in failure(lambda: save(df, tmp_path / "logs" / "t"))
    assert topic.version == 0
    for name in data_files(tmp_path):
        left = [int(value) for value in pq.read_table(tmp_path / name)["value"].to_pylist()]
        assert 200_000 <= min(left) <= max(left) < 400_000
    save(spark.range(5).selectExpr("cast(id AS string) value"), tmp_path / "logs" / "t")
    assert topic.count() == 5


def test_a_batch_that_does_not_fit_removes_the_files_of_its_task(
    topic: Topic, tmp_path: Path
) -> None:
    writer = plan(tmp_path / "logs" / "t", kafka([]).schema)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from kafka([str(number) for number in range(70_000)]).to_batches()
        raise RuntimeError("the stream broke")

    with pytest.raises(RuntimeError, match="the stream broke"):
        writer.write(batches())
    assert data_files(tmp_path) == []


def test_a_task_over_several_topics_that_fails_removes_the_files_of_all(
    logs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        logs.create_topic(name)
    real = os.replace
    published: list[int] = []

    def replace(source: str, target: str) -> None:
        if str(target).endswith(".parquet"):
            published.append(len(data_files(tmp_path)))
            if len(published) == 3:
                raise REFUSED
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    table = kafka(["x", "y", "z"], topic=pa.array(["a", "b", "c"]))
    with pytest.raises(StorageError, match="No space left"):
        write(tmp_path / "logs", [table])
    assert published == [0, 1, 2]
    assert data_files(tmp_path) == []


def test_what_waits_for_the_encoders_is_bounded_for_all_topics_together(
    logs: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(20)]
    for name in names:
        logs.create_topic(name)
    monkeypatch.setattr(writing, "WAITING_BYTES", 1)
    real = Stager._encode
    handed, most = 0, 0

    def take(self: _Lane, whole_of: int | None) -> Any:
        nonlocal handed, most
        with lock:
            handed += 1
            most = max(most, handed)
        return take_really(self, whole_of)

    def encode(self: Stager, *args: Any) -> None:
        nonlocal handed
        time.sleep(0.005)
        real(self, *args)
        with lock:
            handed -= 1

    take_really, lock = _Lane.take, Lock()
    monkeypatch.setattr(_Lane, "take", take)
    monkeypatch.setattr(Stager, "_encode", encode)
    tables = [kafka([str(n)], topic=pa.array([names[n % 20]])) for n in range(100)]
    writer = plan(tmp_path / "logs", tables[0].schema)
    message = writer.write(batch for table in tables for batch in table.to_batches())
    assert most <= writing.HANDED_OVER + 1
    writer.commit([message])
    assert sum(logs.topic(name).count() for name in names) == 100


# --- commits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
def test_after_an_unknown_commit_nothing_is_deleted(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    writer, messages = staged_by_two(tmp_path)
    before = data_files(tmp_path)
    with monkeypatch.context() as patch:
        fail_commits(patch, tmp_path / "logs" / "t", UNKNOWN, lands=landed)
        with pytest.raises(CommitUnknownError):
            travelled(writer).commit(messages)
        travelled(writer).abort(messages)
    assert data_files(tmp_path) == before
    assert len(before) > 0
    assert topic.count() == (3 if landed else 0)
    assert len(rows(topic.read())) == topic.count()


def test_after_a_commit_that_provably_failed_the_files_are_removed(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, messages = staged_by_two(tmp_path)
    fail_commits(monkeypatch, tmp_path / "logs" / "t", REFUSED)
    with pytest.raises(StorageError, match="No space left"):
        travelled(writer).commit(messages)
    assert data_files(tmp_path) == []
    travelled(writer).abort(messages)
    assert topic.count() == 0


def test_an_error_that_proves_nothing_leaves_the_files(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, messages = staged_by_two(tmp_path)
    fail_commits(monkeypatch, tmp_path / "logs" / "t", MemoryError(), lands=True)
    with pytest.raises(MemoryError):
        travelled(writer).commit(messages)
    travelled(writer).abort(messages)
    assert topic.count() == len(rows(topic.read())) == 3


def test_abort_with_a_task_missing_removes_what_the_others_staged_and_nothing_else(
    topic: Topic, tmp_path: Path
) -> None:
    topic.append(kafka(["old"]))
    before = files(tmp_path)
    writer, messages = staged_by_two(tmp_path)
    assert len(files(tmp_path)) > len(before)
    travelled(writer).abort([messages[0], None, messages[1]])
    assert files(tmp_path) == before
    assert rows(topic.read(), "key") == [b"old"]


def test_abort_with_no_message_at_all_does_nothing(topic: Topic, tmp_path: Path) -> None:
    writer = plan(tmp_path / "logs" / "t", kafka([]).schema)
    before = files(tmp_path)
    writer.abort([None, None])
    assert files(tmp_path) == before


def test_two_drivers_that_commit_the_same_txn_append_once(topic: Topic, tmp_path: Path) -> None:
    first = staged_by_two(tmp_path, txnAppId="job", txnVersion=1)
    second = staged_by_two(tmp_path, txnAppId="job", txnVersion=1)
    for writer, messages in (first, second):
        travelled(writer).commit(messages)
    assert topic.count() == 3
    assert len(data_files(tmp_path)) == len(topic.segments())


def test_a_commit_in_a_fresh_process_gives_the_same_as_one_here(
    topic: Topic, logs: Store, tmp_path: Path
) -> None:
    writer, messages = staged_by_two(tmp_path)
    travelled(travelled(writer)).commit([travelled(travelled(m)) for m in messages])
    here = logs.create_topic("here", 2)
    here.append(kafka(["a", "b"]).to_batches() + kafka(["c"]).to_batches())
    columns = ("partition", "offset", "key")
    assert rows(topic.read(), *columns) == rows(here.read(), *columns)


@pytest.mark.parametrize(
    ("error", "fate", "left"), [(REFUSED, "was not", 0), (UNKNOWN, "may be", 1)]
)
def test_when_a_later_topic_fails_the_error_names_those_that_were_written(
    logs: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    fate: str,
    left: int,
) -> None:
    for name in ("a", "b", "c", "d"):
        logs.create_topic(name)
    table = kafka(["1", "2", "3", "4"], topic=pa.array(["d", "c", "b", "a"]))
    options = {"txnAppId": "job", "txnVersion": 1}
    with monkeypatch.context() as broken:
        fail_commits(broken, tmp_path / "logs" / "c", error)
        with pytest.raises(LogTableError, match=f"topic 'c' {fate} written, and a, b were") as seen:
            write(tmp_path / "logs", [table], **options)
    assert "With txnAppId and txnVersion the write can be repeated" in str(seen.value)
    assert [logs.topic(name).count() for name in "abcd"] == [1, 1, 0, 0]
    assert len(data_files(tmp_path / "logs" / "c")) == left
    assert data_files(tmp_path / "logs" / "d") == []
    write(tmp_path / "logs", [table], **options)
    assert [logs.topic(name).count() for name in "abcd"] == [1, 1, 1, 1]


def test_a_topic_made_anew_under_a_running_job_gets_none_of_its_rows(
    topic: Topic, logs: Store, tmp_path: Path
) -> None:
    writer, messages = staged_by_two(tmp_path)
    logs.delete_topic("t")
    anew = logs.create_topic("t", 2)
    with pytest.raises(pylogtable.InvalidRequestError, match="created anew"):
        travelled(writer).commit(messages)
    assert (anew.count(), anew.version) == (0, anew.describe().version)


def test_a_topic_deleted_under_a_running_job_stays_deleted(logs: Store, tmp_path: Path) -> None:
    writer, messages = staged_by_two(tmp_path, partitions=2)
    logs.delete_topic("t")
    with pytest.raises(pylogtable.TopicNotFoundError, match="there is no topic at"):
        travelled(writer).commit(messages)
    assert logs.topics() == []
    travelled(writer).abort([*messages, None])
    assert logs.topics() == []


def test_abort_goes_on_where_one_of_several_topics_was_deleted(logs: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        logs.create_topic(name)
    table = kafka(["x", "y", "z"], topic=pa.array(["a", "b", "c"]))
    writer = plan(tmp_path / "logs", table.schema)
    message = stage(writer, table)
    logs.delete_topic("a")
    travelled(writer).abort([message, None])
    assert data_files(tmp_path / "logs") == []
    assert logs.topics() == ["b", "c"]


# --- a driver with retries, and its death ----------------------------------------------------

DRIVER = """
import json, os, signal, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.tasks.writing import BatchWriter
import pylogtable

path = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

def fail_once(batches):
    task = TaskContext.get()
    for batch in batches:
        yield batch
    if task.partitionId() == 1 and task.attemptNumber() == 0:
        raise RuntimeError("once")

df = spark.range(0, 30000, 1, 3).mapInArrow(fail_once, "id long").selectExpr(
    "cast(id AS string) key", "cast(id AS string) value"
)
df.write.format("pylogtable").mode("append").option("partitions", 2).save(path + "/retried")
print(json.dumps({"without_register": True}), flush=True)

processes = [spark.sparkContext._gateway.proc.pid, os.getpid()]

class DiesBeforeCommit(BatchWriter):
    def commit(self, messages):
        assert all(message is not None for message in messages)
        for process in processes:
            os.kill(process, signal.SIGKILL)

class Dying(DefaultSource):
    @classmethod
    def name(cls):
        return "dying"

    def writer(self, schema, overwrite):
        writer = super().writer(schema, overwrite)
        writer.__class__ = DiesBeforeCommit
        return writer

spark.dataSource.register(Dying)
rows = spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) key", "cast(id AS string) value")
write = rows.write.format("dying").mode("append").option("partitions", 2)
write.option("txnAppId", "job").option("txnVersion", 1).save(path + "/killed")
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    """What a driver left behind that retried a task and was then killed before a commit."""
    folder = tmp_path_factory.mktemp("driver")
    script = folder / "driver.py"
    script.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "logs")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == {"without_register": True}
    return pylogtable.open(folder / "logs"), folder / "logs"


def test_a_task_that_is_tried_again_brings_each_row_once(driver: tuple[Store, Path]) -> None:
    store, _ = driver
    topic = store.topic("retried")
    assert sorted(map(int, rows(topic.read(), "value"))) == list(range(30_000))
    assert rows(topic.history(), "operation") == ["append", "create"]
    assert topic.verify(data=True)


def test_a_driver_killed_before_its_commit_leaves_no_record_and_a_rerun_appends_once(
    driver: tuple[Store, Path],
) -> None:
    store, path = driver
    topic = store.topic("killed")
    assert topic.count() == 0
    assert data_files(path / "killed") != []
    table = kafka([str(number) for number in range(100)])
    for _ in range(2):
        write(path / "killed", [table], txnAppId="job", txnVersion=1, partitions=2)
    assert sorted(map(int, rows(topic.read(), "value"))) == list(range(100))
    assert topic.verify(data=True)
