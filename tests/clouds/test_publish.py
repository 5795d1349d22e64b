"""Published topics on each store, read by delta-rs and pyiceberg with their own clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import pylogtable
from tests.clouds.servers import ACCOUNT, ACCOUNT_KEY, KEY, REGION, SECRET, Server
from tests.publish.plain_iceberg import ORDER, expected_rows, rows

#: What delta-rs and pyiceberg call the options of a server.
THEIRS: dict[str, Callable[[Server], tuple[dict[str, str], dict[str, str]]]] = {
    "s3": lambda server: (
        {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        },
        {
            "s3.endpoint": server.url,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
        },
    ),
    "abfs": lambda server: (
        {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": ACCOUNT_KEY,
            "azure_storage_endpoint": f"{server.url}/{ACCOUNT}",
            "azure_allow_http": "true",
        },
        {"adls.connection-string": server.options(server.url)["connection_string"]},
    ),
    "gs": lambda server: (
        {
            "google_service_account_key": json.dumps(
                {
                    "gcs_base_url": server.url,
                    "disable_oauth": True,
                    "client_email": "",
                    "private_key": "",
                    "private_key_id": "",
                }
            )
        },
        {"gcs.service.host": server.url, "gcs.oauth2.token": "anon", "gcs.project-id": "test"},
    ),
}


@pytest.fixture
def topic(address: str, near: dict[str, Any]) -> pylogtable.Topic:
    store = pylogtable.open(address, storage_options=near)
    return store.create_topic("orders", 2, {"id": pa.int64(), "v": pa.string()}, "id")


def fill(topic: pylogtable.Topic, number: int) -> None:
    topic.append(pa.table({"id": range(20), "v": [str(number)] * 20}))


def test_delta_rs_reads_what_was_published(
    server: Server, address: str, topic: pylogtable.Topic
) -> None:
    delta, _ = THEIRS[server.scheme](server)
    for number in range(3):
        fill(topic, number)
        topic.publish(["delta"])
        table = deltalake.DeltaTable(f"{address}/orders", storage_options=delta)
        schema, expected = expected_rows(topic, topic.version)
        found = table.to_pyarrow_table(columns=schema.names).cast(schema).sort_by(ORDER)
        assert found.to_pylist() == expected
    topic.merge()
    topic.publish(["delta"])
    assert topic.verify(data=True)
    assert topic.unpublish(["delta"]) > 3


def test_pyiceberg_reads_what_was_published(server: Server, topic: pylogtable.Topic) -> None:
    _, iceberg = THEIRS[server.scheme](server)
    properties = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", **iceberg}
    for number in range(3):
        fill(topic, number)
        topic.publish(["iceberg"])
        table = StaticTable.from_metadata(topic.url, properties)
        schema, expected = expected_rows(topic, topic.version)
        assert rows(table.scan().to_arrow(), schema) == expected
        assert table.location() == topic.url
    assert topic.verify(data=True)
    assert topic.unpublish(["iceberg"]) > 3
