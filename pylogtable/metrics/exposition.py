"""Samples as the text that Prometheus reads, by prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pylogtable.errors import InvalidRequestError
from pylogtable.metrics.catalog import METRICS, Metric
from pylogtable.metrics.sample import Distribution, Sample


def library() -> Any:
    """prometheus-client, which is imported only when it is needed."""
    try:
        import prometheus_client
        import prometheus_client.core
        import prometheus_client.openmetrics.exposition
    except ImportError as error:
        raise InvalidRequestError(
            "this needs prometheus-client: pip install 'pylogtable[metrics]'"
        ) from error
    return prometheus_client


def registry_of(samples: Callable[[], Iterable[Sample]]) -> Any:
    """A registry that asks for samples at every scrape."""
    client = library()

    class Collector:
        def collect(self) -> Iterator[Any]:
            return _families(client.core, samples())

        def describe(self) -> list[Any]:
            return []  # so that nothing is measured before the first scrape

    registry = client.CollectorRegistry()
    registry.register(Collector())
    return registry


def text_of(samples: Iterable[Sample], *, openmetrics: bool) -> str:
    """The samples in the format of Prometheus, or in that of OpenMetrics."""
    found = list(samples)
    client = library()
    module = client.openmetrics.exposition if openmetrics else client.exposition
    text: bytes = module.generate_latest(registry_of(lambda: found))
    return text.decode()


def in_order(samples: Iterable[Sample]) -> dict[Metric, list[Sample]]:
    """The samples of each metric that has some, in the order of the catalog."""
    found: dict[Metric, list[Sample]] = {metric: [] for metric in METRICS}
    for sample in samples:
        found[sample.metric].append(sample)
    return {metric: mine for metric, mine in found.items() if mine}


def _families(core: Any, samples: Iterable[Sample]) -> Iterator[Any]:
    for metric, mine in in_order(samples).items():
        family = _family(core, metric)
        for sample in mine:
            if isinstance(sample.value, Distribution):
                bounds = [*map(_bound, sample.value.bounds), "+Inf"]
                buckets = list(zip(bounds, sample.value.counts, strict=True))
                family.add_metric(sample.labels, buckets, sample.value.sum)
            else:
                family.add_metric(sample.labels, sample.value)
        yield family


def _family(core: Any, metric: Metric) -> Any:
    makers = {
        "gauge": core.GaugeMetricFamily,
        "counter": core.CounterMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    make = makers[metric.kind]
    return make(metric.name, metric.help, labels=metric.labels, unit=metric.unit)


def _bound(bound: float) -> str:
    return str(float(bound))
