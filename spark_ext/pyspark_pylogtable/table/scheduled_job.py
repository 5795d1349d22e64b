"""What `maintain_job` and `mirror_job` have in common.

Each is `main` of a Databricks wheel task, the command of an EMR step, and what `spark-submit` runs.
If a topic fails, the others still run, and the job raises at the end, which all three treat as a
failure. It does not end the process or stop the session, since others may use them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

import pylogtable
from pylogtable import InvalidRequestError, LogTableError, Store
from pylogtable.engine import parse_storage_options
from pyspark_pylogtable.table.log_table import LogTable


class _OneValue(argparse.Action):
    """Refuses an option that is given with two values. argparse would take the last one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = namespace.__dict__.setdefault("given", {})
        if given.setdefault(self.dest, values) != values:
            parser.error(f"{option_string} takes one value, and two are given. Give one of them")
        setattr(namespace, self.dest, values)


def job_parser(prog: str, description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that all jobs have."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.register("action", None, _OneValue)
    parser.add_argument("store", help="the store of the topics, such as s3://bucket/logs")
    parser.add_argument("--topic", action="append", help="only this topic; may be repeated")
    parser.add_argument("--storage-options", help="a JSON object for the client of the store")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    return parser


@dataclass(frozen=True)
class Failed:
    """What became of a topic that failed."""

    topic: str
    error: str

    def __str__(self) -> str:
        return f"{self.topic}: FAILED: {self.error}"


@dataclass(frozen=True)
class ScheduledJob:
    """A job for topics of a store, with the arguments of `job_parser`. `what` is its name."""

    what: str
    asked: argparse.Namespace

    def open_store(self) -> Store:
        """The store of the topics."""
        return pylogtable.open(self.asked.store, storage_options=self._storage_options())

    def topics(self, store: Store) -> list[str]:
        """The topics that the job is for; raises if there are none."""
        names = list(dict.fromkeys(self.asked.topic or store.topics()))
        if not names:
            raise InvalidRequestError(f"there is no topic below {store.url}")
        return names

    def run(
        self,
        names: Sequence[str],
        work: Callable[[LogTable], Any],
        failed: Callable[[str, str], Any] = Failed,
    ) -> None:
        """Do the work for each topic, and print the reports of all. Raises at the end if there was
        an error. `failed` makes a report of a topic and its error."""
        spark = SparkSession.builder.getOrCreate()
        rows: list[dict[str, Any]] = []
        for name in names:
            path = f"{self.asked.store.rstrip('/')}/{name}"
            try:
                report = work(LogTable.for_path(spark, path, self._storage_options()))
            except Exception as error:  # a task may raise any, and the other topics must still run
                report = failed(name, f"{type(error).__name__}: {error}")
            rows.append({"error": None, **asdict(report)})
            if self.asked.output == "text":
                print(report, flush=True)
        if self.asked.output == "json":
            print(json.dumps(rows, indent=2), flush=True)
        wrong = [row["topic"] for row in rows if row["error"] is not None]
        if wrong:
            raise LogTableError(
                f"{self.what} failed for {len(wrong)} of {len(rows)} topic(s): {', '.join(wrong)}"
            )

    def _storage_options(self) -> dict[str, Any] | None:
        return parse_storage_options(self.asked.storage_options, "--storage-options")
