"""`pylogtable metrics`, and the metrics that other commands serve while they work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pylogtable import LogTableError, StorageError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import note, warn
from pylogtable.cli.options import store_argument
from pylogtable.cli.output import print_json
from pylogtable.cli.session import Session
from pylogtable.cli.streams import write_bytes, write_error

if TYPE_CHECKING:
    from pylogtable import Store
    from pylogtable.metrics import MetricsServer
    from pylogtable.run import JobRun


@click.command(
    cls=Command,
    short_help="Print the metrics of a store, for Prometheus.",
    examples="""
        pylogtable metrics ./logs
        pylogtable metrics s3://bucket/logs -o /var/lib/node_exporter/pylogtable.prom
    """,
)
@store_argument
@click.option(
    "-o",
    "--out",
    "path",
    metavar="FILE",
    help="Write them to this file, which is replaced in one step, or to a device or a pipe; - is "
    "standard output.",
)
@click.option(
    "--per-partition",
    is_flag=True,
    help="Those of each partition as well: so many time series for each topic.",
)
@click.option(
    "--openmetrics", is_flag=True, help="In the format of OpenMetrics, and not in Prometheus' own."
)
def metrics(
    session: Session, store: str | None, path: str | None, per_partition: bool, openmetrics: bool
) -> None:
    """Print the metrics of STORE once: sizes, offsets, lag of groups and of published tables, and
    what maintenance would find.

    Run it from time to time for the textfile collector of Prometheus' node_exporter. The program
    `run` serves the same by itself. A topic that cannot be read has pylogtable_topic_up 0, and the
    exit status is 0.
    """
    from pylogtable.metrics import store_metrics, store_metrics_json

    def tell(error: LogTableError) -> None:
        warn(session, f"not all can be measured: {error}")

    if session.is_json and (path is not None or openmetrics):
        raise click.UsageError("--out and --openmetrics do not go with --output json")
    opened = session.open_store(store)
    if session.is_json:
        found = store_metrics_json(opened, per_partition=per_partition, on_error=tell)
        print_json(found)
        return
    text = store_metrics(
        opened, per_partition=per_partition, openmetrics=openmetrics, on_error=tell
    )
    if "\npylogtable_topic_up{" not in text:  # most likely a wrong address
        warn(session, f"there is no topic in {opened.url}")
    if path is None or path == "-":
        write_bytes(text.encode())
    else:
        _write(Path(path), text.encode())


def _write(path: Path, data: bytes) -> None:
    """Write a file, or to a device or a pipe."""
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            _replace(Path(os.path.realpath(path)), data)  # so that a link stays one
    except OSError as error:
        reason = error.strerror
        raise StorageError(f"the metrics cannot be written to {path}: {reason}") from error


def _replace(path: Path, data: bytes) -> None:
    """Write a file that readers see before or after, and never in between. Its temporary name does
    not end as it does: the textfile collector reads every file that ends with .prom."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@dataclass
class Metrics:
    """What a command counts for its metrics, if it serves any. `topics` are those that it has
    begun to write."""

    server: MetricsServer | None = None
    topics: list[str] = field(default_factory=list)

    def progress_of(self, job: str, topic: str) -> Callable[[Any], object]:
        """What an import or a mirror calls with its progress."""
        if self.server is None:
            return lambda at: None
        if topic not in self.topics:
            self.topics.append(topic)
        return self.server.progress_of(job, topic)

    def job_ran(self, run: JobRun) -> None:
        """Count a job that has ended."""
        if self.server is not None:
            self.server.job_ran(run)

    @contextmanager
    def counting_errors(self) -> Iterator[None]:
        """Count an error that is raised."""
        try:
            yield
        except LogTableError as error:
            if self.server is not None:
                self.server.failed(error)
            raise


@contextmanager
def metrics_served(
    session: Session,
    store: Store,
    command: str,
    options: dict[str, Any],
    topics: Sequence[str] | None = (),
) -> Iterator[Metrics]:
    """Serve metrics as `metrics_options` say, which are taken from `options`. They are those of
    these topics, or of all with None, and of each that the command calls `progress_of` for."""
    port, host, per_partition = (
        options.pop(name) for name in ("metrics_port", "metrics_host", "metrics_per_partition")
    )
    if port is None:
        if host is not None or per_partition:
            raise click.UsageError(
                "--metrics-host and --metrics-per-partition go with --metrics-port"
            )
        yield Metrics()
        return
    from pylogtable.metrics import serve_metrics

    watched = None if topics is None else [*topics]
    with serve_metrics(
        store,
        port,
        command=command,
        host=host,
        topics=watched,
        per_partition=per_partition,
    ) as server:
        told = f"metrics are served at {server.address}"
        if session.is_json and port == 0:  # nobody else knows the port
            write_error(json.dumps({"message": told, "address": server.address}))
        note(session, told)
        yield Metrics(server, [] if watched is None else watched)
