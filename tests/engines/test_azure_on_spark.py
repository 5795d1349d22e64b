"""Spark reads topics on Azure through `hadoop-azure`, from Azurite."""

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

_folders = itertools.count()


@pytest.fixture
def options(server_of: Callable[[str], Server]) -> dict[str, Any]:
    server = server_of("azurite")
    return server.options(server.url)


@pytest.fixture
def address() -> str:
    """Of a store, as Hadoop spells it. `abfss://` would be TLS."""
    return f"abfs://{BUCKET}@{ACCOUNT}.dfs.core.windows.net/f{next(_folders)}"


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


def test_log_table_is_a_native_scan(
    spark: SparkSession, orders: Topic, address: str, options: dict[str, Any]
) -> None:
    """A warning, that Python reads instead, would be an error here."""
    table = LogTable.for_path(spark, f"{address}/orders", options)
    check_native(table.to_df(), orders, "abfs")
    append(orders, 1)
    assert orders.merge().segments_in > 2
    check_native(table.to_df(), orders, "abfs")
