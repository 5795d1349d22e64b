"""A real S3 server in its own process: versitygw over a directory. `make test-s3` brings it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BINARY = "PYLOGTABLE_S3_SERVER"
KEY, SECRET, BUCKET = "AKIASERVERTEST", "sErVeRsEcReTsErVeR", "bucket"

_PATIENCE_S = 30.0
_REGION = "us-east-1"


class Server:
    """A server that can be killed and started again on the same port, with the same objects."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._objects = folder / "objects"
        self._sidecar = folder / "attributes"
        self._log = folder / "server.log"
        (self._objects / BUCKET).mkdir(parents=True)
        self._sidecar.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        command = [self._binary, "--port", f"127.0.0.1:{self.port}", "--quiet", "--keep-alive"]
        command += ["posix", "--sidecar", str(self._sidecar), str(self._objects)]
        secrets = {"ROOT_ACCESS_KEY_ID": KEY, "ROOT_SECRET_ACCESS_KEY": SECRET}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **secrets}, stdout=log, stderr=log
            )
        give_up = time.monotonic() + _PATIENCE_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise RuntimeError(f"no server: {self._log.read_text()}")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL: requests that it was working on get no reply."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def options(url: str) -> dict[str, Any]:
    """The storage options for the server, or for a proxy before it."""
    return {
        "key": KEY,
        "secret": SECRET,
        "endpoint_url": url,
        "client_kwargs": {"region_name": _REGION},
    }


def environment(url: str) -> dict[str, str]:
    """The same as variables, for other processes."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": _REGION,
    }


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextmanager
def running(binary: str, folder: Path) -> Iterator[Server]:
    server = Server(binary, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
