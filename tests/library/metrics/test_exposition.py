"""The text of the metrics: names, types, units, labels, and that any label can be written."""

from __future__ import annotations

import builtins
import re
from typing import Any

import pytest

from pylogtable.errors import InvalidRequestError
from pylogtable.metrics import store_metrics
from pylogtable.metrics.catalog import METRICS, Metric
from pylogtable.metrics.exposition import text_of
from pylogtable.metrics.sample import Distribution, Sample
from pylogtable.store import Store
from tests.library.metrics.values import Values

both_formats = pytest.mark.parametrize("openmetrics", [False, True], ids=["prometheus", "open"])


def one_of_each() -> list[Sample]:
    def value(metric: Metric) -> float | Distribution:
        return Distribution((0.1,), (1, 2), 0.5) if metric.kind == "histogram" else 7

    return [Sample(metric, metric.labels, value(metric)) for metric in METRICS]


@both_formats
def test_every_metric_has_its_type_help_and_unit(openmetrics: bool) -> None:
    """The parsers of prometheus-client refuse wrong names, units and types."""
    text = text_of(one_of_each(), openmetrics=openmetrics)
    assert text.endswith("# EOF\n") is openmetrics
    found = Values(text).families
    assert len(found) == len(METRICS)
    for metric in METRICS:
        family = found[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert family.unit == (metric.unit if openmetrics else "")
        assert {*family.samples[0].labels} - {"le"} == {*metric.labels}


def test_names_follow_the_advice_of_prometheus() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) > 30
    for metric in METRICS:
        assert re.fullmatch(r"pylogtable_[a-z]+(_[a-z]+)+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not re.search(r"_(ms|milliseconds|kb|mb|count|sum|bucket)$", metric.name)
        assert not {"job", "instance", "le"} & {*metric.labels}, "Prometheus has them"
        assert metric.help.endswith(".")


@both_formats
def test_any_label_can_be_written(openmetrics: bool) -> None:
    odd = 'a "quoted" \\ back\nslash, {brace} = ü'
    metric = next(metric for metric in METRICS if metric.labels == ("store", "topic", "group"))
    text = text_of([Sample(metric, (odd, odd, odd), 1)], openmetrics=openmetrics)
    (family,) = Values(text).families.values()
    assert family.samples[0].labels == dict.fromkeys(("store", "topic", "group"), odd)


def test_without_the_library_the_error_says_what_to_install(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidRequestError, match=re.escape("pip install 'pylogtable[metrics]'")):
        store_metrics(store)
