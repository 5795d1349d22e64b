"""A topic's life on S3, by way of moto."""

from __future__ import annotations

import itertools

import pytest

import pylogtable
from pylogtable import TopicExistsError, TopicNotFoundError
from tests.builders import clock_of_servers, kafka, limited, rows
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET

_folders = itertools.count()


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_topic_on_s3_from_creation_to_deletion(s3_endpoint: str, scheme: str) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    url = f"{scheme}://{S3_BUCKET}/smoke{next(_folders)}"
    clock = clock_of_servers()
    store = pylogtable.open(url, storage_options=options, clock=clock)
    assert store.topics() == []
    topic = store.create_topic("orders", partitions=2)
    with pytest.raises(TopicExistsError):
        store.create_topic("orders")
    first = topic.append(kafka(["a", "b", "c"], ["1", "2", "3"]), txn=("etl", 1))
    assert first.records == 3
    assert topic.append(kafka(["a"]), txn=("etl", 1)).offsets == first.offsets

    clock.tick(1000)
    again = pylogtable.open_topic(f"{url}/orders", storage_options=options, clock=clock)
    again.append(kafka(["a"], [None]))
    assert topic.count() == 4
    assert sorted(rows(topic.read(), "key")) == [b"a", b"a", b"b", b"c"]
    assert rows(topic.latest(["a"]), "value") == [None]
    assert topic.latest().num_rows == 3
    assert topic.count(version=1) == 3
    assert [v for v in topic.offsets_for_time(clock()).values() if v is not None] != []
    assert topic.delete_records({0: None, 1: None}) == topic.end_offsets()
    assert topic.count() == 0
    assert rows(topic.history(), "operation") == ["delete_records", "append", "append", "create"]
    assert topic.verify(data=True)

    store.delete_topic("orders")
    assert store.topics() == []
    with pytest.raises(TopicNotFoundError):
        again.append(kafka(["a"]))


def test_topic_on_s3_writes_a_root(s3_endpoint: str) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    store = pylogtable.open(
        f"s3://{S3_BUCKET}/smoke{next(_folders)}", storage_options=options, clock=clock_of_servers()
    )
    store = limited(store, root_interval=8)
    topic = store.create_topic("t")
    for number in range(10):
        topic.append(kafka(["k"], [str(number)]))
    opened = store.topic("t")
    assert opened._log.known.root_version == 8
    assert rows(opened.read(), "value") == [str(number).encode() for number in range(10)]
    assert opened.count(5) == 5


def test_records_are_sent_and_consumed_on_s3(s3_endpoint: str) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": s3_endpoint}
    clock = clock_of_servers()
    store = pylogtable.open(
        f"s3://{S3_BUCKET}/smoke{next(_folders)}", storage_options=options, clock=clock
    )
    topic = store.create_topic("t", partitions=2)
    with topic.producer(app_id="etl") as producer:
        sent = [producer.send(key=f"k{number}", value=str(number)) for number in range(20)]
    assert len({future.result()[:2] for future in sent}) == 20
    one, other = topic.consumer("g", "a"), topic.consumer("g", "b")
    found = rows(one.poll(max_records=6), "value")
    one.commit()
    other.poll()
    for consumer in (one, other):
        clock.tick(3_000)
        found += rows(consumer.poll(), "value")
        consumer.commit()
    assert (len(one.assignment()), len(other.assignment())) == (1, 1)
    assert sorted(map(int, found)) == list(range(20))
    one.close()
    other.close()
    assert topic.group("g").positions() == topic.end_offsets()
