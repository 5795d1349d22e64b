"""Loops for the checker: the turn of a real loop on one topic that it believes to be its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pylogtable.errors import LogTableError
from pylogtable.limits import Limits
from pylogtable.run.kept_topic import KeptTopic
from pylogtable.run.options import RunOptions
from pylogtable.storage.base import ObjectStore
from tests.model.checker import Program, Told, Writer
from tests.model.publishers import open_topic
from tests.run.loops import one_by_one

#: Two small neighbours are worth a merge.
EAGER = Limits(merge_least=2)


def turns(name: str, jobs: Sequence[str], count: int = 1) -> Program:
    """Looks at the topic and runs the jobs that are due, as often as that. It tells what each job
    came to."""

    def program(store: ObjectStore, told: list[Told]) -> None:
        try:
            store.limits = EAGER
            kept = KeptTopic(open_topic(store, name), RunOptions(jobs=jobs), one_by_one, one_by_one)
            for _ in range(count):
                for job in kept.look():
                    told += [(name, _told(job, run.report, run.error)) for run in kept.run(job)]
        except LogTableError as error:
            told.append((name, ("failed", f"{type(error).__name__}: {error}")))

    return program


def _told(job: str, report: Any, error: LogTableError | None) -> tuple[Any, ...]:
    if error is not None:
        return "failed", f"{job}: {type(error).__name__}: {error}"
    if job == "publication":
        return "published", report.tables[0].version
    return (job,)


def loop(name: str, jobs: Sequence[str], count: int = 1) -> Writer:
    """After a crash another one takes its place."""
    again = Writer(f"{name}again", turns(f"{name}again", jobs, count))
    return Writer(name, turns(name, jobs, count), recovery=again)
