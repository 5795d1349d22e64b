"""A topic on S3 as an Iceberg table, by way of moto."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import pylogtable
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.publish.plain_iceberg import expected_rows, rows

_folders = itertools.count()


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_topic_on_s3_is_read_as_an_iceberg_table(s3_endpoint: str, scheme: str) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    place = f"{S3_BUCKET}/iceberg{next(_folders)}"
    store = pylogtable.open(f"{scheme}://{place}", storage_options=options)
    topic = store.create_topic("orders", 2, {"id": pa.int64(), "v": pa.string()}, "id")
    properties = {
        "s3.endpoint": s3_endpoint,
        "s3.access-key-id": S3_KEY,
        "s3.secret-access-key": S3_SECRET,
        "s3.region": "us-east-1",
    }
    for number in range(4):
        topic.append(pa.table({"id": range(20), "v": [str(number)] * 20}))
        if number == 2:
            topic.delete_records({0: 3})
            topic.merge()
        topic.publish(["iceberg"])
        table = StaticTable.from_metadata(f"s3://{place}/orders", properties)
        schema, expected = expected_rows(topic, topic.version)
        assert rows(table.scan().to_arrow(), schema) == expected
        assert table.location() == f"s3://{place}/orders"
    assert topic.unpublish(["iceberg"]) > 10
