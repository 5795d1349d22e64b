"""An HTTP proxy before a server: it counts requests, makes each one slow, breaks or refuses it.

What a store does wrong is simulated in `tests/stores.py`, behind the interface. Here the faults are
on the wire, so that the real client, with its own retries, has to live with them.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

_HOP_HEADERS = {"connection", "keep-alive", "expect", "transfer-encoding", "content-length"}
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>simulated</Message></Error>"


class WireFault(Enum):
    """What becomes of one request."""

    #: The server gets it. The connection is closed instead of the reply.
    LOSE_REPLY = auto()
    #: The server gets it. The reply breaks off in the middle.
    CUT_REPLY = auto()
    #: The server gets it. The reply is not HTTP.
    GARBLE = auto()
    #: The server does not get it; the reply is 503 SlowDown.
    UNAVAILABLE = auto()
    #: The server does not get it, and the connection is closed.
    DROP = auto()
    #: The connection is closed, and the server gets it later: at `Proxy.deliver_late`.
    DELAY = auto()
    #: Nobody gets it, and the connection stays open without a reply, until the proxy is closed.
    SILENCE = auto()


@dataclass(frozen=True)
class Refusal:
    """A reply that the server never gave. The server does not get the request."""

    status: int
    code: str = ""

    @property
    def body(self) -> bytes:
        return f"<Error><Code>{self.code}</Code><Message>simulated</Message></Error>".encode()


Decide = Callable[[str, str], "WireFault | Refusal | None"]
#: Refuses a request by its method, its path and its headers.
Guard = Callable[[str, str, Message], "Refusal | None"]


@dataclass
class Traffic:
    """The requests since the last `reset`. `round_trips` counts those one after the other: requests
    that were under way at the same time are one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    methods: Counter[str] = field(default_factory=Counter)
    faults: Counter[WireFault | Refusal] = field(default_factory=Counter)
    spans: list[tuple[float, float]] = field(default_factory=list)

    def reset(self) -> None:
        with self.lock:
            self.methods.clear()
            self.faults.clear()
            self.spans.clear()

    @property
    def requests(self) -> int:
        return self.methods.total()

    @property
    def round_trips(self) -> int:
        """The longest chain of requests of which each began after the one before had ended."""
        trips, free_at = 0, float("-inf")
        for began, ended in sorted(self.spans, key=lambda span: span[1]):
            if began >= free_at:
                trips, free_at = trips + 1, ended
        return trips


class Proxy:
    """`decide(method, path)` says what becomes of a request; it may be replaced at any time. The
    path is decoded, and ends with the name of the object, before a `?`, whichever store it is.
    `port` may be changed too, when the server behind it moves."""

    #: Looks at the credentials of requests that `decide` lets pass.
    guard: Guard | None = None

    def __init__(self, port: int, decide: Decide | None = None, latency_s: float = 0.0) -> None:
        self.port = port
        self.decide = decide
        self.latency_s = latency_s
        self.traffic = Traffic()
        self.is_closed = threading.Event()
        self._late: list[Callable[[], object]] = []
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def keep(self, deliver: Callable[[], object]) -> None:
        self._late.append(deliver)

    def deliver_late(self) -> int:
        """Send the delayed requests to the server now; returns how many there were."""
        late, self._late = self._late, []
        for deliver in late:
            deliver()
        return len(late)

    def close(self) -> None:
        self.is_closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def proxy_before(
    port: int, decide: Decide | None = None, latency_s: float = 0.0
) -> Iterator[Proxy]:
    proxy = Proxy(port, decide, latency_s)
    try:
        yield proxy
    finally:
        proxy.close()


def _named(path: str, part: str | None) -> str:
    where, mark, query = path.partition("?")
    asked = parse_qs(query)
    if "uploadType" in asked and "name" in asked:  # an upload to Google
        where += "/" + asked["name"][0]
        query += f"&part={part}"
    return unquote(where) + mark + query


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: Proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Listener
    _upstream: http.client.HTTPConnection | None = None

    def _serve(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = _named(self.path, self.headers.get("Content-Range"))
        fault = proxy.decide(self.command, path) if proxy.decide else None
        if fault is None and proxy.guard is not None:
            fault = proxy.guard(self.command, self.path, self.headers)
        began = time.monotonic()
        if proxy.latency_s:
            time.sleep(proxy.latency_s)
        try:
            self._answer(fault, body)
        finally:
            with proxy.traffic.lock:
                proxy.traffic.methods[self.command] += 1
                proxy.traffic.spans.append((began, time.monotonic()))
                if fault:
                    proxy.traffic.faults[fault] += 1

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve

    def handle_expect_100(self) -> bool:
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    def _answer(self, fault: WireFault | Refusal | None, body: bytes) -> None:
        if fault is WireFault.SILENCE:
            self.server.proxy.is_closed.wait()
        if fault is WireFault.DELAY:
            self.server.proxy.keep(lambda: self._forward_late(body))
        if fault in (WireFault.DROP, WireFault.DELAY, WireFault.SILENCE):
            self.close_connection = True
            return
        if isinstance(fault, Refusal):
            data = b"" if self.command == "HEAD" else fault.body
            headers = [("Content-Type", "application/xml"), ("x-ms-error-code", fault.code)]
            self._reply(fault.status, headers, data, len(data))
            return
        if fault is WireFault.UNAVAILABLE:
            self._reply(503, [("Content-Type", "application/xml")], _SLOW_DOWN, len(_SLOW_DOWN))
            return
        try:
            status, headers, data, length = self._forward(body)
        except (OSError, http.client.HTTPException):
            self._hang_up()
            self.close_connection = True
            return
        if fault in (WireFault.LOSE_REPLY, WireFault.GARBLE):
            self.close_connection = True
            self.wfile.write(b"what?\r\n\r\n" if fault is WireFault.GARBLE else b"")
            return
        if fault is WireFault.CUT_REPLY:
            self.close_connection = True
            # Without a body there is only the head to cut.
            if len(data) < 2:
                self.wfile.write(b"HTTP/1.1 200 O")
                return
            data = data[: len(data) // 2]
        self._reply(status, headers, data, length)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes, int]:
        if self._upstream is None:
            self._upstream = http.client.HTTPConnection("127.0.0.1", self.server.proxy.port)
        one = self._upstream
        one.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP_HEADERS:
                one.putheader(name, value)
        if body or self.headers.get("Content-Length"):
            one.putheader("Content-Length", str(len(body)))
        one.endheaders(body)
        reply = one.getresponse()
        data = reply.read()
        kept = [(k, v) for k, v in reply.getheaders() if k.lower() not in _HOP_HEADERS]
        told = reply.getheader("Content-Length")
        length = int(told) if self.command == "HEAD" and told else len(data)
        return reply.status, kept, data, length

    def _forward_late(self, body: bytes) -> None:
        with suppress(OSError, http.client.HTTPException):  # nobody waits for the reply
            self._forward(body)
        self._hang_up()

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
        self._hang_up()
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""
