"""Spark with the jars of Delta and Iceberg, and servers that it reads from, those that are there.
`make test-engines` brings them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.clouds.servers import ACCOUNT, ACCOUNT_KEY, KEY, KINDS, REGION, SECRET, Server, running
from tests.engines.jars import HADOOP, hadoop_folder
from tests.maven import missing

JARS = "PYLOGTABLE_ENGINE_JARS"


@pytest.fixture(scope="session")
def jars() -> Path:
    folder = os.environ.get(JARS)
    if not folder:
        pytest.skip("no jars of Delta and Iceberg: make test-engines brings them")
    return Path(folder)


@pytest.fixture(scope="session")
def servers(
    jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Server | str]]:
    """Servers that Spark can read from; for one that is not there, the reason."""
    with ExitStack() as until_end:
        found: dict[str, Server | str] = {}
        for name, coordinates in HADOOP.items():
            kind = KINDS[name]
            program = kind.found()
            if not program:
                found[name] = (
                    f"no {name}: make test-engines brings one, or `{kind.way}`, and "
                    f"{kind.variable} names the program"
                )
            elif lacking := missing(coordinates, hadoop_folder(jars)):
                found[name] = f"no {', '.join(lacking)}: make test-engines fetches them"
            else:
                folder = tmp_path_factory.mktemp(name)
                found[name] = until_end.enter_context(running(program, folder, kind))
        yield found


@pytest.fixture(scope="session")
def server_of(servers: Mapping[str, Server | str]) -> Callable[[str], Server]:
    """The server of a name; a test of a missing one is skipped."""

    def get(name: str) -> Server:
        server = servers[name]
        if isinstance(server, str):
            pytest.skip(server)
        return server

    return get


@pytest.fixture(scope="session")
def spark(
    jars: Path,
    servers: Mapping[str, Server | str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SparkSession]:
    loaded = [*jars.glob("*.jar"), *hadoop_folder(jars).glob("*.jar")]
    home = tmp_path_factory.mktemp("engines")
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(path) for path in sorted(loaded)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")  # 50 tasks otherwise
        .config("spark.ui.enabled", "false")
    )
    for name, server in servers.items():
        if isinstance(server, Server):
            builder = builder.config(map=HADOOP_CONF[name](server))
    session = builder.getOrCreate()
    yield session
    session.stop()


def s3a_conf(server: Server) -> dict[str, str]:
    """The settings of the guide, and none for `s3://`."""
    return {
        "spark.hadoop.fs.s3a.endpoint": server.url,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET,
    }


def abfs_conf(server: Server) -> dict[str, str]:
    """The key of the account. All other settings are for Azurite: it has no TLS here, and does not
    know the API of Data Lake, which `hadoop-azure` uses unless it is told to use that of blobs."""
    key = f"spark.hadoop.fs.azure.account.key.{ACCOUNT}.dfs.core.windows.net"
    return {
        key: ACCOUNT_KEY,
        "spark.hadoop.fs.azure.abfs.endpoint": f"127.0.0.1:{server.port}",
        "spark.hadoop.fs.azure.always.use.https": "false",
        "spark.hadoop.fs.azure.account.hns.enabled": "false",
        "spark.hadoop.fs.azure.fns.account.service.type": "BLOB",
    }


def gs_conf(server: Server) -> dict[str, str]:
    """Hadoop does not know the class by itself. All other settings are for the emulator."""
    return {
        "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "spark.hadoop.fs.gs.storage.root.url": f"{server.url}/",
        "spark.hadoop.fs.gs.project.id": "test",
        "spark.hadoop.google.cloud.auth.service.account.enable": "false",
        "spark.hadoop.google.cloud.auth.null.enable": "true",
    }


HADOOP_CONF = {"versitygw": s3a_conf, "azurite": abfs_conf, "fake-gcs-server": gs_conf}
