"""The metrics of a store once, for a file that node_exporter's textfile collector reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.metrics.build import build_sample
from pylogtable.metrics.exposition import in_order, text_of
from pylogtable.metrics.sample import Sample
from pylogtable.metrics.store_watch import StoreWatch
from pylogtable.store import Store


def store_metrics(
    store: Store,
    *,
    per_partition: bool = False,
    openmetrics: bool = False,
    on_error: Callable[[LogTableError], object] = lambda error: None,
) -> str:
    """The metrics of all topics of a store, as text in the format of Prometheus, which the textfile
    collector wants, or in that of OpenMetrics. With `per_partition`, also those of each partition.

    >>> Path("pylogtable.prom").write_text(pylogtable.metrics.store_metrics(store))

    A topic that cannot be read does not hide the others: `pylogtable_topic_up` is 0, and `on_error`
    is told why. It is the same with a store that cannot be listed, and `pylogtable_store_up`. A
    topic that is given as the store is refused.
    """
    return text_of(_samples(store, per_partition, on_error), openmetrics=openmetrics)


def store_metrics_json(
    store: Store,
    *,
    per_partition: bool = False,
    on_error: Callable[[LogTableError], object] = lambda error: None,
) -> list[dict[str, Any]]:
    """The same as a list of metrics, each with its samples."""
    return [
        {
            "name": metric.name,
            "type": metric.kind,
            "help": metric.help,
            "samples": [
                {"labels": dict(zip(metric.labels, one.labels, strict=True)), "value": one.value}
                for one in mine
            ],
        }
        for metric, mine in in_order(_samples(store, per_partition, on_error)).items()
    ]


def _samples(
    store: Store, per_partition: bool, on_error: Callable[[LogTableError], object]
) -> list[Sample]:
    watch = StoreWatch(store, per_partition=per_partition, on_error=on_error)
    return [build_sample(store.url, "metrics"), *watch.samples(at_once=True)]
