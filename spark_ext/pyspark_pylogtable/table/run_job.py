"""`pylogtable run` as a Spark job: the entry point `pylogtable-run-job`.

The loop is the library's, in the driver. Compactions and merges that are large run on executors.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

from pyspark.sql import SparkSession

from pylogtable.engine import (
    MAINTENANCE_JOBS,
    LineFormatter,
    parse_duration,
    protected_groups,
)
from pylogtable.metrics import serve_metrics
from pylogtable.run import JobRun, Loop, RunOptions
from pyspark_pylogtable.table.jobs import where_it_pays
from pyspark_pylogtable.table.maintain_job import maintain_once, maintenance_parser
from pyspark_pylogtable.table.scheduled_job import ScheduledJob


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    asked = parser.parse_args(argv)
    is_endless = not (asked.once or asked.dry_run)
    if asked.metrics_port is not None and not is_endless:
        parser.error("--metrics-port is for a job that goes on")
    _set_up_logs(asked.log_level, asked.log_format)
    job = ScheduledJob("run", asked)
    store = job.open_store()
    told: list[Callable[[JobRun], object]] = [partial(_show, asked.output)]
    options = RunOptions(
        topics=asked.topic,
        jobs=[name.strip() for name in asked.jobs.split(",")] if asked.jobs else None,
        every_seconds=parse_duration(asked.every).total_seconds(),
        protect_groups=asked.protect_group,
        on_job=lambda run: [tell(run) for tell in told],
    )
    if not is_endless:
        maintain_once(job, store, options.wanted)
        return
    if asked.protect_group:  # a group that no topic has is most likely misspelt
        protected_groups(store, asked.protect_group, asked.topic or store.topics())
    loop = Loop(store, options, where_it_pays(SparkSession.builder.getOrCreate()))
    with ExitStack() as stack:
        if asked.metrics_port is not None:
            served = stack.enter_context(
                serve_metrics(store, asked.metrics_port, command="run", topics=asked.topic)
            )
            told.insert(0, served.job_ran)
        stack.enter_context(_stopped_by_sigterm(loop))
        loop.run()


def _parser() -> argparse.ArgumentParser:
    parser = maintenance_parser(
        "pylogtable-run-job",
        "Looks after the topics of a store until it is cancelled. Heavy work runs on executors.",
    )
    parser.add_argument(
        "--every", default="1s", help="how often each topic is looked at, such as 2s"
    )
    parser.add_argument("--once", action="store_true", help="do what is due now, and end")
    names = ", ".join(MAINTENANCE_JOBS)
    parser.add_argument("--jobs", help=f"only these, separated by commas: {names}")
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning"],
        help="info for what is done, debug for each request too",
    )
    parser.add_argument("--log-format", choices=["text", "json"], default="text")
    parser.add_argument(
        "--metrics-port", type=int, help="serve metrics for Prometheus at this port of the driver"
    )
    return parser


def _set_up_logs(level: str | None, form: Literal["text", "json"]) -> None:
    """Log to standard error, unless the platform has logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(handlers=[handler])
    if level is not None:
        logging.getLogger("pylogtable").setLevel(level.upper())


def _show(output: str, run: JobRun) -> None:
    """Publications come every second, so people see only what else was done."""
    if not (run.error or run.has_changed):
        return
    if output == "json":
        report: Any = None if run.report is None else asdict(run.report)
        error = None if run.error is None else f"{type(run.error).__name__}: {run.error}"
        shown = {"job": run.job, "topic": run.topic, "report": report, "error": error}
        print(json.dumps(shown, default=list), flush=True)
    elif run.error or run.job != "publication":
        print(run, flush=True)


@contextmanager
def _stopped_by_sigterm(loop: Loop) -> Iterator[None]:
    """End after the running commits. Notebooks run code in another thread, where no signal can be
    caught."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: loop.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
