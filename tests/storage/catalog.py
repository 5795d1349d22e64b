"""A small server of the one call of Unity Catalog that is used here, as it is documented."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    server: Catalog

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers.get("Authorization"), json.loads(body)))
        status, reply = self.server.answer()
        data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST

    def log_message(self, format: str, *arguments: object) -> None:
        """Silent."""


class Catalog(ThreadingHTTPServer):
    """Answers with `replies`, one after the other."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str | None, Any]] = []
        self.answer: Callable[[], tuple[int, Any]] = lambda: self.replies.pop(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def catalog_here() -> Iterator[Catalog]:
    with Catalog() as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


def aws_reply(token: str) -> dict[str, Any]:
    known = {"access_key_id": "AKIAKEY", "secret_access_key": "hidden", "session_token": token}
    return {"aws_temp_credentials": known, "expiration_time": 4_000_000_000_000}
