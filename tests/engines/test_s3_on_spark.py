"""Spark reads topics on S3 through `hadoop-aws`: which scheme, and which settings.

Hadoop keeps a file system for each scheme and bucket, a session its catalogs, and neither looks at
settings again. So each test has a bucket and a session of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pylogtable import Topic
from pyspark_pylogtable import LogTable, register
from tests.clouds.servers import KEY, REGION, SECRET, Server
from tests.engines.iceberg_catalog import hadoop_catalog
from tests.engines.jars import HADOOP
from tests.engines.topics import append, check, check_native, make_topic
from tests.maven import path_of
from tests.publish.plain_iceberg import rows

UNKNOWN_SCHEME = 'No FileSystem for scheme "s3"'
GUIDE = Path(__file__).parents[2] / "spark_ext" / "README.md"

_buckets = itertools.count()


@pytest.fixture
def server(server_of: Callable[[str], Server]) -> Server:
    return server_of("versitygw")


@pytest.fixture
def options(server: Server) -> dict[str, Any]:
    return server.options(server.url)


@pytest.fixture
def place(server: Server) -> str:
    """A folder in a new bucket, without a scheme."""
    bucket = f"engines{next(_buckets)}"
    server.make_bucket(bucket)
    return f"{bucket}/logs"


@pytest.fixture
def orders(place: str, options: dict[str, Any]) -> Topic:
    return make_topic(f"s3://{place}", storage_options=options)


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """With the settings of the guide for `s3a://`."""
    return spark.newSession()


@pytest.fixture
def knows_s3(spark: SparkSession) -> Iterator[SparkSession]:
    """Also with `spark.hadoop.fs.s3.impl`, which Spark hands to Hadoop as this does."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    yield spark.newSession()
    settings.unset("fs.s3.impl")


def test_guide_names_the_jars_that_are_tested() -> None:
    said = GUIDE.read_text(encoding="utf-8")
    for jar in HADOOP["versitygw"]:
        assert f"/jars/{Path(path_of(jar)).name}" in said


# --- Delta ---------------------------------------------------------------------------------------


def test_delta_table_at_s3a(session: SparkSession, orders: Topic, place: str) -> None:
    orders.publish(["delta"])
    session.sql(f"CREATE TABLE orders USING delta LOCATION 's3a://{place}/orders'")
    try:
        check(session.table("orders"), orders)
        append(orders, 1)
        orders.publish(["delta"])
        check(session.table("orders"), orders)
        assert session.sql("SELECT count(*) FROM orders VERSION AS OF 0").first() == (100,)
    finally:
        session.sql("DROP TABLE orders")


def test_delta_table_at_s3_is_refused(session: SparkSession, orders: Topic, place: str) -> None:
    orders.publish(["delta"])
    with pytest.raises(Exception, match=UNKNOWN_SCHEME):
        session.sql(f"CREATE TABLE orders USING delta LOCATION 's3://{place}/orders'")
    with pytest.raises(Exception, match=UNKNOWN_SCHEME):
        session.read.format("delta").load(f"s3://{place}/orders").count()


def test_delta_table_at_s3_if_hadoop_knows_it(
    knows_s3: SparkSession, orders: Topic, place: str
) -> None:
    orders.publish(["delta"])
    knows_s3.sql(f"CREATE TABLE orders USING delta LOCATION 's3://{place}/orders'")
    try:
        check(knows_s3.table("orders"), orders)
    finally:
        knows_s3.sql("DROP TABLE orders")


# --- Iceberg -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_iceberg_by_path_is_refused(
    session: SparkSession, orders: Topic, place: str, scheme: str
) -> None:
    orders.publish(["iceberg"])
    with pytest.raises(Exception, match=UNKNOWN_SCHEME):
        session.read.format("iceberg").load(f"{scheme}://{place}/orders").collect()


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_iceberg_by_path_if_hadoop_knows_s3(
    knows_s3: SparkSession, orders: Topic, place: str, scheme: str
) -> None:
    for number in (1, 2):
        orders.publish(["iceberg"])
        check(knows_s3.read.format("iceberg").load(f"{scheme}://{place}/orders"), orders)
        append(orders, number)


def test_iceberg_in_a_hadoop_catalog_is_refused(
    session: SparkSession, orders: Topic, place: str
) -> None:
    orders.publish(["iceberg"])
    with pytest.raises(Exception, match=UNKNOWN_SCHEME):
        session.table(f"{hadoop_catalog(session, f's3a://{place}')}.orders").collect()


def test_iceberg_in_a_hadoop_catalog_if_hadoop_knows_s3(
    knows_s3: SparkSession, orders: Topic, place: str
) -> None:
    orders.publish(["iceberg"])
    check(knows_s3.table(f"{hadoop_catalog(knows_s3, f's3a://{place}')}.orders"), orders)


def test_iceberg_in_a_catalog_with_its_own_client(
    session: SparkSession, server: Server, orders: Topic, place: str
) -> None:
    """It reads the files; the catalog looks for tables through Hadoop, as before."""
    orders.publish(["iceberg"])
    client = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": server.url,
        "s3.path-style-access": "true",
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
        "client.region": REGION,
    }
    check(session.table(f"{hadoop_catalog(session, f's3a://{place}', client)}.orders"), orders)
    with pytest.raises(Exception, match=UNKNOWN_SCHEME):
        session.table(f"{hadoop_catalog(session, f's3://{place}', client)}.orders").collect()


# --- the topic itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_log_table_is_a_native_scan(
    session: SparkSession, options: dict[str, Any], place: str, scheme: str
) -> None:
    """A warning, that Python reads instead, would be an error here."""
    register(session)
    address, appended = f"{scheme}://{place}/orders", 20_000
    df = session.range(appended).selectExpr("id", "cast(id AS double) amount")
    writer = df.write.format("pylogtable").mode("append")
    writer = writer.option("storageOptions", json.dumps(options))
    for _ in range(2):
        writer.options(partitions=2, key="id").save(address)
    table = LogTable.for_path(session, address, storage_options=options)
    check_native(table.to_df(), table.topic, "s3a")
    ids = sorted(row.id for row in table.to_df(columns=["id"]).collect())
    assert ids == sorted([*range(appended), *range(appended)])

    found = table.to_df(start=100, end=250, columns=["partition", "offset", "id"])
    some = table.topic.read(start=100, end=250, columns=["partition", "offset", "id"]).read_all()
    assert rows(found.toArrow(), some.schema) == rows(some, some.schema)
    assert some.num_rows == 300

    table.append(df.limit(500))
    assert table.merge().segments_in > 2
    check_native(table.to_df(), table.topic, "s3a")
    assert table.topic.count() == 2 * appended + 500
