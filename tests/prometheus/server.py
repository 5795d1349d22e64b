"""A real Prometheus, and the programs that it scrapes, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.kafka.broker import free_ports

#: They take over a minute, so they run in `make test-metrics` only.
_WANTED = "PYLOGTABLE_PROMETHEUS" in os.environ
PROMTOOL, PROMETHEUS = (
    shutil.which(name) if _WANTED else None for name in ("promtool", "prometheus")
)
#: On a busy machine.
LONGEST_SECONDS = 120.0

Answer = TypeVar("Answer")


def until(ask: Callable[[], Answer], is_it: Callable[[Answer], object], what: str) -> Answer:
    """Ask until the answer is the right one. The last one is in the error."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        answer = ask()
        if is_it(answer):
            return answer
        assert time.monotonic() < deadline, f"{what}: {answer}"
        time.sleep(0.2)


@contextmanager
def program(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run pylogtable, and end it as a service manager would."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pylogtable", *arguments], stdout=out, stderr=out, env=os.environ
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LONGEST_SECONDS)


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its API."""
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}") as reply:
            return json.load(reply)["data"]

    def values(self, query: str) -> dict[str, float]:
        """The result of a query, by the topic of each series, or its job_name, or empty."""
        found = self.ask("query", query=query)["result"]
        return {
            series["metric"].get("topic", series["metric"].get("command", "")): float(
                series["value"][1]
            )
            for series in found
        }

    def is_ready(self) -> bool:
        try:
            with urlopen(f"{self.url}/-/ready") as reply:
                return bool(reply.status == 200)
        except URLError:
            return False


@contextmanager
def running(config: Path, home: Path) -> Iterator[Prometheus]:
    """Start a Prometheus with this configuration and its data below `home`, and stop it."""
    assert PROMETHEUS is not None
    (port,) = free_ports(1)
    command = [
        PROMETHEUS,
        f"--config.file={config}",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (home / "prometheus.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            server = Prometheus(f"http://127.0.0.1:{port}")
            until(server.is_ready, bool, (home / "prometheus.log").read_text())
            yield server
        finally:
            process.terminate()
            process.wait(LONGEST_SECONDS)
