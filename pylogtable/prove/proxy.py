"""A proxy before an S3 endpoint that loses, delays and refuses requests.

The faults are on the wire, so the client of the store has to live with them, with its own retries.
A request that is late arrives after its sender gave up on it, or is dead. Only endpoints with plain
HTTP can be put behind a proxy: a request is signed for the host that its client sees.
"""

from __future__ import annotations

import http.client
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from pylogtable.prove.faulty_store import (
    DELAYED,
    DROPPED,
    LATE,
    LONGEST_DELAY_SECONDS,
    LONGEST_LATE_SECONDS,
    LOST,
    REFUSED,
    choose_fault,
)
from pylogtable.runtime import Runtime

_HOP_HEADERS = {"connection", "keep-alive", "expect", "transfer-encoding", "content-length"}
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>a fault of the proof</Message></Error>"
_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_UPSTREAM_SECONDS = 60.0


def endpoint_in(storage_options: Mapping[str, Any]) -> str | None:
    """The endpoint of S3 that these options, or the environment, name; None if a proxy cannot stand
    before it."""
    inside = storage_options.get("client_kwargs")
    given = [storage_options.get("endpoint_url")]
    given.append(inside.get("endpoint_url") if isinstance(inside, Mapping) else None)
    url = next(filter(None, [*given, *(os.environ.get(name) for name in _VARIABLES)]), None)
    if url is None:
        return None
    parts = urlsplit(str(url))
    return str(url) if parts.scheme == "http" and parts.path in ("", "/") else None


def redirected(storage_options: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The same options for another endpoint."""
    options = {**storage_options, "endpoint_url": url}
    inside = options.get("client_kwargs")
    if isinstance(inside, Mapping) and "endpoint_url" in inside:
        options["client_kwargs"] = {k: v for k, v in inside.items() if k != "endpoint_url"}
    return options


class Proxy:
    """Stands before `endpoint`, until it is closed. `met` counts the faults."""

    def __init__(self, endpoint: str, chance: Callable[[], float], runtime: Runtime) -> None:
        parts = urlsplit(endpoint)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.met: Counter[str] = Counter()
        self.requests = 0
        self._chance = chance
        self._runtime = runtime
        self._lock = threading.Lock()
        self._late: list[threading.Thread] = []
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def next(self) -> str | None:
        """The fault of the next request. A delay is over when this returns."""
        with self._lock:
            self.requests += 1
            fault = choose_fault(self._chance())
            wait = self._chance() * LONGEST_DELAY_SECONDS if fault == DELAYED else 0.0
            if fault is not None:
                self.met[fault] += 1
        if wait:
            self._runtime.pause(wait)
        return fault

    def deliver_late(self, request: Callable[[], object]) -> None:
        """Send a request some time later."""
        with self._lock:
            wait = self._chance() * LONGEST_LATE_SECONDS

        def deliver() -> None:
            self._runtime.pause(wait)
            with suppress(OSError, http.client.HTTPException):  # nobody waits for the reply
                request()

        thread = threading.Thread(target=deliver, daemon=True)
        self._late.append(thread)
        thread.start()

    def close(self) -> None:
        """Deliver what is late, and stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for late in self._late:
            late.join()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    proxy: Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away, or was killed, is no error of the proxy."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Listener
    _upstream: http.client.HTTPConnection | None = None

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.proxy.next()
        if fault == REFUSED:
            data = b"" if self.command == "HEAD" else _SLOW_DOWN
            self._reply(503, [("Content-Type", "application/xml")], data, len(data))
            return
        if fault == LATE:
            self.server.proxy.deliver_late(lambda: self._forward_alone(body))
        if fault in (DROPPED, LATE):
            self.close_connection = True
            return
        try:
            status, headers, data, length = self._forward(body)
        except (OSError, http.client.HTTPException):
            self._hang_up()
            self.close_connection = True
            return
        if fault == LOST:
            self.close_connection = True
            return
        self._reply(status, headers, data, length)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve

    def handle_expect_100(self) -> bool:
        """Answer at once: the proxy reads the whole body first."""
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes, int]:
        if self._upstream is None:
            self._upstream = self._connection()
        return self._exchange(self._upstream, body)

    def _forward_alone(self, body: bytes) -> None:
        """On a connection of its own: the client's is gone by now."""
        connection = self._connection()
        try:
            self._exchange(connection, body)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        proxy = self.server.proxy
        return http.client.HTTPConnection(proxy.host, proxy.port, timeout=_UPSTREAM_SECONDS)

    def _exchange(
        self, connection: http.client.HTTPConnection, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes, int]:
        # The host that the client has signed is passed on as it is.
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_HEADERS:
                connection.putheader(name, value)
        if body or self.headers.get("Content-Length"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        reply = connection.getresponse()
        data = reply.read()
        kept = [(k, v) for k, v in reply.getheaders() if k.lower() not in _HOP_HEADERS]
        told = reply.getheader("Content-Length")
        length = int(told) if self.command == "HEAD" and told else len(data)
        return reply.status, kept, data, length

    def _reply(self, status: int, headers: list[tuple[str, str]], data: bytes, length: int) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(data)

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def finish(self) -> None:
        """The connection is over."""
        self._hang_up()
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""
