"""Credentials that renew in Spark: each process asks Unity Catalog by itself.

The catalog is a small server of the documented call, the store is moto behind a proxy that refuses
credentials which have ended. Real servers are in `tests/clouds`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pylogtable
from pylogtable.errors import InvalidRequestError
from pyspark_pylogtable import LogTable
from tests.builders import IN_FILES, kafka
from tests.conftest import S3_BUCKET
from tests.proxy import Proxy, Refusal, proxy_before
from tests.spark.streams import COPIED, EARLIEST, copied, places, read_stream, start
from tests.storage.catalog import Catalog, aws_reply, catalog_here

STORE = f"s3://{S3_BUCKET}/renewing"
#: Credentials end before the first of each of these requests, once in a batch: when executors read
#: the files of the source, when they put those of the sink, and when the driver commits them.
ENDS = (
    ("GET", "/streamed/", ".parquet"),
    ("PUT", "/copied/", ".parquet"),
    ("PUT", "/copied/_manifest/0", ".json"),
)


class Sessions:
    """The catalog gives the newest session, and no other is valid."""

    def __init__(self, catalog: Catalog, proxy: Proxy) -> None:
        self.number = 1
        self.due = list(ENDS)
        self.refused: list[str] = []
        catalog.answer = lambda: (200, aws_reply(f"token-{self.number}"))
        proxy.guard = self._guard

    def _guard(self, method: str, path: str, headers: Message) -> Refusal | None:
        for due in self.due:
            if method == due[0] and due[1] in path and path.endswith(due[2]):
                self.due.remove(due)
                self.number += 1
                break
        if headers.get("X-Amz-Security-Token") == f"token-{self.number}":
            return None
        self.refused.append(f"{method} {path}")
        return Refusal(400, "ExpiredToken")


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[Proxy]:
    with proxy_before(urlsplit(s3_endpoint).port or 0) as one:
        yield one


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with catalog_here() as one:
        yield one


@pytest.fixture
def given(proxy: Proxy, catalog: Catalog) -> dict[str, Any]:
    return {
        "endpoint_url": proxy.url,
        "client_kwargs": {"region_name": "us-east-1"},
        "credentials": "unity-catalog",
        "unity_catalog_url": catalog.url,
        "unity_catalog_token": "dapi-secret",
    }


def test_a_stream_outlives_its_credentials(
    spark: SparkSession, proxy: Proxy, catalog: Catalog, given: dict[str, Any], tmp_path: Path
) -> None:
    sessions = Sessions(catalog, proxy)
    store = pylogtable.open(STORE, storage_options=given)
    source = store.create_topic("streamed", partitions=2, config=IN_FILES)
    options = {"storageOptions": json.dumps(given)}
    source.append(kafka([f"{n}" for n in range(20)]))
    schema = {"value": pa.string(), "was_in": pa.int32(), "was_at": pa.int64()}
    store.create_topic("copied", partitions=2, schema=schema, config=IN_FILES)
    sessions.due = list(ENDS)
    df = read_stream(spark, f"{STORE}/streamed", **EARLIEST, **options)
    query = start(df.selectExpr(*COPIED), tmp_path, f"{STORE}/copied", **options)
    assert query.awaitTermination(300)
    assert sessions.due == []
    assert len(sessions.refused) >= len(ENDS)
    assert copied(store.topic("copied")) == places(source)
    kept = [file.read_text() for file in tmp_path.rglob("*") if file.is_file() if not file.suffix]
    assert not [text for text in kept if "dapi-secret" in text or "token-" in text]


def test_a_function_without_a_name_does_not_reach_workers(
    spark: SparkSession, s3_endpoint: str
) -> None:
    known = {"key": "AKIAKEY", "secret": "hidden", "token": "token-1"}
    here = {"endpoint_url": s3_endpoint, "credentials": lambda: known}
    pylogtable.open(STORE, storage_options=here).create_topic("named", config=IN_FILES).append(
        kafka(["a"])
    )
    table = LogTable.for_path(spark, f"{STORE}/named", here)
    with (
        pytest.warns(UserWarning, match="Python reads them"),
        pytest.raises(InvalidRequestError, match="is not known to Spark's workers"),
    ):
        table.to_df()
