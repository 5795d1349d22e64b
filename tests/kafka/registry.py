"""A real schema registry on this machine: Apicurio's, which has the API of Confluent's, and keeps
its schemas in memory.

`python -m tests.kafka.jars` fetches it; `running_registry(folder, home)` starts and stops it.
"""

from __future__ import annotations

import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.broker import free_ports, start_java, stopped, wait_until_ready
from tests.kafka.jars import REGISTRY
from tests.maven import path_of

#: Where it has the API of Confluent's registry.
API = "/apis/ccompat/v7"


@contextmanager
def running_registry(folder: Path, home: Path) -> Iterator[str]:
    """Start the registry whose archive is in `folder`, give the URL of its API, and stop it."""
    (archive,) = (folder / Path(path_of(each)).name for each in REGISTRY)
    with tarfile.open(archive) as files:
        files.extractall(home, filter="data")
    (jar,) = home.glob("*-runner.jar")
    port, management = free_ports(2)
    url = f"http://127.0.0.1:{port}{API}"
    settings = (f"-Dquarkus.http.port={port}", f"-Dquarkus.management.port={management}")
    log = home / "registry.log"
    with log.open("w") as out:
        command = ("-Xmx512m", "-XX:TieredStopAtLevel=1", *settings, "-jar", str(jar))
        with stopped(start_java(*command, out=out)) as process:
            wait_until_ready(process, log, lambda: _answers(url))
            yield url


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
