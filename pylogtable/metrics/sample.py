"""A value of a metric. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pylogtable.metrics.catalog import Metric


class Distribution(NamedTuple):
    """How many values were at most as large as each bound, the last being infinite, and their
    sum."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


class Sample(NamedTuple):
    """One value, with a value for each label of its metric."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Distribution
