"""The guide, the dashboard and the alerts use metrics that exist, and the guide lists every one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pylogtable.metrics.catalog import METRICS
from tests.documents import ROOT, quoted, read, section, table

FOLDER = ROOT / "examples" / "monitoring"
GUIDE = "pylogtable/metrics/README.md"


def names_in(text: str) -> set[str]:
    """The metrics that a text names. A histogram has several series."""
    found = set(re.findall(r"\bpylogtable_[a-z_]+\b", text))
    return {re.sub(r"(duration_seconds)_(bucket|count|sum)$", r"\1", name) for name in found}


def panels() -> list[dict[str, Any]]:
    board = json.loads(read("examples/monitoring/dashboard.json"))
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def alerts() -> Iterator[tuple[str, str]]:
    text = read("examples/monitoring/alerts.yml")
    for part in re.split(r"\n      - alert: ", text)[1:]:
        name, _, rest = part.partition("\n")
        yield name, rest


def test_the_guide_lists_every_metric_with_its_labels() -> None:
    rows = {
        name: set(quoted(labels))
        for heading in re.findall(r"^### .+$", section(read(GUIDE), "## All metrics"), re.MULTILINE)
        for cells in table(section(read(GUIDE), heading))
        for name, labels in [(quoted(cells[0])[0], cells[1])]
    }
    assert rows == {metric.name: set(metric.labels) for metric in METRICS}


def test_dashboard_and_alerts_use_metrics_that_exist() -> None:
    known = {metric.name for metric in METRICS}
    for name in ("dashboard.json", "alerts.yml", "alerts_test.yml", "prometheus.yml"):
        text = read(f"examples/monitoring/{name}")
        assert names_in(text) <= known, name
    assert len(names_in(read("examples/monitoring/dashboard.json"))) > 20


def test_every_query_selects_by_labels_that_its_metric_has() -> None:
    labels = {metric.name: {*metric.labels, "le"} for metric in METRICS}
    for query in [*dashboard_queries(), read("examples/monitoring/alerts.yml")]:
        for name, selected in re.findall(r"(pylogtable_[a-z_]+)\{([^}]*)\}", query):
            (metric,) = names_in(name)
            assert set(re.findall(r"(\w+)=~?", selected)) <= labels[metric], query


def test_every_panel_says_where_its_numbers_come_from() -> None:
    assert len(panels()) > 15
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))


def test_every_alert_has_a_summary_and_the_command_that_helps() -> None:
    found = dict(alerts())
    assert len(found) > 10
    for name, rest in found.items():
        assert "summary:" in rest, name
        described = re.sub(r"\s+", " ", rest.partition("description: >-")[2])
        assert re.search(
            r"pylogtable (run|doctor|verify|publish|groups|maintain|compact|merge)", described
        ), name
        assert "for: " in rest, name
        assert "severity: " in rest, name


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    text = read("examples/monitoring/alerts_test.yml")
    for name, _ in alerts():
        assert re.search(rf"alertname: {name}\n        exp_alerts:\n          - ", text), name
        assert re.search(rf"alertname: {name}(, |\n        )exp_alerts: \[\]", text), name


def test_the_guide_names_every_alert() -> None:
    rows = table(section(read(GUIDE), "## Alerts"))
    assert [quoted(cells[0])[0] for cells in rows] == [name for name, _ in alerts()]
