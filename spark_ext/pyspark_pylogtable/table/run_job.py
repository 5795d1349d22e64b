"""`pylogtable run` as a Spark job: the entry point `pylogtable-run-job`.

The loop is the library's, in the driver. Compactions and merges that are large run on executors.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

from pylogtable.engine import MAINTENANCE_JOBS, parse_duration
from pylogtable.run import JobRun, Loop, RunOptions
from pyspark_pylogtable.table.jobs import where_it_pays
from pyspark_pylogtable.table.maintain_job import maintain_once, maintenance_parser
from pyspark_pylogtable.table.scheduled_job import ScheduledJob


def main(argv: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(argv)
    logging.basicConfig()  # the traceback of a bug in a job, unless the platform has logs
    job = ScheduledJob("run", asked)
    store = job.open_store()
    options = RunOptions(
        topics=asked.topic,
        jobs=[name.strip() for name in asked.jobs.split(",")] if asked.jobs else None,
        every_seconds=parse_duration(asked.every).total_seconds(),
        protect_groups=asked.protect_group,
        on_job=lambda run: _show(run, asked.output),
    )
    if asked.once or asked.dry_run:
        maintain_once(job, store, options.wanted)
        return
    loop = Loop(store, options, where_it_pays(SparkSession.builder.getOrCreate()))
    with _stopped_by_sigterm(loop):
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
    return parser


def _show(run: JobRun, output: str) -> None:
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
