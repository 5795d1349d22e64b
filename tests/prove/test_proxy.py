"""The proxy of a proof: what the server gets, and what the client is told."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pylogtable.prove import faulty_store
from pylogtable.prove.proxy import Proxy, endpoint_in, redirected
from pylogtable.runtime import Runtime


class Objects(BaseHTTPRequestHandler):
    """A server that keeps what is put."""

    kept: dict[str, bytes]

    def do_PUT(self) -> None:
        self.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""


@contextmanager
def proxy_with(fault: str | None) -> Iterator[tuple[Proxy, dict[str, bytes]]]:
    """A proxy that makes this fault of each request, and what its server keeps."""
    kept: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kept", (Objects,), {"kept": kept}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    proxy = Proxy(
        f"http://127.0.0.1:{server.server_address[1]}",
        lambda: chance_of(fault),
        Runtime(pause=lambda seconds: None),
    )
    try:
        yield proxy, kept
    finally:
        proxy.close()
        server.shutdown()
        server.server_close()


def chance_of(fault: str | None) -> float:
    """A random number that means this fault."""
    chances = (number / 1000 for number in range(1000))
    return next(number for number in chances if faulty_store.choose_fault(number) == fault)


def put(proxy: Proxy) -> int:
    """The status of the reply to a put."""
    host = proxy.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request("PUT", "/a", b"data")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("fault", [None, faulty_store.DELAYED])
def test_requests_are_passed_on(fault: str | None) -> None:
    with proxy_with(fault) as (proxy, kept):
        assert put(proxy) == 200
        assert kept == {"/a": b"data"}
        assert proxy.met.total() == (fault is not None)
        assert proxy.requests == 1


def test_a_reply_is_lost_after_the_request_was_served() -> None:
    with proxy_with(faulty_store.LOST) as (proxy, kept):
        with pytest.raises(http.client.RemoteDisconnected):
            put(proxy)
        assert kept == {"/a": b"data"}


def test_a_dropped_request_never_arrives() -> None:
    with proxy_with(faulty_store.DROPPED) as (proxy, kept):
        with pytest.raises(http.client.RemoteDisconnected):
            put(proxy)
        assert kept == {}


def test_a_late_request_arrives_although_its_sender_is_gone() -> None:
    with proxy_with(faulty_store.LATE) as (proxy, kept):
        with pytest.raises(http.client.RemoteDisconnected):
            put(proxy)
        proxy.close()
        assert kept == {"/a": b"data"}


def test_a_refused_request_is_told_so() -> None:
    with proxy_with(faulty_store.REFUSED) as (proxy, kept):
        assert put(proxy) == 503
    assert kept == {}


def test_only_endpoints_of_plain_http_have_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    assert endpoint_in({}) is None
    assert endpoint_in({"endpoint_url": "https://s3.example"}) is None
    assert endpoint_in({"endpoint_url": "http://s3.example/below"}) is None
    inside = {"key": "k", "client_kwargs": {"endpoint_url": "http://a:1", "region_name": "r"}}
    assert endpoint_in(inside) == "http://a:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://b:2")
    assert endpoint_in({}) == "http://b:2"
    assert redirected(inside, "http://c:3") == {
        "key": "k",
        "endpoint_url": "http://c:3",
        "client_kwargs": {"region_name": "r"},
    }
