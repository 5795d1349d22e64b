"""A task on a machine that lacks what the driver has says what that is."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import pylogtable
from pylogtable import LogTableError, StorageError, TopicNotFoundError
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.tasks.driver import Driver
from tests.builders import IN_FILES, kafka
from tests.spark.writes import plan, stage, travelled

NO_CREDENTIALS = "cannot read s3://b/t/_head.json: NoCredentialsError: Unable to locate credentials"
ROWS = pa.table({"key": ["a"], "value": ["b"]})


def told(driver: Driver, error: LogTableError, url: str = "s3://b/t", note: str = "") -> str:
    with pytest.raises(type(error)) as caught, driver.explaining(url, note=note):
        raise error
    return str(caught.value)


def test_variables_of_the_driver_are_named_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    planned = pickle.dumps(Driver())
    assert b"the-" not in planned
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    said = told(pickle.loads(planned), StorageError(NO_CREDENTIALS), note=". It stays")
    assert "The driver has AWS_SECRET_ACCESS_KEY in its environment, and this" in said
    assert "spark.executorEnv.<NAME>" in said
    assert "environment variables of the cluster" in said
    assert said.endswith("It stays")


def test_executor_without_credentials_is_told_where_they_may_come_from() -> None:
    said = told(Driver(), StorageError(NO_CREDENTIALS))
    assert "this executor finds no credentials: give its machine a role" in said
    assert "spark.executorEnv.<NAME>" in said


def test_other_errors_stay_as_they_are() -> None:
    assert told(Driver(), StorageError("the disk is full")) == "the disk is full"
    assert told(Driver(), TopicNotFoundError("there is no topic")) == "there is no topic"
    with pytest.raises(ValueError, match="as it is"), Driver(frozenset({"AWS_X"})).explaining():
        raise ValueError("as it is")


def test_write_to_a_path_that_only_the_driver_has_is_refused(tmp_path: Path) -> None:
    """Otherwise the commit would name files that are on the executor's disk only."""
    writer = plan(tmp_path / "t", ROWS.schema, partitions=1, **IN_FILES)
    os.rename(tmp_path / "t", tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"Is the path shared by all machines") as caught:
        stage(writer, ROWS)
    assert str(tmp_path / "t") in str(caught.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_read_of_a_path_that_only_the_driver_has_is_no_data_loss(tmp_path: Path, fail: str) -> None:
    topic = pylogtable.open(tmp_path).create_topic("t", config=IN_FILES)
    topic.append(kafka(["a"]))
    source = DefaultSource({"path": str(tmp_path / "t"), "failOnDataLoss": fail})
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    os.rename(tmp_path / "t", tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"Is the path shared by all machines") as caught:
        list(travelled(reader).read(part))
    assert "DATA_LOSS" not in str(caught.value)


def test_a_write_whose_rows_name_their_topics_asks_for_the_path_too(tmp_path: Path) -> None:
    store = pylogtable.open(tmp_path / "logs")
    store.create_topic("t")
    writer = plan(tmp_path / "logs", ROWS.append_column("topic", pa.array(["t"])).schema)
    os.rename(tmp_path / "logs", tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"Is the path shared by all machines"):
        stage(writer, ROWS.append_column("topic", pa.array(["t"])))
