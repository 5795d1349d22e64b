"""`pylogtable merge`, `compact`, `retain`, `vacuum` and `maintain`."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pylogtable.cli.command import Command
from pylogtable.cli.messages import asks_about_settings, confirm, progress, report_error, tell
from pylogtable.cli.options import (
    POSITIVE,
    dry_run_option,
    only_topics_option,
    protect_group_option,
    store_argument,
    threads_option,
    topic_argument,
    yes_option,
)
from pylogtable.cli.output import answer, print_json
from pylogtable.cli.parse import parse_duration
from pylogtable.cli.session import Session, topic_names
from pylogtable.cli.streams import is_terminal
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pylogtable import MaintainReport, Store


@click.command(
    cls=Command, short_help="Join small segments.", examples="pylogtable merge orders --threads 4"
)
@topic_argument
@threads_option
def merge(session: Session, topic: str, threads: int) -> None:
    """Join small segments of TOPIC and seal shifted ones. Offsets do not change."""
    opened = session.open_topic(topic)
    with progress(f"merging {opened.name}"):
        report = opened.merge(threads=threads)
    _print_report(session, opened.name, report)


@click.command(
    cls=Command,
    short_help="Keep the newest record of each key.",
    examples="""
        pylogtable compact users
        pylogtable compact users --force --budget-bytes 1073741824
    """,
    destroys=True,
)
@topic_argument
@click.option("--force", is_flag=True, help="Ignore min.cleanable.dirty.ratio.")
@click.option("--budget-bytes", type=POSITIVE, help="Memory for the keys of one partition.")
@threads_option
@yes_option
def compact(
    session: Session, topic: str, force: bool, budget_bytes: int | None, threads: int, yes: bool
) -> None:
    """Keep the newest record of each key of TOPIC. Its cleanup.policy must contain compact.

    It asks for confirmation on a terminal only.
    """
    opened = session.open_topic(topic)
    # Of a topic with another policy nothing is removed, and the library says why.
    if asks_about_settings(yes) and opened.describe().is_compacted:
        removed = "records that have a newer one with the same key, or have expired"
        action = f"remove the {removed}, of {opened.name} for good, as its settings say"
        confirm(action, yes, can_dry_run=False)
    budget = {} if budget_bytes is None else {"budget_bytes": budget_bytes}
    with progress(f"compacting {opened.name}"):
        report = opened.compact(force=force, threads=threads, **budget)
    _print_report(session, opened.name, report)


@click.command(
    cls=Command,
    short_help="Apply retention.ms and retention.bytes.",
    examples="""
        pylogtable retain orders --output json
        pylogtable retain orders --protect-group billing --dry-run
    """,
    destroys=True,
)
@topic_argument
@protect_group_option
@dry_run_option
@yes_option
def retain(
    session: Session, topic: str, protect_groups: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Remove the oldest records of TOPIC, as its retention.ms and retention.bytes say.

    It asks for confirmation on a terminal only.
    """
    opened = session.open_topic(topic)
    groups = list(protect_groups) or None
    if not dry_run and asks_about_settings(yes):
        found = opened.apply_retention(groups=groups, dry_run=True)
        if not found.log_starts:
            _print_report(session, opened.name, replace(found, dry_run=False))
            return
        records = count_text(found.records_removed, "record")
        why = "as its retention.ms and retention.bytes say"
        confirm(f"remove {records} of {opened.name} for good, {why}", yes)
    report = opened.apply_retention(groups=groups, dry_run=dry_run)
    _print_report(session, opened.name, report)


