"""What the clients send, by a server that only notes it.

It proves two things about a put-if-absent: the condition is sent, and the request is sent once,
whatever becomes of its answer [STORE-3].
"""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from pylogtable.errors import InvalidRequestError, StorageError
from pylogtable.storage.base import Created
from pylogtable.storage.remote import RemoteStore
from pylogtable.storage.replies import reply_of
from tests.storage.contract import COMMIT

Answer = int | None


class _Note(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        condition = (
            self.headers.get("If-None-Match") or self.path.partition("ifGenerationMatch=")[2]
        )
        self.server.seen.append((self.command, condition))
        self.server.asked_before_bodies += "Expect" in self.headers
        status = self.server.answer
        if status is None:
            self.close_connection = True
            return
        body = self.server.body
        if body is None:
            body = b'{"error": {"code": %d, "message": "simulated"}}' % status
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 201:
            self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = _serve

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""


class Server(ThreadingHTTPServer):
    """`answer` is the status of every reply; None closes the connection without one."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Note)
        self.answer: Answer = None
        self.body: bytes | None = None
        self.seen: list[tuple[str, str]] = []
        #: How many requests have waited a round trip before they sent their bodies.
        self.asked_before_bodies = 0


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        thread = Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture(params=["s3", "gs", "abfs"])
def far(
    server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> RemoteStore:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    if request.param == "s3":
        return RemoteStore("s3", "bucket/t", {"endpoint_url": url, "key": "k", "secret": "s"})
    if request.param == "gs":
        # Otherwise gcsfs asks by gRPC for the kind of the bucket, which this server does not know.
        monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        return RemoteStore("gs", "bucket/t", {"endpoint_url": url, "token": "anon"})
    key = base64.b64encode(b"k" * 32).decode()
    account = f"AccountName=account;AccountKey={key};BlobEndpoint={url}/account;"
    options = {"connection_string": f"DefaultEndpointsProtocol=http;{account}"}
    return RemoteStore("abfs", "container/t", options)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, Created.UNKNOWN),
        (201, Created.YES),
        (408, Created.UNKNOWN),
        (412, Created.EXISTS),
        (429, Created.UNKNOWN),
        (500, Created.UNKNOWN),
        (503, Created.UNKNOWN),
    ],
)
def test_create_sends_its_condition_once(
    server: Server, far: RemoteStore, answer: Answer, outcome: Created
) -> None:
    server.answer = 403
    with pytest.raises(StorageError):
        far.read(COMMIT)  # a connection that is open already may be used again
    server.answer = answer
    if answer == 201:
        server.body = b'{"size": "4"}' if far.url.startswith("gs") else b""
    server.seen.clear()
    assert far.create(COMMIT, b"mine") is outcome
    ((method, condition),) = server.seen
    assert (method, condition) in {("POST", "0"), ("PUT", "*")}
    assert server.asked_before_bodies == 0


@pytest.mark.parametrize("answer", [400, 401, 403, 404])
def test_create_raises_if_its_only_request_was_refused(
    server: Server, far: RemoteStore, answer: int
) -> None:
    server.answer = answer
    with pytest.raises(StorageError):
        far.create(COMMIT, b"mine")
    assert len(server.seen) == 1


def test_a_redirect_is_no_success(server: Server, far: RemoteStore) -> None:
    """Google answers 308 to parts of an upload. Anywhere else it means that nothing was stored."""
    server.answer = 308
    with suppress(StorageError):
        assert far.create(COMMIT, b"mine") is not Created.YES
    with pytest.raises(StorageError):
        far.write(COMMIT, b"mine")
    with pytest.raises(StorageError):
        far.read(COMMIT)


def test_a_page_of_somebody_else_is_no_success(server: Server, far: RemoteStore) -> None:
    """A proxy may answer anything with a page of its own."""
    server.answer, server.body = 200, b"<html>Please log in</html>"
    assert far.create(COMMIT, b"mine") is Created.UNKNOWN
    assert len(server.seen) == 1


def test_a_cause_that_tells_a_secret_is_not_shown(server: Server, far: RemoteStore) -> None:
    """Servers repeat what they were sent."""
    server.answer = 400
    for said, is_shown in ((b"what is this?", True), (b"sig=c2VjcmV0Cg", False)):
        server.body = (
            b"<Error><Code>Odd</Code><Message>%b</Message></Error>" % said
            if far.url.startswith(("s3", "abfs"))
            else b'{"error": {"message": "%b"}}' % said
        )
        with pytest.raises(StorageError) as caught:
            far.read(COMMIT)
        shown = "".join(traceback.format_exception(caught.value))
        assert "c2VjcmV0" not in shown
        assert (caught.value.__cause__ is not None) is is_shown


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error = StorageError("an upload failed")
    error.__cause__ = error
    assert reply_of(error) == ("", 0)


def test_what_cannot_be_sent_is_refused_and_not_in_doubt(server: Server, far: RemoteStore) -> None:
    with pytest.raises(InvalidRequestError, match="half of a character"):
        far.create("a\ud800", b"mine")
    assert server.seen == []


@pytest.mark.parametrize("answer", [404, 416])
def test_every_refusal_of_a_listing_is_an_error_of_the_store(
    server: Server, far: RemoteStore, answer: int
) -> None:
    server.answer = answer
    for ask in (lambda: list(far.list()), far.list_folders):
        with pytest.raises(StorageError):
            ask()
