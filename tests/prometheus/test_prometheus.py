"""Prometheus itself: what promtool says of the metrics, the rules and the configuration, and a real
server that scrapes programs while they work."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import pylogtable
from pylogtable.metrics import store_metrics
from tests.builders import kafka
from tests.documents import read
from tests.kafka.broker import free_ports
from tests.library.metrics.test_exposition import one_of_each
from tests.library.metrics.test_monitoring import FOLDER, alerts, dashboard_queries
from tests.prometheus.server import PROMETHEUS, PROMTOOL, Prometheus, program, running, until

pytestmark = pytest.mark.skipif(
    PROMTOOL is None or PROMETHEUS is None,
    reason="no Prometheus: make test-metrics runs one",
)


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    command = [PROMTOOL, *arguments]
    return subprocess.run(command, input=stdin, cwd=FOLDER, capture_output=True, text=True)


def test_promtool_has_nothing_to_say_about_the_metrics(tmp_path: Path) -> None:
    from pylogtable.metrics.exposition import text_of

    store = pylogtable.open(tmp_path / "logs")
    topic = store.create_topic("orders", 3, config={"publish.formats": "delta"})
    topic.append(kafka(["a", "b"]))
    topic.publish()
    topic.group("billing").commit({0: 0})
    every = text_of(one_of_each(), openmetrics=False)
    for text in (store_metrics(store, per_partition=True), every):
        done = promtool("check", "metrics", stdin=text)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_examples(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_the_rules_notice_a_change_of_each_rule(tmp_path: Path) -> None:
    """Of the metric that it is about: then it never fires, or always does."""
    rules = read("examples/monitoring/alerts.yml").replace("pylogtable_", "pylogtable_x_")
    (tmp_path / "alerts.yml").write_text(rules)
    (tmp_path / "alerts_test.yml").write_text(read("examples/monitoring/alerts_test.yml"))
    done = promtool("test", "rules", str(tmp_path / "alerts_test.yml"))
    noticed = set(re.findall(r"alertname: (\w+)", done.stdout + done.stderr))
    assert noticed == {name for name, _ in alerts()}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Path]]:
    """A Prometheus with the configuration of the example, that scrapes a `run` and a mirror. Their
    store has a topic that is published, one that is compacted and a damaged one."""
    home = tmp_path_factory.mktemp("prometheus")
    logs, backup = home / "logs", home / "backup"
    store = pylogtable.open(logs)
    orders = store.create_topic("orders", 3, config={"publish.formats": "delta"})
    orders.append(kafka(["a", "b", "c"]))
    orders.group("billing").commit({0: 0})
    store.create_topic("users", config={"cleanup.policy": "compact"}).append(kafka(["a", "a"]))
    store.create_topic("broken")
    (logs / "broken" / "_manifest" / "00000000000000000000.json").write_bytes(b"{")
    (logs / "broken" / "_manifest" / "_head.json").unlink(missing_ok=True)
    ports = free_ports(2)
    text = read("examples/monitoring/prometheus.yml")
    text = text.replace("scrape_interval: 15s", "scrape_interval: 1s\n  scrape_timeout: 1s")
    text = text.replace("evaluation_interval: 15s", "evaluation_interval: 1s")
    text = text.replace("- alerts.yml", f"- {FOLDER / 'alerts.yml'}")
    text = text.replace("- localhost:9464", f"- 127.0.0.1:{ports[0]}")
    text = text.replace("# - localhost:9471", f"- 127.0.0.1:{ports[1]}")
    (home / "prometheus.yml").write_text(text)
    mirror = ("mirror", f"{logs}/orders", str(backup), "--follow", "--poll-seconds", "0.2")
    run = ("run", str(logs), "--yes", "--metrics-host", "127.0.0.1")
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(program(*run, "--metrics-port", str(ports[0]), log=home / "run.log"))
        enter(program(*mirror, "--metrics-port", str(ports[1]), log=home / "mirror.log"))
        yield enter(running(home / "prometheus.yml", home)), logs


def test_a_real_prometheus_scrapes_run_and_mirror(scraped: tuple[Prometheus, Path]) -> None:
    prometheus, logs = scraped
    here = f'store="file://{logs}"'

    def is_soon(query: str, **expected: float) -> None:
        until(lambda: prometheus.values(query), lambda found: found == expected, query)

    is_soon("pylogtable_build_info", run=1, mirror=1)
    is_soon(f"pylogtable_topic_up{{{here}}}", orders=1, users=1, broken=0)
    is_soon(f"pylogtable_topic_records{{{here}}}", orders=3, users=1)  # run has compacted it
    is_soon("pylogtable_group_lag_records", orders=3)
    is_soon("pylogtable_publication_lag_records", orders=0)
    is_soon('pylogtable_copied_records_total{job_name="mirror"}', orders=3)
    pylogtable.open(logs).topic("orders").append(kafka(["d", "e"]))
    is_soon(f"pylogtable_topic_offsets_total{{{here}}}", orders=5, users=2)
    is_soon('pylogtable_copied_records_total{job_name="mirror"}', orders=5)
    is_soon("pylogtable_group_lag_records", orders=5)
    is_soon("pylogtable_publication_lag_records", orders=0)
    until(
        lambda: prometheus.values('pylogtable_job_runs_total{job_name="publication",outcome="ok"}'),
        lambda found: found.get("orders", 0) >= 2,
        "publications",
    )


def test_its_targets_are_up_and_speak_openmetrics(scraped: tuple[Prometheus, Path]) -> None:
    prometheus, _ = scraped
    until(
        lambda: [one["health"] for one in prometheus.ask("targets")["activeTargets"]],
        lambda found: found == ["up", "up"],
        "targets",
    )
    name = "pylogtable_topic_size_bytes"
    units = until(lambda: prometheus.ask("metadata", metric=name), bool, "metadata")
    assert {entry["unit"] for entry in units[name]} == {"bytes"}


def test_it_knows_the_alert_of_the_damaged_topic(scraped: tuple[Prometheus, Path]) -> None:
    prometheus, _ = scraped
    pending = until(
        lambda: prometheus.ask("alerts")["alerts"],
        lambda found: any(one["labels"].get("topic") == "broken" for one in found),
        "alerts",
    )
    of_broken = [one for one in pending if one["labels"].get("topic") == "broken"]
    assert {one["labels"]["alertname"] for one in of_broken} == {"PylogtableTopicUnreadable"}


def test_it_answers_every_query_of_the_dashboard(scraped: tuple[Prometheus, Path]) -> None:
    prometheus, _ = scraped
    queries = dashboard_queries()
    assert len(queries) > 20
    for query in queries:
        for variable, value in {"$__rate_interval": "1m", "$store": ".*", "$topic": ".*"}.items():
            query = query.replace(variable, value)
        until(lambda asked=query: prometheus.ask("query", query=asked)["result"], bool, query)
