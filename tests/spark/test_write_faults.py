"""Tasks, commits and drivers that fail: no record is lost or duplicated, and no file that a
commit may name is removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable import (
    CommitConflictError,
    CommitUnknownError,
    LogTableError,
    StorageError,
    Store,
    Topic,
)
from pylogtable.runtime import Runtime
from pylogtable.storage.open import open_store
from pyspark_pylogtable.batch.writer import BatchWriter
from pyspark_pylogtable.tasks import staging
from pyspark_pylogtable.tasks.staging import Written
from tests.builders import kafka, limited, rows
from tests.spark.faults import (
    Decide,
    DriverFaults,
    crash_after_commit,
    is_commit,
    on_store,
    store_with,
    unknown_commit,
    unsent_commit,
)
from tests.spark.support import failure
from tests.spark.writes import data_files, files, plan, save, stage, travelled, write
from tests.stores import Fault, SimulatedCrash

pytestmark = pytest.mark.records_in("files")


@pytest.fixture
def topic(logs: Store) -> Topic:
    return logs.create_topic("t", 2)


def staged_by_two(tmp_path: Path, **options: Any) -> tuple[BatchWriter, list[Written | None]]:
    writer = plan(tmp_path / "logs" / "t", kafka([]).schema, **options)
    return writer, [stage(writer, kafka(["a", "b"])), stage(writer, kafka(["c"]))]


# --- tasks -----------------------------------------------------------------------------------


def test_failed_task_leaves_no_record_and_no_file_of_finished_tasks(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    """Three tasks on two cores. The second one fails once the first has finished, the third has
    begun, and a segment of its own exists. Spark kills the process of the failed task, so its files
    may stay until vacuum. The files of the first task must be gone.

    The tasks are processes that see only each other's files. The second waits for those files, for
    a minute at most; after that the test fails with another error."""
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


def test_failing_task_removes_its_files(topic: Topic, tmp_path: Path) -> None:
    writer = plan(tmp_path / "logs" / "t", kafka([]).schema)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from kafka([str(number) for number in range(70_000)]).to_batches()
        raise RuntimeError("the stream broke")

    with pytest.raises(RuntimeError, match="the stream broke"):
        writer.write(batches())
    assert data_files(tmp_path) == []


def test_failing_task_removes_its_files_in_every_topic(logs: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        logs.create_topic(name)
    finished: list[int] = []

    def fail_on_c(verb: str, key: str) -> Fault | None:
        if verb != "open_output" or not key.startswith("c/"):
            return None
        finished.append(len(data_files(tmp_path)))
        return Fault.REFUSE

    table = kafka(["x", "y", "z"], topic=pa.array(["a", "b", "c"]))
    writer = on_store(
        plan(tmp_path / "logs", table.schema), store_with(tmp_path / "logs", fail_on_c)
    )
    with pytest.raises(StorageError, match="open_output"):
        writer.write(iter(table.to_batches()))
    assert finished == [2]
    assert data_files(tmp_path) == []


def test_the_encoders_accept_a_bounded_number_of_row_groups() -> None:
    release = Event()
    with staging._Encoders(staging.ENCODERS) as encoders:
        accepted = [encoders.submit(release.wait) for _ in range(staging.MAX_ENCODING)]
        one_more = Thread(target=lambda: accepted.append(encoders.submit(release.wait)))
        one_more.start()
        one_more.join(0.2)
        assert one_more.is_alive()
        assert len(accepted) == staging.MAX_ENCODING
        release.set()
        one_more.join(60)
    assert all(future.result() for future in accepted)
    assert len(accepted) == staging.MAX_ENCODING + 1


def test_all_topics_of_a_task_share_its_encoders(logs: Store, tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(20)]
    for name in names:
        logs.create_topic(name)
    threads: list[int] = []

    def count_threads(verb: str, key: str) -> None:
        if verb == "open_output":
            threads.append(threading.active_count())

    tables = [kafka([str(n)], topic=pa.array([names[n % 20]])) for n in range(100)]
    writer = plan(tmp_path / "logs", tables[0].schema)
    counted = limited(store_with(tmp_path / "logs", count_threads), task_waiting_bytes=1)
    counting = on_store(writer, counted)
    before = threading.active_count()
    message = counting.write(batch for table in tables for batch in table.to_batches())
    assert len(threads) >= len(names)
    assert max(threads) <= before + staging.ENCODERS
    writer.commit([message])
    assert sum(logs.topic(name).count() for name in names) == 100


# --- commits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False])
def test_after_an_unknown_commit_no_file_is_removed(
    topic: Topic, tmp_path: Path, landed: bool
) -> None:
    writer, messages = staged_by_two(tmp_path)
    before = data_files(tmp_path)
    with pytest.raises(CommitUnknownError):
        on_store(writer, store_with(tmp_path / "logs", unknown_commit(landed=landed))).commit(
            messages
        )
    travelled(writer).abort(messages)
    assert data_files(tmp_path) == before
    assert len(before) > 0
    assert topic.count() == (3 if landed else 0)
    assert len(rows(topic.read())) == topic.count()


def test_after_a_commit_that_certainly_failed_the_files_are_removed(
    topic: Topic, tmp_path: Path
) -> None:
    writer, messages = staged_by_two(tmp_path)
    with pytest.raises(StorageError, match="the disk is full"):
        on_store(writer, store_with(tmp_path / "logs", unsent_commit())).commit(messages)
    assert data_files(tmp_path) == []
    travelled(writer).abort(messages)
    assert topic.count() == 0


def test_a_crash_during_the_commit_leaves_the_files(topic: Topic, tmp_path: Path) -> None:
    writer, messages = staged_by_two(tmp_path)
    with pytest.raises(SimulatedCrash):
        on_store(writer, store_with(tmp_path / "logs", crash_after_commit())).commit(messages)
    travelled(writer).abort(messages)
    assert topic.count() == len(rows(topic.read())) == 3


def test_abort_removes_only_the_staged_files(topic: Topic, tmp_path: Path) -> None:
    topic.append(kafka(["old"]))
    before = files(tmp_path)
    writer, messages = staged_by_two(tmp_path)
    assert len(files(tmp_path)) > len(before)
    travelled(writer).abort([messages[0], None, messages[1]])
    assert files(tmp_path) == before
    assert rows(topic.read(), "key") == [b"old"]


def test_abort_without_messages_does_nothing(topic: Topic, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("lands", ["before planning", "before the commit", "after the commit"])
def test_late_write_of_a_dead_driver_brings_no_row_twice(
    topic: Topic, tmp_path: Path, lands: str
) -> None:
    """The next driver has asked for the last txn before it landed, and says so."""
    path = tmp_path / "logs" / "t"
    objects = DriverFaults(
        open_store(tmp_path / "logs", None),
        lambda verb, key: Fault.LATE if is_commit("t", verb, key) else None,
    )
    writer, messages = staged_by_two(tmp_path, txnAppId="job", txnVersion=1, txnExpectedLast="none")
    with pytest.raises(CommitUnknownError):
        on_store(writer, Store(objects, Runtime(patience_seconds=0))).commit(messages)
    late = data_files(tmp_path)
    options = {"txnAppId": "job", "txnVersion": 2, "txnExpectedLast": topic.last_txn("job")}
    if lands == "before planning":
        objects.land()
        with pytest.raises(CommitConflictError, match="is 1 in version 1, and expected_last is No"):
            plan(path, kafka([]).schema, **options)
    else:
        writer, messages = staged_by_two(tmp_path, **options)
        if lands == "before the commit":
            objects.land()
            with pytest.raises(CommitConflictError, match="another append has landed since"):
                travelled(writer).commit(messages)
            travelled(writer).abort(messages)
        else:
            travelled(writer).commit(messages)
            objects.land()
    assert topic.count() == 3
    assert topic.last_txn("job") == (2 if lands == "after the commit" else 1)
    if lands != "after the commit":
        assert data_files(tmp_path) == late
        write(path, [kafka(["z"])], **{**options, "txnExpectedLast": 1})
    assert topic.verify(data=True)


def test_commit_in_another_process_gives_the_same_result(
    topic: Topic, logs: Store, tmp_path: Path
) -> None:
    writer, messages = staged_by_two(tmp_path)
    travelled(travelled(writer)).commit([travelled(travelled(m)) for m in messages])
    here = logs.create_topic("here", 2)
    here.append(kafka(["a", "b"]).to_batches() + kafka(["c"]).to_batches())
    columns = ("partition", "offset", "key")
    assert rows(topic.read(), *columns) == rows(here.read(), *columns)


@pytest.mark.parametrize(
    ("fault", "outcome", "left"),
    [(unsent_commit("c"), "was not", 0), (unknown_commit("c", landed=False), "may be", 1)],
    ids=["refused", "unknown"],
)
def test_when_a_later_topic_fails_the_error_names_those_already_written(
    logs: Store, tmp_path: Path, fault: Decide, outcome: str, left: int
) -> None:
    for name in ("a", "b", "c", "d"):
        logs.create_topic(name)
    table = kafka(["1", "2", "3", "4"], topic=pa.array(["d", "c", "b", "a"]))
    options = {"txnAppId": "job", "txnVersion": 1}
    writer = plan(tmp_path / "logs", table.schema, **options)
    messages = [stage(writer, table)]
    expected = f"topic 'c' {outcome} written; already written: a, b"
    with pytest.raises(LogTableError, match=expected) as seen:
        on_store(writer, store_with(tmp_path / "logs", fault)).commit([*messages])
    assert "With txnAppId and txnVersion the same write can be repeated" in str(seen.value)
    assert [logs.topic(name).count() for name in "abcd"] == [1, 1, 0, 0]
    assert len(data_files(tmp_path / "logs" / "c")) == left
    assert data_files(tmp_path / "logs" / "d") == []
    write(tmp_path / "logs", [table], **options)
    assert [logs.topic(name).count() for name in "abcd"] == [1, 1, 1, 1]


def test_topic_recreated_during_a_job_gets_none_of_its_rows(
    topic: Topic, logs: Store, tmp_path: Path
) -> None:
    writer, messages = staged_by_two(tmp_path)
    logs.delete_topic("t")
    anew = logs.create_topic("t", 2)
    with pytest.raises(pylogtable.InvalidRequestError, match="created again"):
        travelled(writer).commit(messages)
    assert (anew.count(), anew.version) == (0, anew.describe().version)


def test_topic_deleted_during_a_job_stays_deleted(logs: Store, tmp_path: Path) -> None:
    writer, messages = staged_by_two(tmp_path, partitions=2)
    logs.delete_topic("t")
    with pytest.raises(pylogtable.TopicNotFoundError, match="there is no topic at"):
        travelled(writer).commit(messages)
    assert logs.topics() == []
    travelled(writer).abort([*messages, None])
    assert logs.topics() == []


def test_abort_continues_if_one_topic_was_deleted(logs: Store, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        logs.create_topic(name)
    table = kafka(["x", "y", "z"], topic=pa.array(["a", "b", "c"]))
    writer = plan(tmp_path / "logs", table.schema)
    message = stage(writer, table)
    logs.delete_topic("a")
    travelled(writer).abort([message, None])
    assert data_files(tmp_path / "logs") == []
    assert logs.topics() == ["b", "c"]


# --- a driver that retries a task and is killed ----------------------------------------------

DRIVER = """
import json, os, signal, sys
from pyspark import TaskContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.batch.writer import BatchWriter
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
rows = spark.read.format("pylogtable").load(path + "/retried").count()
print(json.dumps({"rows": rows, "home": _find_spark_home()}), flush=True)

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
write = write.option("inline.max.bytes", 0)  # the killed driver leaves files behind
write.option("txnAppId", "job").option("txnVersion", 1).save(path + "/killed")
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    """The store after a driver retried a task and was killed before a commit. It ran as after
    `pip install`: on the Spark home that comes with pyspark, and without `register`."""
    folder = tmp_path_factory.mktemp("driver")
    script = folder / "driver.py"
    script.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "logs")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder / "told.json").write_text(done.stdout.splitlines()[0])
    return pylogtable.open(folder / "logs"), folder / "logs"


def test_spark_home_as_pip_installs_it_writes_and_reads(driver: tuple[Store, Path]) -> None:
    """The other tests run on a home that starts Python faster, see `tests/spark_home.py`."""
    told = json.loads((driver[1].parent / "told.json").read_text())
    assert told["rows"] == 30_000
    assert Path(told["home"]).samefile(Path(pyspark.__file__).parent)
    assert (Path(told["home"]) / "python" / "lib" / "pyspark.zip").exists()


def test_retried_task_writes_each_row_once(driver: tuple[Store, Path]) -> None:
    store, _ = driver
    topic = store.topic("retried")
    assert sorted(map(int, rows(topic.read(), "value"))) == list(range(30_000))
    assert rows(topic.history(), "operation") == ["append", "create"]
    assert topic.verify(data=True)


def test_rerun_after_a_driver_was_killed_before_its_commit_appends_once(
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
