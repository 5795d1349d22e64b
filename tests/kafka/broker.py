"""A real Kafka broker on this machine: one process in KRaft mode, on free ports.

`python -m tests.kafka.jars` fetches its jars; `running(jars, home)` starts and stops it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

READY_SECONDS = 120.0
#: Kafka writes it as the last line of its start.
READY = "Kafka Server started"


class ServerFailed(Exception):
    """A server did not start. The text has the end of its log."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now. All are held until all are found, so that they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def server_properties(
    home: Path, port: int, controller_port: int, more: Mapping[str, object] | None = None
) -> str:
    """One process that is broker and controller, which alone holds every topic."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": home / "data",
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "log.cleaner.backoff.ms": 200,
        **(more or {}),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def running(jars: Path, home: Path, more: Mapping[str, object] | None = None) -> Iterator[str]:
    """Start a broker with its data below `home`, give its `bootstrap.servers`, and stop it. `more`
    are settings of the broker."""
    home.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_ports(2)
    properties = home / "server.properties"
    properties.write_text(server_properties(home, port, controller_port, more))
    log = home / "broker.log"
    with log.open("w") as out:
        _java(jars, "kafka.tools.StorageTool", "format", "--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg",
              "--config", str(properties), out=out).wait()  # fmt: skip
        with stopped(_java(jars, "kafka.Kafka", str(properties), out=out)) as process:
            wait_until_ready(process, log, lambda: READY in log.read_text(errors="replace"))
            yield f"127.0.0.1:{port}"


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Stop it in the end."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _java(jars: Path, main: str, *arguments: str, out: IO[str]) -> subprocess.Popen[bytes]:
    return start_java("-Xmx1g", "-cp", f"{jars}/*", main, *arguments, out=out)


def start_java(*arguments: str, out: IO[str]) -> subprocess.Popen[bytes]:
    home = os.environ.get("JAVA_HOME")
    command = [f"{home}/bin/java" if home else "java", *arguments]
    ends = _end_with_parent if sys.platform == "linux" else None
    return subprocess.Popen(command, stdout=out, stderr=out, preexec_fn=ends)


def _end_with_parent() -> None:
    """Ask the kernel to end this process if its parent is killed, and can stop nothing."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def wait_until_ready(
    process: subprocess.Popen[bytes], log: Path, is_ready: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            how = f"ended with status {ended}" if ended is not None else "did not get ready"
            last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise ServerFailed(f"the server {how}; its log {log} ends with\n{last}")
        time.sleep(0.1)
