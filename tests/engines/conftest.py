"""Spark with the jars of Delta and Iceberg, and those of `hadoop-aws` where a server of S3 is.
`make test-engines` brings them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.clouds.servers import KEY, REGION, SECRET, Server, Versitygw, running
from tests.engines.jars import HADOOP_AWS, hadoop_aws_folder
from tests.maven import missing

JARS = "PYLOGTABLE_ENGINE_JARS"


@pytest.fixture(scope="session")
def jars() -> Path:
    folder = os.environ.get(JARS)
    if not folder:
        pytest.skip("no jars of Delta and Iceberg: make test-engines brings them")
    return Path(folder)


@pytest.fixture(scope="session")
def s3_server(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server | str]:
    """A server that Spark can read from, or why there is none."""
    program = Versitygw.found()
    if not program:
        yield (
            f"no versitygw: make test-engines builds one with `{Versitygw.way}`, and "
            f"{Versitygw.variable} names one that is there"
        )
    elif lacking := missing(HADOOP_AWS, hadoop_aws_folder(jars)):
        yield f"no {', '.join(lacking)}: make test-engines fetches them"
    else:
        with running(program, tmp_path_factory.mktemp("s3")) as server:
            yield server


@pytest.fixture(scope="session")
def spark(
    jars: Path, s3_server: Server | str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    loaded = list(jars.glob("*.jar"))
    conf: dict[str, str] = {}
    if isinstance(s3_server, Server):
        loaded += hadoop_aws_folder(jars).glob("*.jar")
        conf.update(s3a_conf(s3_server))
    home = tmp_path_factory.mktemp("engines")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(path) for path in sorted(loaded)))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config(map=conf)
        .getOrCreate()
    )
    yield session
    session.stop()


def s3a_conf(server: Server) -> Mapping[str, str]:
    """The settings of the guide, and none for `s3://`."""
    return {
        "spark.hadoop.fs.s3a.endpoint": server.url,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET,
    }
