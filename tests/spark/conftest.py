"""One Spark session for all of these tests: classic, or Connect if `PYLOGTABLE_CONNECT` is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pylogtable
from tests.builders import StoreInFiles

# Spark's workers and planners are started by the JVM and must use this Python.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

CONNECT = bool(os.environ.get("PYLOGTABLE_CONNECT"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = _connect() if CONNECT else _classic(tmp_path_factory.mktemp("warehouse"))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.stop()


def _classic(warehouse: Path) -> SparkSession:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .getOrCreate()
    )
    # Many tests let queries fail on purpose; Spark would log each of them.
    session.sparkContext.setLogLevel("OFF")
    return session


def _connect() -> SparkSession:
    return SparkSession.builder.remote("local[2]").getOrCreate()


@pytest.fixture
def logs(tmp_path: Path, in_files: bool) -> pylogtable.Store:
    """A store on the local disk, where Spark's processes can see it."""
    store = pylogtable.open(tmp_path / "logs")
    return StoreInFiles(store._store, store._runtime) if in_files else store
