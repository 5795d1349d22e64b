"""Maintenance of a store as a scheduled Spark job: the entry point `pylogtable-maintain-job`.

It is `main` of a Databricks wheel task, the command of an EMR step, and what `spark-submit` runs.
If a topic fails, the others still run, and the job raises at the end, which all three treat as a
failure. It does not end the process or stop the session, since others may use them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, MaintainReport
from pylogtable.engine import maintain, protected_groups
from pyspark_pylogtable.table.job_arguments import parse_storage_options
from pyspark_pylogtable.table.jobs import where_it_pays
from pyspark_pylogtable.table.log_table import LogTable


def main(argv: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(argv)
    options = parse_storage_options(asked.storage_options, "--storage-options")
    store = pylogtable.open(asked.store, storage_options=options)
    names = list(dict.fromkeys(asked.topic or store.topics()))
    if not names:
        raise InvalidRequestError(f"there is no topic below {store.url}")
    protected = protected_groups(store, asked.protect_group, names)
    spark = SparkSession.builder.getOrCreate()
    reports = []
    for name in names:
        path = f"{asked.store.rstrip('/')}/{name}"
        how = {
            "vacuum": asked.vacuum,
            "protect_groups": protected[name],
            "dry_run": asked.dry_run,
        }
        reports.append(_maintain(spark, path, name, options, how))
        if asked.output == "text":
            print(reports[-1], flush=True)
    if asked.output == "json":
        print(json.dumps([asdict(report) for report in reports], indent=2), flush=True)
    failed = [report.topic for report in reports if report.error is not None]
    if failed:
        raise LogTableError(
            f"maintenance failed for {len(failed)} of {len(names)} topic(s): {', '.join(failed)}"
        )


def _maintain(
    spark: SparkSession,
    path: str,
    name: str,
    options: dict[str, Any] | None,
    how: dict[str, Any],
) -> MaintainReport:
    try:
        topic = LogTable.for_path(spark, path, options).topic
        return maintain(topic, where_it_pays(spark), **how, report_errors=True)
    except Exception as error:  # a task may raise any error, and the other topics must still run
        return MaintainReport(topic=name, error=f"{type(error).__name__}: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pylogtable-maintain-job",
        description="Retention, compaction, merge and vacuum, as each topic's settings ask.",
    )
    parser.add_argument("store", help="a path or URL, such as s3://bucket/logs")
    parser.add_argument("--topic", action="append", help="only this topic; may be repeated")
    parser.add_argument("--no-vacuum", dest="vacuum", action="store_false", help="remove no files")
    parser.add_argument(
        "--protect-group",
        metavar="NAME",
        action="append",
        default=[],
        help="keep records that this consumer group has not read; may be repeated",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--storage-options", help="a JSON object for the store's client")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    return parser


if __name__ == "__main__":
    main()
