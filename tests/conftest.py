"""Fixtures that several folders share, and how tests run side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, make_store
from tests.side_by_side import rank_of, unit_of
from tests.spark_home import spark_home

# Every JVM of the tests is young when it ends: to compile for the long run, and to collect garbage
# with several threads, costs more than it brings.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The processes of `pytest -n` inherit it.
if "SPARK_HOME" not in os.environ and (_home := spark_home()) is not None:
    os.environ["SPARK_HOME"] = _home.name

S3_KEY, S3_SECRET, S3_BUCKET = "AKIAKEYKEYKEY", "sEcReTsEcReT", "bucket"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    config.option.loadscopereorder = False
    return ByUnit(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def objects() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def store(objects: MemoryStore, clock: Clock) -> Store:
    return make_store(objects, clock)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 that lives in this process and has one bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=S3_KEY,
        aws_secret_access_key=S3_SECRET,
        region_name="us-east-1",
    ).create_bucket(Bucket=S3_BUCKET)
    yield url
    server.stop()
