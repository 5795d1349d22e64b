"""Maintenance of a store as a scheduled Spark job: the entry point `pylogtable-maintain-job`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession

from pylogtable import MaintainReport, Store
from pylogtable.engine import MAINTENANCE_JOBS, maintain, protected_groups
from pyspark_pylogtable.table.jobs import where_it_pays
from pyspark_pylogtable.table.log_table import LogTable
from pyspark_pylogtable.table.scheduled_job import ScheduledJob, job_parser


def main(argv: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(argv)
    job = ScheduledJob("maintenance", asked)
    jobs = [name for name in MAINTENANCE_JOBS if asked.vacuum or name != "vacuum"]
    maintain_once(job, job.open_store(), jobs)


def maintain_once(job: ScheduledJob, store: Store, jobs: Sequence[str]) -> None:
    """Run these maintenance jobs on each topic, with the arguments of `maintenance_parser`."""
    asked = job.asked
    names = job.topics(store)
    protected = protected_groups(store, asked.protect_group, names)
    run_units = where_it_pays(SparkSession.builder.getOrCreate())

    def work(table: LogTable) -> MaintainReport:
        return maintain(
            table.topic,
            run_units,
            jobs=jobs,
            protect_groups=protected[table.topic.name],
            dry_run=asked.dry_run,
            report_errors=True,
        )

    job.run(names, work, lambda topic, error: MaintainReport(topic=topic, error=error))


def _parser() -> argparse.ArgumentParser:
    parser = maintenance_parser(
        "pylogtable-maintain-job",
        "Retention, compaction, merge and vacuum, as each topic's settings ask.",
    )
    parser.add_argument("--no-vacuum", dest="vacuum", action="store_false", help="remove no files")
    return parser


def maintenance_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that maintenance has, once or again and again."""
    parser = job_parser(prog, description)
    parser.add_argument(
        "--protect-group",
        metavar="NAME",
        action="append",
        default=[],
        help="keep records that this consumer group has not read; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    return parser


if __name__ == "__main__":
    main()
