"""The cluster of these tests, and a checkout in which the guide's commands run.
`make test-cluster` brings the environments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Cluster, Environment, connect_server, standalone
from tests.documents import ROOT

ENVIRONMENT = "PYLOGTABLE_CLUSTER"
CLIENT = "PYLOGTABLE_CONNECT_CLIENT"
IN_CHECKOUT = ("pylogtable", "spark_ext", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = os.environ.get(ENVIRONMENT)
    if not folder:
        pytest.skip("no environment for a cluster: make test-cluster brings it")
    with standalone(Environment(Path(folder)), tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def connect(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # Not for the session: it has all cores of the cluster as long as it runs.
    with connect_server(cluster, tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="session")
def client() -> Path:
    """The Python of a client with pyspark-client, which has no JVM, and without pylogtable."""
    folder = os.environ.get(CLIENT)
    if not folder:
        pytest.skip("no environment for a Connect client: make test-cluster brings it")
    return Path(folder) / "bin" / "python"


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in IN_CHECKOUT:
        (folder / name).symlink_to(ROOT / name)
    return folder
