"""`pylogtable merge`, `compact`, `retain`, `vacuum` and `maintain`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from pylogtable.cli.command import Command
from pylogtable.cli.output import bytes_text, complain, counted, print_json, progress
from pylogtable.cli.session import Session, all_topics, complete_topics, session
from pylogtable.cli.values import parse_duration

if TYPE_CHECKING:
    from pylogtable import MaintainReport, RewriteReport

_threads = click.option(
    "--threads",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Units at a time.",
)
_protect = click.option(
    "--protect-group",
    multiple=True,
    metavar="GROUP",
    help="Keep what this consumer group has not read; may be repeated.",
)


@click.command(
    cls=Command, short_help="Join small segments.", examples="pylogtable merge orders --threads 4"
)
@click.argument("topic", shell_complete=complete_topics)
@_threads
@click.pass_context
def merge(context: click.Context, topic: str, threads: int) -> None:
    """Join small segments of TOPIC and seal shifted ones; offsets stay as they are."""
    mine = session(context)
    opened = mine.open_topic(topic)
    with progress(f"merging {opened.name}"):
        report = opened.merge(threads=threads)
    _tell(mine, opened.name, report, _rewritten(report))


@click.command(
    cls=Command,
    short_help="Keep the newest record of each key.",
    examples="""
        pylogtable compact users
        pylogtable compact users --force --budget-bytes 1073741824
    """,
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--force", is_flag=True, help="Whatever min.cleanable.dirty.ratio says.")
@click.option("--budget-bytes", type=click.IntRange(1), help="Memory for the keys of a partition.")
@_threads
@click.pass_context
def compact(
    context: click.Context, topic: str, force: bool, budget_bytes: int | None, threads: int
) -> None:
    """Keep the newest record of each key of TOPIC; its cleanup.policy has to contain compact."""
    mine = session(context)
    opened = mine.open_topic(topic)
    budget = {} if budget_bytes is None else {"budget_bytes": budget_bytes}
    with progress(f"compacting {opened.name}"):
        report = opened.compact(force=force, threads=threads, **budget)
    _tell(mine, opened.name, report, _rewritten(report))


@click.command(
    cls=Command,
    short_help="Apply retention.ms and retention.bytes.",
    examples="""
        pylogtable retain orders --output json
        pylogtable retain orders --protect-group billing
    """,
)
@click.argument("topic", shell_complete=complete_topics)
@_protect
@click.pass_context
def retain(context: click.Context, topic: str, protect_group: tuple[str, ...]) -> None:
    """Let go of what is older or more than retention.ms and retention.bytes of TOPIC allow."""
    mine = session(context)
    opened = mine.open_topic(topic)
    report = opened.apply_retention(groups=list(protect_group) or None)
    moved = " ".join(f"{number}:{start}" for number, start in sorted(report.log_starts.items()))
    _tell(
        mine,
        opened.name,
        report,
        f"removed {counted(report.records_removed, 'record')} in "
        f"{counted(report.segments_removed, 'segment')}"
        + (f", log start is now {moved}" if moved else ""),
    )


@click.command(
    cls=Command,
    short_help="Remove files that no kept version needs.",
    examples="""
        pylogtable vacuum orders
        pylogtable vacuum orders --yes
        pylogtable vacuum orders --keep 14d --yes
    """,
)
@click.argument("topic", shell_complete=complete_topics)
@click.option("--yes", "-y", is_flag=True, help="Really remove them.")
@click.option(
    "--keep",
    metavar="DURATION",
    help="Versions of this time stay readable, 7d by default; with less, who reads a version that "
    "was replaced meanwhile fails.",
)
@click.pass_context
def vacuum(context: click.Context, topic: str, yes: bool, keep: str | None) -> None:
    """Show which files of TOPIC no version needs that is kept, and remove them with --yes."""
    mine = session(context)
    kept = None if keep is None else parse_duration(keep, "--keep")
    opened = mine.open_topic(topic)
    kept_ms = None if kept is None else round(kept.total_seconds() * 1000)
    with progress(f"vacuuming {opened.name}"):
        report = opened.vacuum(dry_run=not yes, retention_ms=kept_ms)
    if not mine.is_json:
        for file in report.files:
            print(file)
    verb, hint = ("would remove", "; say --yes to do it") if report.dry_run else ("removed", "")
    said = f"{verb} {counted(len(report.files), 'file')}, {bytes_text(report.size_bytes)}"
    _tell(mine, opened.name, report, said + (hint if report.files else ""))


@click.command(
    cls=Command,
    short_help="All of these, as the topics' settings ask.",
    examples="""
        pylogtable maintain s3://bucket/logs --output json
        pylogtable maintain ./logs --topic orders --no-vacuum
    """,
)
@click.argument("store", required=False)
@click.option(
    "--topic",
    multiple=True,
    help="This topic alone; may be repeated.",
    shell_complete=complete_topics,
)
@click.option("--no-vacuum", is_flag=True, help="Remove no files.")
@_protect
@_threads
@click.pass_context
def maintain(
    context: click.Context,
    store: str | None,
    topic: tuple[str, ...],
    no_vacuum: bool,
    protect_group: tuple[str, ...],
    threads: int,
) -> int:
    """Retention, compaction, merge and vacuum, as each topic's settings ask; for schedulers.

    A topic that fails does not keep the others from their turn; the status is 1 then.
    """
    from pylogtable import engine

    mine = session(context)
    opened = mine.open_store(store)
    names = list(dict.fromkeys(topic or all_topics(opened)))
    protected = engine.protected_groups(opened, list(protect_group), names)
    reports: list[MaintainReport] = []
    for number, name in enumerate(names, 1):
        if sys.stderr.isatty():
            print(f"[{number}/{len(names)}] {name} …", file=sys.stderr, flush=True)
        for report in opened.maintain(
            [name], vacuum=not no_vacuum, threads=threads, protect_groups=protected[name]
        ):
            reports.append(report)
            if report.error is not None:
                complain(mine, "MaintainError", f"{report.topic}: {report.error}", topic=name)
            if not mine.is_json and (report.error is None or report.did_something):
                print(report, flush=True)
    if mine.is_json:
        print_json([asdict(report) for report in reports])
    return 1 if any(report.error is not None for report in reports) else 0


def _tell(mine: Session, topic: str, report: Any, text: str) -> None:
    if mine.is_json:
        print_json({"topic": topic, **asdict(report)})
    else:
        print(f"{topic}: {text}; {report.seconds:.1f} s")


def _rewritten(report: RewriteReport) -> str:
    text = f"{counted(report.segments_in, 'segment')} became {report.segments_out}"
    if report.records_removed:
        text += f", {report.records_removed} of {report.records_in} records removed"
    if report.skipped:
        text += f", {report.skipped} units skipped, since another job was there first"
    return text
