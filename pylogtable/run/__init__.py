"""One optional process that keeps a store in shape, and its published tables fresh.

>>> import pylogtable
>>> from pylogtable.run import Loop, RunOptions
>>> Loop(pylogtable.open("s3://bucket/logs"), RunOptions()).run()
"""

from __future__ import annotations

from pylogtable.run.job_run import JobRun
from pylogtable.run.kafka_imports import KafkaImports
from pylogtable.run.loop import Loop
from pylogtable.run.options import JOB_NAMES, RunOptions

__all__ = ["JOB_NAMES", "JobRun", "KafkaImports", "Loop", "RunOptions"]
