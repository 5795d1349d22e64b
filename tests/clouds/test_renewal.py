"""Credentials that end in the middle of appends, jobs and streams, on real servers.

MinIO gives sessions by STS, Azurite checks signatures. A proxy says when they end.
Unity Catalog and the requests themselves are in `tests/storage`, Spark's streams in `tests/spark`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import pylogtable
from pylogtable.storage.base import Created, ObjectStore
from pylogtable.storage.open import open_store
from tests.builders import IN_FILES, kafka
from tests.clouds.renewing import ISSUERS, Issuer
from tests.clouds.servers import Server
from tests.proxy import Proxy


@pytest.fixture(params=ISSUERS)
def server(request: pytest.FixtureRequest, server_of: Callable[[str], Server]) -> Server:
    return server_of(request.param)


@pytest.fixture
def issuer(server: Server, proxy: Proxy, request: pytest.FixtureRequest) -> Issuer:
    return ISSUERS[request.node.callspec.params["server"]](server, proxy)


@pytest.fixture
def store(issuer: Issuer, proxy: Proxy, address: str, near: dict[str, Any]) -> pylogtable.Store:
    """Its topic `t` has been created directly."""
    config = {**IN_FILES, "cleanup.policy": "compact"}
    pylogtable.open(address, storage_options=near).create_topic("t", 2, config=config)
    given = {**issuer.options(proxy.url), "credentials": issuer}
    return pylogtable.open(address, storage_options=given)


def values(table: pa.Table) -> list[str]:
    return sorted(value.decode() for value in table["value"].to_pylist())


def batch(number: int) -> pa.Table:
    return kafka([f"k{number}", f"j{number}"], [f"a{number}", f"b{number}"])


def expected(batches: int) -> list[str]:
    return sorted(f"{letter}{number}" for number in range(batches) for letter in "ab")


def test_an_append_goes_on_whichever_request_finds_the_credentials_ended(
    issuer: Issuer, store: pylogtable.Store
) -> None:
    """Also between the last data file and the commit. Each object is put once."""
    topic = store.topic("t")
    topic.append(batch(0))
    for at in itertools.count():
        issuer.end_before(iter([at]))
        assert topic.append(batch(1 + at)).version == 2 + at
        assert set(Counter(issuer.puts).values()) == {1}
        if not issuer.refused:
            break
        assert issuer.asked == 1
    assert at >= 2, "the data files and the commit"
    assert values(topic.read().read_all()) == expected(2 + at)
    assert topic.verify()


def test_an_upload_in_parts_goes_on(issuer: Issuer, proxy: Proxy, address: str) -> None:
    store = open_store(address, {**issuer.options(proxy.url), "credentials": issuer})
    data = bytes(range(256)) * (17 << 12)
    for at in itertools.count():
        issuer.end_before(iter([at]))
        with store.open_output("large") as sink:
            for start in range(0, len(data), 1 << 20):
                sink.write(data[start : start + (1 << 20)])
        refused = issuer.refused
        assert store.read("large") == data
        if not refused:
            break
    assert at >= 3


def test_a_job_goes_on(issuer: Issuer, store: pylogtable.Store) -> None:
    topic = store.topic("t")
    for number in range(6):
        topic.append(kafka([f"k{number % 2}"], [f"a{number}"]))
    # Not so often that a request meets two ends: one is enough in an hour.
    issuer.end_before(itertools.count(0, 20))
    topic.compact(force=True)
    topic.merge()
    assert values(topic.read().read_all()) == ["a4", "a5"]
    assert issuer.asked >= 1
    assert topic.verify()


def test_a_consumer_and_a_producer_go_on(issuer: Issuer, store: pylogtable.Store) -> None:
    topic = store.topic("t")
    issuer.end_before(itertools.count(3, 5))
    read: list[str] = []
    with topic.consumer(group="g") as consumer, topic.producer(app_id="p") as producer:
        for number in range(8):
            for letter in "ab":
                producer.send(key=b"k", value=f"{letter}{number}".encode())
            producer.flush()
            read += values(consumer.poll())
            consumer.commit()
        while (table := consumer.poll()).num_rows:
            read += values(table)
    assert issuer.asked >= 4
    assert sorted(read) == expected(8)


@pytest.mark.parametrize("server", ["minio", "azurite"], indirect=True)
def test_what_the_server_itself_refuses_is_asked_for_again(
    issuer: Issuer, proxy: Proxy, address: str
) -> None:
    proxy.guard = None
    given = iter([issuer.refused_by_the_server(), issuer.issue()])
    store = open_store(address, {**issuer.options(proxy.url), "credentials": lambda: next(given)})
    assert store.create("a", b"1") is Created.YES
    assert proxy.traffic.methods == {"PUT": 2}
    assert store.size_of("a") == 1


def test_versitygw_refuses_a_session_that_it_does_not_know(
    server_of: Callable[[str], Server], place: str
) -> None:
    known = server_of("versitygw").options(server_of("versitygw").url)
    key = {name: known.pop(name) for name in ("key", "secret")}

    def opened() -> ObjectStore:
        given = iter([{**key, "token": "old"}, key])
        return open_store(f"s3://{place}", {**known, "credentials": lambda: next(given)})

    assert opened().create("a", b"1") is Created.YES
    assert opened().create("a", b"2") is Created.EXISTS
    assert opened().size_of("a") == 1  # the answer to a HEAD says only 400
