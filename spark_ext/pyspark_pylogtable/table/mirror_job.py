"""Mirrors of topics as a scheduled Spark job: the entry point `pylogtable-mirror-job`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pylogtable import InvalidRequestError
from pylogtable.engine import parse_storage_options
from pyspark_pylogtable.table.scheduled_job import ScheduledJob, job_parser


def main(argv: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(argv)
    options = {
        "to_storage_options": parse_storage_options(
            asked.to_storage_options, "--to-storage-options"
        ),
        "config": _settings(asked.config),
        **{name: getattr(asked, name) for name in ("groups", "retention", "allow_gaps")},
    }
    job = ScheduledJob("the mirror", asked)
    names = job.topics(job.open_store())
    job.run(names, lambda table: table.mirror(asked.to_store, **options))


def _settings(pairs: Sequence[str]) -> dict[str, str] | None:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise InvalidRequestError(f"--config {pair!r} is not name=value")
        if settings.setdefault(name, value) != value:
            raise InvalidRequestError(f"--config {name} is given twice: give it once")
    return settings or None


def _parser() -> argparse.ArgumentParser:
    parser = job_parser(
        "pylogtable-mirror-job",
        "Copy topics to another store, under the same offsets, and bring what is new.",
    )
    parser.add_argument("to_store", help="the store of the copies, such as s3://b/logs")
    parser.add_argument(
        "--groups", action="store_true", help="also copy the positions of consumer groups"
    )
    parser.add_argument(
        "--retention",
        choices=["source", "own"],
        help="whether copies have the records of their sources, or keep and remove records by "
        "their own settings",
    )
    parser.add_argument(
        "--config",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of new copies with --retention own; may be repeated",
    )
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="go on if a source has removed records before they were copied",
    )
    parser.add_argument(
        "--to-storage-options", help="the same for the second store; the same options without it"
    )
    return parser


if __name__ == "__main__":
    main()