@click.command(
    cls=Command,
    short_help="Delete files that are no longer needed.",
    examples="""
        pylogtable vacuum orders
        pylogtable vacuum orders --yes
        pylogtable vacuum orders --keep 14d --yes
    """,
    destroys=True,
)
@topic_argument
@click.option("--yes", "-y", is_flag=True, help="Delete the files; the default is to list them.")
@click.option(
    "--keep",
    metavar="DURATION",
    help="Keep versions readable for this long, such as 14d.  [default: 7d]",
)
@click.option("--force", is_flag=True, help="Allow --keep of less than 7d.")
def vacuum(session: Session, topic: str, yes: bool, keep: str | None, force: bool) -> None:
    """List the files of TOPIC that no kept version needs, and delete them with --yes.

    With --keep of less than 7 days, running readers of older versions may fail. It needs --force.
    """
    kept = None if keep is None else parse_duration(keep, "--keep")
    opened = session.open_topic(topic)
    kept_ms = None if kept is None else round(kept.total_seconds() * 1000)
    with progress(f"vacuuming {opened.name}"):
        report = opened.vacuum(dry_run=not yes, retention_ms=kept_ms, force=force)
    if not session.is_json:
        for file in report.files:
            print(file)
    is_asking = report.dry_run and report.files
    _print_report(session, opened.name, report, "; add --yes to delete them" if is_asking else "")


@click.command(
    cls=Command,
    short_help="Retain, compact, merge and vacuum all topics.",
    examples="""
        pylogtable maintain s3://bucket/logs --output json
        pylogtable maintain ./logs --topic orders --no-vacuum
        pylogtable maintain ./logs --dry-run
    """,
    destroys=True,
)
@store_argument
@only_topics_option
@click.option("--no-vacuum", is_flag=True, help="Skip the vacuum.")
@protect_group_option
@dry_run_option
@threads_option
@yes_option
def maintain(
    session: Session,
    store: str | None,
    topics: tuple[str, ...],
    no_vacuum: bool,
    protect_groups: tuple[str, ...],
    dry_run: bool,
    threads: int,
    yes: bool,
) -> None:
    """Apply retention, compaction, merge and vacuum to all topics of STORE, as their settings say.

    For schedulers: it asks for confirmation on a terminal only. A topic that fails does not stop
    the others; the exit status is 1.
    """
    from pylogtable import engine

    opened = session.open_store(store)
    names = list(dict.fromkeys(topics or topic_names(opened)))
    protected = engine.protected_groups(opened, list(protect_groups), names)
    jobs = [job for job in engine.MAINTENANCE_JOBS if job != "vacuum" or not no_vacuum]
    if not dry_run:
        confirm_jobs(jobs, f"{count_text(len(names), 'topic')} of {opened.url}", yes)
    reports = [
        maintain_topic(session, opened, place, protected, jobs, dry_run=dry_run, threads=threads)
        for place in places(names)
    ]
    if session.is_json:
        print_json(reports)


class Place(NamedTuple):
    """A topic, and which of how many it is."""

    topic: str
    number: int
    total: int

    def __str__(self) -> str:
        return f"[{self.number}/{self.total}] {self.topic}"


def places(topics: Sequence[str]) -> list[Place]:
    """The topics, each with its place among them."""
    return [Place(topic, number, len(topics)) for number, topic in enumerate(topics, 1)]


def confirm_jobs(jobs: Sequence[str], topics: str, yes: bool, *, also: str = "") -> None:
    """Ask people before these jobs run. `topics` says of what, and `also` what else is done."""
    if not asks_about_settings(yes):
        return
    steps = [also] if also else []
    if jobs:
        *others, last = [job.replace("_", " ") for job in jobs]
        named = f"{', '.join(others)} and {last}" if others else last
        steps.insert(0, f"apply {named} to {topics}")
        steps.append("and remove records and files for good, as the settings say")
    confirm(", ".join(steps), yes)


def maintain_topic(
    session: Session,
    store: Store,
    place: Place,
    protected: Mapping[str, Sequence[str]],
    jobs: Sequence[str],
    *,
    dry_run: bool,
    threads: int,
) -> MaintainReport:
    """Run these jobs on a topic, and tell people what they did."""
    name = place.topic
    if is_terminal(sys.stderr):
        tell(session, f"{place} …")
    [report] = store.maintain(
        [name], jobs=jobs, threads=threads, protect_groups=protected[name], dry_run=dry_run
    )
    if report.error is not None:
        report_error(session, "MaintainError", f"{name}: {report.error}", topic=name)
    if not session.is_json and (report.error is None or report.did_something):
        print(report, flush=True)
    return report


def _print_report(session: Session, topic: str, report: Any, hint: str = "") -> None:
    answer(session, {"topic": topic, **asdict(report)}, f"{topic}: {report}{hint}")
