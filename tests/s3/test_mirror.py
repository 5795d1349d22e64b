"""Copies of topics between S3, by way of moto, and a local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylogtable
from tests.builders import clock_of_servers, kafka
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET


@pytest.fixture
def source(s3_endpoint: str) -> pylogtable.Topic:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    url = f"s3://{S3_BUCKET}/mirror-source"
    store = pylogtable.open(url, storage_options=options, clock=clock_of_servers())
    name = f"orders-{len(store.topics())}"
    topic = store.create_topic(name, partitions=2)
    topic.append(kafka(["in", "a", "commit"]), txn=("etl", 1))
    topic.alter(config={"inline.max.bytes": 0})
    topic.append(kafka([f"file {n}" for n in range(200)]), txn=("etl", 2))
    return topic


def test_a_topic_is_mirrored_inside_of_s3_and_to_a_local_disk(
    source: pylogtable.Topic, s3_endpoint: str, tmp_path: Path
) -> None:
    clock = clock_of_servers()
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    there = pylogtable.open(f"s3://{S3_BUCKET}/mirror-copy", storage_options=options, clock=clock)
    here = pylogtable.open(tmp_path, clock=clock)
    for store in (there, here):
        report = source.mirror(store)
        assert (report.records, sum(report.lag.values())) == (203, 0)
    source.append(kafka(["later"]))
    for store in (there, here):
        source.mirror(store)
        copy = store.topic(source.name)
        assert source.compare(copy)
        assert copy.last_txn("etl") == 2
        assert copy.verify(data=True)
