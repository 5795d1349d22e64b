"""One server for a test module, and folders in it. Without a server the tests are skipped."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from pylogtable.storage.remote import RemoteStore
from tests.s3_server.server import BINARY, BUCKET, Server, environment, options, running

_folders = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    binary = os.environ.get(BINARY)
    if not binary:
        pytest.skip(f"no S3 server: make test-s3 builds one with Go, or {BINARY} names a versitygw")
    with running(binary, tmp_path_factory.mktemp("s3")) as one:
        yield one


@pytest.fixture
def place() -> str:
    """A folder of the bucket that no other test uses."""
    return f"{BUCKET}/f{next(_folders)}"


@pytest.fixture
def objects(server: Server, place: str) -> RemoteStore:
    return RemoteStore("s3", place, options(server.url))


@pytest.fixture
def url(server: Server, place: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store, for this process and those it starts."""
    for name, value in environment(server.url).items():
        monkeypatch.setenv(name, value)
    return f"s3://{place}"
