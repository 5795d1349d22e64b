"""Spark reads topics on Azure through `hadoop-azure`, and on Google through the `gcs-connector`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pylogtable import Topic
from pyspark_pylogtable import LogTable
from tests.clouds.servers import ACCOUNT, BUCKET, Server
from tests.engines.topics import append, check, check_native, make_topic

#: The address of a bucket, as Hadoop spells it. `abfss://` would be TLS.
ROOTS = {
    "azurite": f"abfs://{BUCKET}@{ACCOUNT}.dfs.core.windows.net",
    "fake-gcs-server": f"gs://{BUCKET}",
}

_folders = itertools.count()


@pytest.fixture(params=ROOTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def options(name: str, server_of: Callable[[str], Server]) -> dict[str, Any]:
    server = server_of(name)
    return server.options(server.url)


@pytest.fixture
def address(name: str) -> str:
    return f"{ROOTS[name]}/f{next(_folders)}"


@pytest.fixture
def orders(address: str, options: dict[str, Any]) -> Topic:
    return make_topic(address, storage_options=options)


def test_delta_table(spark: SparkSession, orders: Topic, address: str) -> None:
    orders.publish(["delta"])
    spark.sql(f"CREATE TABLE orders USING delta LOCATION '{address}/orders'")
    try:
        check(spark.table("orders"), orders)
        append(orders, 1)
        orders.publish(["delta"])
        check(spark.table("orders"), orders)
    finally:
        spark.sql("DROP TABLE orders")


@pytest.mark.parametrize("name", ["fake-gcs-server"])
def test_iceberg_by_path(spark: SparkSession, orders: Topic, address: str) -> None:
    """On Azure the paths in the table are `abfss://`."""
    for number in (1, 2):
        orders.publish(["iceberg"])
        check(spark.read.format("iceberg").load(f"{address}/orders"), orders)
        append(orders, number)


def test_log_table_is_a_native_scan(
    spark: SparkSession, orders: Topic, address: str, options: dict[str, Any]
) -> None:
    """A warning, that Python reads instead, would be an error here."""
    table = LogTable.for_path(spark, f"{address}/orders", options)
    scheme = address.partition("://")[0]
    check_native(table.to_df(), orders, scheme)
    append(orders, 1)
    assert orders.merge().segments_in > 2
    check_native(table.to_df(), orders, scheme)
