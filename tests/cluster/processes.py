"""A standalone cluster and a Connect server, as processes of the Spark that pip installed.

Their Python is an environment without pylogtable, so that a job has to ship it. What pylogtable
needs and such an environment lacks is in a folder beside it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

#: For what hangs. A loaded machine needs minutes to start four JVMs.
PATIENCE_SECONDS = 1200
WORKERS = 2

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Environment:
    """The Python of driver and workers, and what a platform is assumed to have beside it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def needed(self) -> Path:
        """fsspec, msgspec and s3fs, without pylogtable."""
        return self.folder / "needed"

    @property
    def spark_home(self) -> Path:
        (home,) = self.folder.glob("lib/python3*/site-packages/pyspark")
        return home


@dataclass(frozen=True)
class Cluster:
    """A running cluster. Jobs reach it through a folder of Spark's configuration."""

    environment: Environment
    master: str
    folder: Path

    def variables(self, *, with_needed: bool, **more: str) -> dict[str, str]:
        """The environment of a job: this cluster is the one that its Spark knows."""
        needed = str(self.environment.needed)
        conf = Path(self.folder, "conf-needed" if with_needed else "conf")
        conf.mkdir(exist_ok=True)
        settings = {**_SETTINGS, "spark.master": self.master}
        if with_needed:
            settings["spark.executorEnv.PYTHONPATH"] = needed
        lines = [f"{name} {value}" for name, value in settings.items()]
        (conf / "spark-defaults.conf").write_text("\n".join(lines))
        (conf / "log4j2.properties").write_text("rootLogger.level = off\n")
        return {
            **_variables(self.environment),
            "SPARK_CONF_DIR": str(conf),
            **({"PYTHONPATH": needed} if with_needed else {}),
            **more,
        }


_SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.task.maxFailures": "1",
}


@contextmanager
def standalone(environment: Environment, folder: Path) -> Iterator[Cluster]:
    """A master and two workers with one core each."""
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    variables = {**_variables(environment), "SPARK_DAEMON_MEMORY": "256m"}
    common = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(
            process(
                [*_class(environment, _MASTER), *common, "--port", str(port)],
                variables,
                folder / "master.log",
            )
        )
        _wait(master, folder / "master.log", lambda log: "I have been elected leader" in log)
        for number in range(WORKERS):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"w{number}"))
            command = [*_class(environment, _WORKER), *common, *own, address]
            stack.enter_context(process(command, variables, folder / f"worker-{number}.log"))
        _wait(
            master,
            folder / "master.log",
            lambda log: log.count("Registering worker 127.0.0.1") == WORKERS,
        )
        yield Cluster(environment, address, folder)


@contextmanager
def connect_server(cluster: Cluster, folder: Path) -> Iterator[str]:
    """A Connect server whose executors are those of the cluster; its address."""
    port = free_port()
    log = folder / "connect.log"
    command = [
        *_class(cluster.environment, "org.apache.spark.deploy.SparkSubmit"),
        *("--class", _CONNECT, "--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", f"spark.sql.warehouse.dir={folder / 'warehouse'}", "spark-internal"),
    ]
    with process(command, cluster.variables(with_needed=True), log, cwd=folder) as server:
        _wait(server, log, lambda _: _listens(port))
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def process(
    command: list[str], variables: Mapping[str, str], log: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        started = subprocess.Popen(
            command, env=dict(variables), stdout=output, stderr=subprocess.STDOUT, cwd=cwd
        )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(60)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _class(environment: Environment, name: str) -> list[str]:
    return [str(environment.spark_home / "bin" / "spark-class"), name]


def _variables(environment: Environment) -> dict[str, str]:
    """Nothing of the tests' own environment that could lead to an installed pylogtable."""
    python = str(environment.python)
    kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    return {
        **kept,
        "PATH": f"{environment.folder / 'bin'}:{os.environ['PATH']}",
        "SPARK_HOME": str(environment.spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


def _wait(started: subprocess.Popen[bytes], log: Path, ready: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready(log.read_text(errors="replace")):
        if started.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"{started.args} is not up:\n{log.read_text(errors='replace')[-3000:]}"
            )
        time.sleep(0.2)
