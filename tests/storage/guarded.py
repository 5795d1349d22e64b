"""A server that speaks a little of S3, Google and Azure, and serves whoever has a valid token.

Only what objects need is here: put, put-if-absent, get, size. Real servers are in `tests/clouds`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ACCOUNT_KEY = "a2V5LW9mLXRoZS1hY2NvdW50LWluLWJhc2U2NA=="


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Guarded

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        token = token_of(self.headers, query)
        with self.server.lock:
            is_valid = token in self.server.valid
            self.server.seen.append((self.command, token, is_valid))
            if not is_valid:
                status, reply = self.server.refusal
            else:
                status, reply = self._object(unquote(asked.path), query, body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.send_header("Last-Modified", "Wed, 18 Nov 2026 12:00:00 GMT")
        self.send_header("ETag", '"1"')
        if reply[:1] == b"<":
            self.send_header("Content-Type", "application/xml")
        wanted = self.headers.get("x-ms-range")
        if wanted and status == 200:
            self.send_header("Content-Range", f"bytes 0-{len(reply) - 1}/{len(reply)}")
        if not is_valid and self.server.error_code:
            self.send_header("x-ms-error-code", self.server.error_code)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else reply)

    do_GET = do_PUT = do_POST = do_HEAD = _serve

    def _object(self, path: str, query: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        objects = self.server.objects
        key = query.get("name") or path.rpartition("/o/")[2] or path
        key = key.rpartition("bucket/")[2]
        if self.command in ("PUT", "POST"):
            is_conditional = "ifGenerationMatch" in query or "If-None-Match" in self.headers
            if is_conditional and key in objects:
                return (
                    412,
                    b"<Error><Code>PreconditionFailed</Code><Message>taken</Message></Error>",
                )
            objects[key] = body
            stored = json.dumps({"name": key, "size": str(len(body))}).encode()
            return (200, stored) if self.command == "POST" else (201, b"")
        if key not in objects:
            return 404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        if self.command == "GET" and "/b/" in path and "alt" not in query:
            size = str(len(objects[key]))
            found = {"name": key, "size": size, "updated": "2026-11-18T12:00:00.000Z"}
            return 200, json.dumps(found).encode()
        return 200, objects[key]

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""


def token_of(headers: Message, query: Mapping[str, str]) -> str:
    """What a request shows to be served: a token of a session of S3, a signature, or a bearer."""
    bearer = headers.get("Authorization", "").partition("Bearer ")[2]
    return headers.get("X-Amz-Security-Token") or query.get("sig") or bearer


class Guarded(ThreadingHTTPServer):
    """`valid` are the tokens that it serves. `seen` has each request: its method, its token, and
    whether it was served."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.valid: set[str] = set()
        self.seen: list[tuple[str, str, bool]] = []
        self.objects: dict[str, bytes] = {}
        self.refusal = 401, b"who are you?"
        self.error_code = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def serves(self, method: str) -> list[bool]:
        """Whether each request of a method was served."""
        return [is_served for seen, _, is_served in self.seen if seen == method]


@contextmanager
def guarded() -> Iterator[Guarded]:
    with Guarded() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Tokens:
    """Gives a new token each time, which the server knows from then on. Only the newest one is
    valid."""

    def __init__(self, server: Guarded, protocol: str) -> None:
        self.server = server
        self.protocol = protocol
        self.asked = 0
        self.more: dict[str, Any] = {}

    def __call__(self) -> dict[str, Any]:
        self.asked += 1
        token = f"token-{self.asked}"
        self.server.valid = {token}
        return {**credentials(self.protocol, token), **self.more}


def credentials(protocol: str, token: str) -> dict[str, Any]:
    if protocol == "s3":
        return {"AccessKeyId": "AKIAKEY", "SecretAccessKey": "secret", "SessionToken": token}
    return {"sas_token": f"?sig={token}"} if protocol == "abfs" else {"access_token": token}


def options(server: Guarded, protocol: str) -> dict[str, Any]:
    if protocol == "abfs":
        return {
            "connection_string": f"BlobEndpoint={server.url}/account",
            "account_name": "account",
        }
    region = {"client_kwargs": {"region_name": "us-east-1"}} if protocol == "s3" else {}
    return {"endpoint_url": server.url, **region}


#: What each cloud answers when a token has expired: status, body, and Azure's code.
EXPIRED = {
    "s3": (400, b"<Error><Code>ExpiredToken</Code><Message>old</Message></Error>", ""),
    "gs": (401, b'{"error": {"code": 401, "message": "Invalid Credentials"}}', ""),
    "abfs": (
        403,
        b"<Error><Code>AuthenticationFailed</Code><Message>old</Message></Error>",
        "AuthenticationFailed",
    ),
}
