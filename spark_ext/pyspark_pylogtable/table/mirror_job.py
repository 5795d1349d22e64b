"""Mirrors of topics as a scheduled Spark job: the entry point `pylogtable-mirror-job`.

It has the manners of `maintain_job`: if a topic fails, the others are still mirrored, and the job
raises at the end. It does not end the process or stop the session.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, MirrorReport
from pyspark_pylogtable.table.job_arguments import parse_storage_options
from pyspark_pylogtable.table.log_table import LogTable


@dataclass(frozen=True)
class Outcome:
    """What became of one topic: a report, or an error."""

    topic: str
    report: MirrorReport | None = None
    error: str | None = None

    def __str__(self) -> str:
        return f"{self.topic}: {self.error}" if self.report is None else str(self.report)

    def as_json(self) -> dict[str, Any]:
        report = {} if self.report is None else asdict(self.report)
        return {"topic": self.topic, **report, "error": self.error}


def main(argv: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(argv)
    options = parse_storage_options(asked.storage_options, "--storage-options")
    to_options = parse_storage_options(asked.to_storage_options, "--to-storage-options")
    how = {
        "to_storage_options": to_options,
        "groups": asked.groups,
        "retention": asked.retention,
        "config": _settings(asked.config),
        "allow_gaps": asked.allow_gaps,
    }
    store = pylogtable.open(asked.store, storage_options=options)
    names = list(dict.fromkeys(asked.topic or store.topics()))
    if not names:
        raise InvalidRequestError(f"there is no topic below {store.url}")
    spark = SparkSession.builder.getOrCreate()
    outcomes = []
    for name in names:
        path = f"{asked.store.rstrip('/')}/{name}"
        outcomes.append(_mirror(spark, path, name, options, (asked.to_store, how)))
        if asked.output == "text":
            print(outcomes[-1], flush=True)
    if asked.output == "json":
        print(json.dumps([outcome.as_json() for outcome in outcomes], indent=2), flush=True)
    failed = [outcome.topic for outcome in outcomes if outcome.error is not None]
    if failed:
        raise LogTableError(
            f"the mirror failed for {len(failed)} of {len(names)} topic(s): {', '.join(failed)}"
        )


def _mirror(
    spark: SparkSession,
    path: str,
    name: str,
    options: dict[str, Any] | None,
    target: tuple[str, dict[str, Any]],
) -> Outcome:
    to_store, how = target
    try:
        report = LogTable.for_path(spark, path, options).mirror(to_store, **how)
    except Exception as error:  # a task may raise any error, and the other topics must still run
        return Outcome(name, error=f"{type(error).__name__}: {error}")
    return Outcome(name, report)


def _settings(pairs: Sequence[str]) -> dict[str, str] | None:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidRequestError(f"--config {pair!r} is not name=value")
        settings[name.strip()] = value.strip()
    return settings or None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pylogtable-mirror-job",
        description="Copy topics to another store, under the same offsets, and bring what is new.",
    )
    parser.add_argument("store", help="the store of the topics, such as s3://a/logs")
    parser.add_argument("to_store", help="the store of the copies, such as s3://b/logs")
    parser.add_argument("--topic", action="append", help="only this topic; may be repeated")
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
    parser.add_argument("--storage-options", help="a JSON object for the client of the first store")
    parser.add_argument(
        "--to-storage-options", help="the same for the second store; the same options without it"
    )
    parser.add_argument("--output", choices=["text", "json"], default="text")
    return parser


if __name__ == "__main__":
    main()
