"""Metrics of a store and of a process, for Prometheus. Needs the extra `metrics`.

>>> import pylogtable.metrics
>>> print(pylogtable.metrics.store_metrics(store))
>>> with pylogtable.metrics.serve_metrics(store, 9464, command="run") as served:
...     served.job_ran(job_run)

Which modules a new metric touches:

| step                 | module                                                             |
|----------------------|--------------------------------------------------------------------|
| name it              | `catalog.py`: its name, help and labels; the table in `README.md`  |
| of a topic           | `topic_figures.py` measures it, `topic_samples.py` gives it        |
| of this process      | `process_account.py`                                               |
| draw it, alert on it | `examples/monitoring/`                                             |
"""

from __future__ import annotations

from pylogtable.metrics.serve import MetricsServer, serve_metrics
from pylogtable.metrics.store_metrics import store_metrics, store_metrics_json

__all__ = ["MetricsServer", "serve_metrics", "store_metrics", "store_metrics_json"]
