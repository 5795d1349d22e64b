"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, make_store

S3_KEY, S3_SECRET, S3_BUCKET = "AKIAKEYKEYKEY", "sEcReTsEcReT", "bucket"


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
