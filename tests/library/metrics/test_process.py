"""What the metrics say of a process: its jobs, copies, requests and errors."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

from pylogtable.errors import InvalidRequestError, LogTableError, StorageError
from pylogtable.metrics import MetricsServer, serve_metrics
from pylogtable.metrics.exposition import text_of
from pylogtable.metrics.process_account import FORGET_MS, UNSEEN_MS, ProcessAccount
from pylogtable.metrics.scrape_server import MOST_CONNECTIONS, SILENT_SECONDS
from pylogtable.metrics.store_watch import AROUND_MS
from pylogtable.mirror.report import MirrorProgress, MirrorReport
from pylogtable.observe import Request
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import T0, Clock, fill, make_store
from tests.library.metrics.values import Values
from tests.stores import FailingStore

URL = "s3://bucket/logs"


@dataclass(frozen=True)
class Ran:
    """What `run` tells of a job."""

    topic: str
    job: str
    began_ms: int = T0
    seconds: float = 2.0
    report: Any = None
    error: LogTableError | None = None


@pytest.fixture
def account() -> ProcessAccount:
    return ProcessAccount(URL)


def values(account: ProcessAccount) -> Values:
    return Values(text_of(account.samples(), openmetrics=True))


def test_jobs_are_counted_by_outcome(account: ProcessAccount) -> None:
    account.job_ran(Ran("orders", "merge"))
    account.job_ran(Ran("orders", "merge", T0 + 60_000, 3.5, error=StorageError("no")))
    account.job_ran(Ran("users", "vacuum"))
    found = values(account)
    merge = {"store": URL, "topic": "orders", "job_name": "merge"}
    assert found.of("job_runs_total", outcome="ok", **merge) == 1
    assert found.of("job_runs_total", outcome="failed", **merge) == 1
    assert found.of("job_last_success_timestamp_seconds", **merge) == T0 / 1000 + 2
    assert found.of("job_last_failure_timestamp_seconds", **merge) == T0 / 1000 + 63.5
    assert found.of("job_last_duration_seconds", **merge) == 3.5
    assert found.of("job_last_failure_timestamp_seconds", topic="users") is None
    assert found.of("errors_total", code=getattr(StorageError, "code", "StorageError")) == 1


def mirror_report(lag: int = 0, *, is_whole: bool = True) -> MirrorReport:
    """A mirror that has brought 4 records, and copied all or was stopped before."""
    source_version = 1 if is_whole else None
    return MirrorReport("t", "s", "c", source_version, 1, 4, 0, 400, 1, 0, 1, 3.0, {0: lag})


def test_a_mirror_is_counted_while_it_runs_and_when_it_has_run(account: ProcessAccount) -> None:
    report = mirror_report()
    tell = account.progress_of("mirror", "copy", lambda: T0)
    tell(MirrorProgress(10, 1_000, 1, 1.0, {0: 5, 1: 2}))
    tell(MirrorProgress(15, 1_500, 2, 2.0, {0: 0, 1: 2}))
    again = account.progress_of("mirror", "copy", lambda: T0 + 1_000)  # it failed, and began anew
    again(MirrorProgress(1, 100, 1, 1.0, {0: 0, 1: 1}))
    account.job_ran(Ran("copy", "mirror", T0, 3.0, report))
    found = values(account)
    mine = {"topic": "copy", "job_name": "mirror"}
    assert found.of("copied_records_total", **mine) == 20
    assert found.of("copied_bytes_total", **mine) == 2_000
    assert found.of("copy_lag_records", **mine) == 0
    # A job runs when there is news, so it is not stuck without any.
    assert found.of("copy_last_progress_timestamp_seconds", **mine) == T0 / 1000 + 1


def test_a_topic_that_run_cannot_read_is_an_error_and_no_job(account: ProcessAccount) -> None:
    """Nobody would ever be told that it has succeeded."""
    account.job_ran(Ran("orders", "look", error=StorageError("no")))
    found = values(account)
    assert found.of("errors_total") == 1
    assert found.topics() == set()


def test_requests_have_a_histogram_for_each_kind_and_outcome(account: ProcessAccount) -> None:
    for seconds in (0.0005, 0.03, 0.03, 7.0, 100.0):
        account.request(Request("get", seconds, "ok"))
    account.request(Request("put", 0.2, "exists"))
    found = values(account)
    gets = {"kind": "get", "outcome": "ok"}
    bucket = "request_duration_seconds_bucket"
    bounds = {"0.001": 1, "0.025": 1, "0.05": 3, "5.0": 3, "10.0": 4, "30.0": 4, "+Inf": 5}
    assert {bound: found.of(bucket, le=bound, **gets) for bound in bounds} == bounds
    assert found.of("request_duration_seconds_count", **gets) == 5
    assert math.isclose(found.of("request_duration_seconds_sum", **gets) or 0, 107.0605)
    assert found.of("request_duration_seconds_count", kind="put", outcome="exists") == 1


def test_the_lag_of_a_copy_that_another_process_may_have_is_not_shown(
    account: ProcessAccount,
) -> None:
    """That one shows it: the dashboard takes the maximum."""

    def lag_after(ran: Ran, at_ms: int = T0 + 1_000) -> float | None:
        account.job_ran(ran)
        account.forget(lambda topic, job: True, at_ms)
        return values(account).of("copy_lag_records", topic="orders")

    behind = Ran("orders", "mirror", T0, 0.0, mirror_report(3))
    assert lag_after(behind) == 3
    assert lag_after(Ran("orders", "mirror", T0, 0.0, mirror_report(3, is_whole=False))) is None
    assert lag_after(behind) == 3
    assert lag_after(Ran("orders", "mirror", error=StorageError("no"))) is None
    assert lag_after(behind, T0 + FORGET_MS) is None  # here it would have run again
    assert lag_after(Ran("orders", "mirror", report=mirror_report()), T0 + UNSEEN_MS) == 0
    assert values(account).of("copied_records_total") == 20
    tell = account.progress_of("import", "users", lambda: T0)
    tell(MirrorProgress(10, 1_000, 1, 1.0, {0: 5}))
    account.job_ran(Ran("users", "import", error=StorageError("no")))
    assert values(account).of("copy_lag_records", topic="users") is None
    assert values(account).of("copy_last_progress_timestamp_seconds", topic="users") == T0 / 1000


def test_jobs_that_nobody_asks_for_are_forgotten(account: ProcessAccount) -> None:
    """A while after they were told of: the topic may be new, and an import that cannot create its
    topic tries again and again."""
    for topic in ("orders", "users"):
        account.job_ran(Ran(topic, "merge", seconds=0.0))
        account.progress_of("import", topic, lambda: T0)(MirrorProgress(1, 1, 1, 1.0, {0: 1}))
    account.failed(StorageError("no"))
    asked = [("users", "merge")]
    account.forget(lambda topic, job: (topic, job) in asked, T0 + FORGET_MS - 1)
    assert values(account).topics() == {"orders", "users"}
    account.forget(lambda topic, job: (topic, job) in asked, T0 + FORGET_MS)
    found = values(account)
    assert found.of("job_runs_total") == 1
    assert found.of("job_runs_total", topic="users", job_name="merge") == 1
    assert found.of("copied_records_total") is None
    assert found.of("errors_total") == 1


def test_if_nobody_scrapes_only_the_last_day_is_kept(account: ProcessAccount) -> None:
    def topics_of(days: int, scrape_ms: int) -> set[str]:
        for at_ms in range(T0, T0 + days * UNSEEN_MS + 1, UNSEEN_MS // 2):
            account.job_ran(Ran(f"topic-{at_ms - T0}", "merge", at_ms, 0.0))
            if at_ms % scrape_ms == 0:
                account.forget(lambda topic, job: True, at_ms)
        return values(account).topics()

    assert len(topics_of(10, scrape_ms=T0 * T0)) == 2
    assert len(topics_of(10, scrape_ms=1)) == 21


@pytest.fixture
def served(store: Store) -> Any:
    fill(store.create_topic("orders"))
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        yield server


def test_a_job_that_ends_after_its_topic_is_gone_is_forgotten(store: Store, clock: Clock) -> None:
    """As are jobs of topics that lived between two scrapes, and jobs that the settings ask for no
    more. Else their alerts would last as long as the process."""
    for name, formats in (("orders", "none"), ("users", "iceberg"), ("stays", "iceberg")):
        store.create_topic(name, config={"publish.formats": formats})
    failure = "job_last_failure_timestamp_seconds"
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        scraped(server, "")
        store.delete_topic("orders")
        clock.tick(AROUND_MS)
        assert scraped(server, "")[1].of("topic_up", topic="orders") is None
        server.job_ran(Ran("orders", "vacuum", clock(), 0.0, error=StorageError("no")))
        server.job_ran(Ran("short", "publication", clock(), 0.0))
        for name in ("users", "stays"):
            server.job_ran(Ran(name, "publication", clock(), 0.0, error=StorageError("no")))
        store.topic("users").alter(config={"publish.formats": "none"})
        clock.tick(AROUND_MS)
        _, found = scraped(server, "")
        assert found.of(failure, topic="orders") == found.of(failure, topic="users")
        clock.tick(FORGET_MS)
        _, found = scraped(server, "")
    assert found.topics() == {"users", "stays"}
    assert found.of(failure) == found.of(failure, topic="stays")
    assert found.of("job_runs_total", topic="stays") == 1


def test_nothing_is_forgotten_while_the_store_cannot_be_listed(
    objects: MemoryStore, clock: Clock
) -> None:
    failing = FailingStore(objects)
    store = make_store(failing, clock)
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        server.job_ran(Ran("orders", "merge", clock(), 0.0, error=StorageError("no")))
        failing.fails = lambda verb, key: True
        for _ in range(2):
            clock.tick(FORGET_MS)
            _, found = scraped(server, "")
            assert found.of("store_up") == 0
            assert found.of("job_runs_total", topic="orders") == 1


def scraped(server: MetricsServer, accept: str) -> tuple[str, Values]:
    with urlopen(HttpRequest(server.address, headers={"Accept": accept})) as reply:
        kind, text = reply.headers["Content-Type"], reply.read().decode()
    return kind, Values(text)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics"),
        ("text/plain;version=0.0.4", "text/plain"),
        ("*/*", "text/plain"),
    ],
)
def test_a_scrape_gets_the_format_that_it_asks_for(
    served: MetricsServer, accept: str, expected: str
) -> None:
    kind, found = scraped(served, accept)
    assert kind.startswith(expected)
    assert found.of("build_info", command="run") == 1
    assert found.of("topic_records", topic="orders") == 12
    assert any(name.startswith("process_cpu_seconds") for name in found.families)


def test_requests_of_the_process_are_counted_while_it_is_served(
    tmp_path: Any, clock: Clock
) -> None:
    import pylogtable

    store = pylogtable.open(tmp_path)
    topic = store.create_topic("orders")
    with serve_metrics(store, 0, command="run", host="127.0.0.1", topics=[]) as server:
        fill(topic, 3)
        _, found = scraped(server, "")
    assert found.of("request_duration_seconds_count", kind="put", outcome="ok") == 3
    fill(topic)
    assert values(server._account).of("request_duration_seconds_count", kind="put") == 3


def test_a_server_that_is_closed_answers_no_more(store: Store) -> None:
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        scraped(server, "")
    with pytest.raises(URLError):
        scraped(server, "")


def connections(server: MetricsServer, count: int) -> list[socket.socket]:
    """Open connections that say nothing."""
    place = ("127.0.0.1", server._server.server_port)
    return [socket.create_connection(place, timeout=60) for _ in range(count)]


def test_connections_that_say_nothing_are_closed(store: Store) -> None:
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        handler: Any = server._server.RequestHandlerClass
        assert handler.timeout == SILENT_SECONDS
        handler.timeout = 0.05
        for one in connections(server, 2):
            one.send(b"GET /metrics HTTP/1.0\r\n")
            assert one.recv(1) == b""
            one.close()


def test_many_connections_keep_neither_threads_nor_scrapes(store: Store) -> None:
    """The oldest ones are closed. Those that are left end with the server."""
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        idle = connections(server, MOST_CONNECTIONS + 5)
        scraped(server, "")
        closed, left = idle[:6], idle[6:]
        for one in closed:
            assert one.recv(1) == b""
        for one in left:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
    for one in left:
        one.settimeout(SILENT_SECONDS / 2)
        assert one.recv(1) == b""
    for one in idle:
        one.close()


def test_it_is_served_at_all_addresses_unless_one_is_given(store: Store) -> None:
    with serve_metrics(store, 0, command="run") as server:
        assert server.address.startswith("http://0.0.0.0:")
        scraped(server, "")


@pytest.mark.parametrize("host", ["127.0.0.1", "256.1.1.1"])
def test_an_address_that_cannot_be_had_is_named(store: Store, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequestError, match=rf"{host}:{port}.*--metrics-port"):
            serve_metrics(store, port, command="run", host=host)
    with pytest.raises(InvalidRequestError, match=rf"{host}:70000.*--metrics-port"):
        serve_metrics(store, 70_000, command="run", host=host)


def test_errors_of_topics_are_counted(objects: MemoryStore, clock: Clock) -> None:
    store = make_store(objects, clock)
    store.create_topic("orders")
    objects.below("orders").write("_manifest/00000000000000000001.json", b"{")
    with serve_metrics(store, 0, command="run", host="127.0.0.1") as server:
        _, found = scraped(server, "")
    assert found.of("topic_up", topic="orders") == 0
    assert found.of("errors_total") == 1
