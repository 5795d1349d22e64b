"""An S3 server that is 30 ms away: versitygw behind a relay in a process of its own.

The relay delays what the server sends and looks at nothing else, so that it costs the processor
little: it shares the machine with those who are measured. `tests/proxy.py` understands HTTP, and
would be the bottleneck here. Requests are counted by the first bytes of what a client sends.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clouds.servers import BUCKET, Versitygw, options, running

LATENCY_S = 0.03

_KINDS = ("GET", "PUT", "POST", "DELETE", "HEAD", "LIST")
_VERBS = {kind.encode()[:4].ljust(4): at for at, kind in enumerate(_KINDS[:-1])}
_LIST = len(_KINDS) - 1


def binary() -> str | None:
    """Where the server is: named by the environment, built by `make test-s3`, or on the PATH."""
    built = Path(__file__).parents[1] / ".servers" / "versitygw"
    named = os.environ.get(Versitygw.variable)
    return named or (str(built) if built.exists() else shutil.which("versitygw"))


@dataclass(frozen=True)
class FarServer:
    near_url: str
    far_url: str
    _counts: Any

    bucket_url: str = f"s3://{BUCKET}"

    @property
    def near(self) -> dict[str, Any]:
        """Storage options without the delay: to prepare and to check."""
        return options(self.near_url)

    @property
    def far(self) -> dict[str, Any]:
        return options(self.far_url)

    def requests(self) -> Counter[str]:
        """What has passed the relay so far, by kind."""
        return Counter(dict(zip(_KINDS, self._counts, strict=True)))


@contextmanager
def far_server(latency_s: float = LATENCY_S) -> Iterator[FarServer]:
    found = binary()
    if found is None:
        raise SystemExit(
            f"no versitygw: `make test-s3` builds it, or name it with {Versitygw.variable}"
        )
    context = multiprocessing.get_context("spawn")
    counts = context.Array("Q", len(_KINDS), lock=False)
    mine, its = context.Pipe()
    with tempfile.TemporaryDirectory() as folder, running(found, Path(folder)) as server:
        relay = context.Process(
            target=_relay, args=(server.port, latency_s, counts, its), daemon=True
        )
        relay.start()
        try:
            yield FarServer(server.url, f"http://127.0.0.1:{mine.recv()}", counts)
        finally:
            mine.send(None)
            relay.join()


def _relay(port: int, latency_s: float, counts: Any, parent: Any) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Client(port, latency_s, counts), "127.0.0.1", 0, backlog=1024
        )
        parent.send(server.sockets[0].getsockname()[1])
        stop = asyncio.Event()

        def until_told() -> None:
            parent.recv()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=until_told, daemon=True).start()
        await stop.wait()

    asyncio.run(serve())


class _Client(asyncio.Protocol):
    """A connection of a client. What it sends goes to the server at once."""

    def __init__(self, port: int, latency_s: float, counts: Any) -> None:
        self._port, self._latency_s, self._counts = port, latency_s, counts
        self._server: asyncio.WriteTransport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        loop = asyncio.get_running_loop()
        self._opening = loop.create_task(self._open(loop, transport))

    async def _open(self, loop: asyncio.AbstractEventLoop, transport: Any) -> None:
        try:
            self._server, _ = await loop.create_connection(
                lambda: _Server(loop, transport, self._latency_s), "127.0.0.1", self._port
            )
        except OSError:
            transport.close()
            return
        for data in self._early:
            self._server.write(data)

    def data_received(self, data: bytes) -> None:
        kind = _VERBS.get(data[:4])
        if kind is not None:
            is_list = kind == 0 and b"?list-type=" in data[: data.find(b"\r\n")]
            self._counts[_LIST if is_list else kind] += 1
        if self._server is None:
            self._early.append(data)
        else:
            self._server.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._server is not None:
            self._server.close()


class _Server(asyncio.Protocol):
    """The connection to the server for one client. What it sends arrives late."""

    def __init__(self, loop: Any, client: Any, latency_s: float) -> None:
        self._loop, self._client, self._latency_s = loop, client, latency_s

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._latency_s, self._client.write, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._loop.call_later(self._latency_s, self._client.close)
