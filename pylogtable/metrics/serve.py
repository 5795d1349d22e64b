"""The metrics of a process, served to Prometheus over HTTP while the process works."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pylogtable.errors import InvalidRequestError
from pylogtable.metrics.build import build_sample
from pylogtable.metrics.exposition import library, registry_of
from pylogtable.metrics.process_account import CopyProgress, JobRun, ProcessAccount
from pylogtable.metrics.sample import Sample
from pylogtable.metrics.scrape_server import SILENT_SECONDS, ScrapeServer
from pylogtable.metrics.store_watch import StoreWatch
from pylogtable.observe import listen_to_requests
from pylogtable.operation import Closing
from pylogtable.store import Store

#: All addresses of this machine: Prometheus is usually elsewhere.
ANY_HOST = "0.0.0.0"


def serve_metrics(
    store: Store,
    port: int,
    *,
    command: str,
    host: str | None = None,
    topics: Collection[str] | None = None,
    per_partition: bool = False,
) -> MetricsServer:
    """Serve the metrics of this process, and of the topics of `store`, until it is closed. It
    answers in threads of its own, and looks at the store only when it is asked.

    >>> with serve_metrics(store, 9464, command="run") as served:
    ...     served.job_ran(job_run)  # after each job

    `host` is the address to listen at; None is all of the machine. `port` 0 is any free one;
    `address` says which. `topics` are those to look at, if they are not all of the store: one that
    is not there is not up. Names that are added to it later count as well; these are missed only
    after they have been there. `command` is what the process does, for a label.
    """
    return MetricsServer(
        store,
        port,
        command=command,
        host=ANY_HOST if host is None else host,
        topics=topics,
        per_partition=per_partition,
    )


class MetricsServer(Closing):
    """Serves metrics until it is closed. `serve_metrics` makes one."""

    def __init__(
        self,
        store: Store,
        port: int,
        *,
        command: str,
        host: str,
        topics: Collection[str] | None,
        per_partition: bool,
    ) -> None:
        self._clock = store._runtime.clock
        self._account = ProcessAccount(store.url)
        self._watch = StoreWatch(
            store,
            topics,
            per_partition=per_partition,
            on_error=self._account.failed,
            on_around=self._account.forget,
        )
        self._build = build_sample(store.url, command)
        client = library()
        registry = registry_of(self._samples)
        client.ProcessCollector(registry=registry)
        handler = client.MetricsHandler.factory(registry)
        handler.timeout = SILENT_SECONDS
        self._server = _started(host, port, handler)
        self._stop_listening = listen_to_requests(self._account.request)
        shown = f"[{host}]" if ":" in host else host
        #: Where Prometheus finds the metrics.
        self.address = f"http://{shown}:{self._server.server_port}/metrics"

    def job_ran(self, run: JobRun) -> None:
        """Count a job that has ended. `run` calls it as its `on_job`."""
        self._account.job_ran(run)

    def failed(self, error: Exception) -> None:
        """Count an error that is not the error of a job."""
        self._account.failed(error)

    def progress_of(self, job: str, topic: str) -> Callable[[CopyProgress], None]:
        """What an import or a mirror calls as its `on_progress`: "import" or "mirror", and the
        topic that it writes."""
        return self._account.progress_of(job, topic, self._clock)

    def close(self) -> None:
        """Stop to serve."""
        self._stop_listening()
        self._server.close()

    def _samples(self) -> list[Sample]:
        of_topics = self._watch.samples()
        # The looks above count among the requests and errors below.
        return [self._build, *of_topics, *self._account.samples()]


def _started(host: str, port: int, handler: Any) -> ScrapeServer:
    try:
        return ScrapeServer(host, port, handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidRequestError(
            f"metrics cannot be served at {host}:{port}: {reason}. Give another port or address "
            "(--metrics-port, --metrics-host)"
        ) from error
