"""Listeners are told of each request to S3: of tries as well, with what came of them."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator

import pytest

import pylogtable
from pylogtable.errors import StorageError
from pylogtable.observe import Request, listen_to_requests
from pylogtable.storage.base import Created
from pylogtable.storage.remote import RemoteStore
from tests.builders import kafka
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.proxy import Proxy, Refusal, WireFault

_folders = itertools.count()


@pytest.fixture
def seen() -> Iterator[list[Request]]:
    requests: list[Request] = []
    stop = listen_to_requests(requests.append)
    yield requests
    stop()


def store_at(endpoint: str, **more: object) -> RemoteStore:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": endpoint, **more}
    return RemoteStore("s3", f"{S3_BUCKET}/watched{next(_folders)}", options)


def told(seen: list[Request]) -> list[tuple[str, str]]:
    found = [(request.kind, request.outcome) for request in seen]
    seen.clear()
    return found


def test_each_request_is_told_with_its_outcome(seen: list[Request], s3_endpoint: str) -> None:
    store = store_at(s3_endpoint)
    assert store.read("f/1") is None
    assert store.size_of("f/1") is None
    assert told(seen) == [("get", "missing"), ("head", "missing")]
    assert store.create("f/1", b"x") is Created.YES
    assert store.create("f/1", b"x") is Created.EXISTS
    store.write("f/1", b"12")
    assert told(seen) == [("put", "ok"), ("put", "exists"), ("put", "ok")]
    assert store.read_many(["f/1", "f/2", "f/3"]) == [b"12", None, None]
    assert Counter(told(seen)) == {("get", "ok"): 1, ("get", "missing"): 2}
    assert store.open_input("f/1", 2).read() == b"12"
    assert len(list(store.list())) == 1
    assert store.list_folders() == ["f"]
    assert told(seen) == [("get", "ok"), ("list", "ok"), ("list", "ok")]
    store.below("copy").copy_from(store.below("f"), "1", 2)
    assert Counter(told(seen))["copy", "ok"] == 1
    with store.open_output("f/large") as sink:
        sink.write(b"." * 9 * 2**20)
    assert told(seen) == [("put", "ok")] * 3
    store.delete_many(["f/1", "f/large", "copy/1"])
    assert told(seen) == [("delete", "ok")]


def test_each_try_is_a_request(seen: list[Request], proxy: Proxy) -> None:
    store = store_at(proxy.url)
    store.write("1", b"x")
    faults = iter([Refusal(503, "SlowDown"), WireFault.DROP, Refusal(500, "InternalError"), None])
    proxy.decide = lambda method, path: next(faults)
    seen.clear()
    assert store.read("1") == b"x"
    assert told(seen) == [
        ("get", "refused"),
        ("get", "unanswered"),
        ("get", "failed"),
        ("get", "ok"),
    ]


def test_refusal_is_told(seen: list[Request], proxy: Proxy) -> None:
    store = store_at(proxy.url)
    proxy.decide = lambda method, path: Refusal(403, "AccessDenied")
    with pytest.raises(StorageError):
        store.create("1", b"x")
    assert told(seen) == [("put", "refused")]


def test_silent_server_is_told(seen: list[Request], proxy: Proxy) -> None:
    store = store_at(proxy.url, timeout_seconds=4.0, config_kwargs={"read_timeout": 1.0})
    store.write("1", b"x")
    proxy.decide = lambda method, path: WireFault.SILENCE
    seen.clear()
    assert store.create("2", b"x") is Created.UNKNOWN
    [request] = seen
    assert (request.kind, request.outcome) == ("put", "unanswered")
    assert request.seconds >= 1.0


def test_append_is_told_as_the_server_counts_it(seen: list[Request], proxy: Proxy) -> None:
    options = {"key": S3_KEY, "secret": S3_SECRET, "endpoint_url": proxy.url}
    place = f"s3://{S3_BUCKET}/watched{next(_folders)}"
    topic = pylogtable.open(place, storage_options=options).create_topic("t")
    asked: Counter[str] = Counter()

    def count(method: str, path: str) -> None:
        asked[method] += 1

    proxy.decide = count
    seen.clear()
    topic.append(kafka(["a"], ["1"]))
    topic.read().read_all()
    kinds = Counter(request.kind for request in seen)
    assert asked["PUT"] == kinds["put"] > 0
    assert asked["GET"] == kinds["get"] + kinds["list"] > 0


def test_no_secret_is_logged(s3_endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pylogtable")
    store = store_at(s3_endpoint)
    store.read("f/1")
    [record] = [record for record in caplog.records if record.name == "pylogtable.requests"]
    assert vars(record)["key"].endswith("/f/1")
    assert S3_SECRET not in str(vars(record))
