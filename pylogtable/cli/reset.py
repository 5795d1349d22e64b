"""`pylogtable groups reset`, with the options of kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pylogtable import InvalidRequestError, LogTableError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import continue_on_error, note
from pylogtable.cli.options import COUNT, complete_groups, complete_topics
from pylogtable.cli.output import print_json, print_table
from pylogtable.cli.parse import parse_duration, parse_partitions, parse_time
from pylogtable.cli.session import Session, suggest_topics

if TYPE_CHECKING:
    from pylogtable import Group, ResetReport, Store

#: The partitions to reset by topic; None means all of them.
Scope = dict[str, list[int] | None]
To = str | int | datetime | timedelta | dict[int, int] | None


def _target(given: Mapping[str, Any]) -> tuple[str, Any]:
    """The only option for the new position that was given, and its value. 0 is a value, too."""
    found = [(name, at) for name, at in given.items() if at is not None and at is not False]
    if len(found) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"give exactly one target out of {names}")
    return found[0]


def _position(option: str, value: Any) -> To:
    """The position as `Group.reset` takes it; None for a shift."""
    if option == "to_datetime":
        return parse_time(value, "--to-datetime")
    if option == "by_duration":
        return parse_duration(value, "--by-duration")
    word = option.removeprefix("to_")
    return word if word in ("earliest", "latest", "current") else value


@click.command(
    cls=Command,
    short_help="Move a group to other positions.",
    examples="""
        pylogtable groups reset billing --topic orders --to-earliest
        pylogtable groups reset billing --topic orders:0,1 --to-offset 100 --execute
        pylogtable groups reset billing --all-topics --by-duration PT1H --execute
        pylogtable groups reset billing --all-topics --to-current --export > positions.csv
        pylogtable groups reset billing --from-file positions.csv --execute
    """,
    destroys=True,
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:LIST]",
    help="This topic, or these partitions of it, such as orders:0,2-4. May be repeated.",
    shell_complete=complete_topics,
)
@click.option("--all-topics", is_flag=True, help="Every topic in which the group has a position.")
@click.option("--to-earliest", is_flag=True, help="Move to the start of the log.")
@click.option("--to-latest", is_flag=True, help="Move to the end of the log.")
@click.option(
    "--to-current",
    is_flag=True,
    help="Keep the positions; move to the end where the group has none.",
)
@click.option("--to-offset", type=COUNT, help="Move to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Move by N offsets; back if N is negative.")
@click.option("--to-datetime", metavar="TIME", help="Move to the first record at or after a time.")
@click.option(
    "--by-duration",
    metavar="DURATION",
    help="Move back by a duration, such as 12h, 7d or P1DT2H: to the first record since then.",
)
@click.option(
    "--from-file", metavar="FILE", help="Move to the topic,partition,offset lines of a file."
)
@click.option("--execute", is_flag=True, help="Do it. Without this option nothing is changed.")
@click.option("--dry-run", is_flag=True, help="Only show the new positions; the default.")
@click.option("--export", is_flag=True, help="Print topic,partition,offset lines for --from-file.")
def reset(
    session: Session,
    /,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    **given: Any,
) -> None:
    """Move GROUP to other positions. Without --execute, only show them.

    A position outside of the log becomes its start or its end, with a note. A group that has live
    members is not moved.
    """
    if execute and dry_run:
        raise click.UsageError("give --execute or --dry-run, not both")
    option, value = _target(given)
    shift_by = value if option == "shift_by" else None
    to = None if shift_by is not None else _position(option, value)
    store = session.open_store()
    if option == "from_file":
        if topics or all_topics:
            raise click.UsageError("the file names its topics: leave out --topic and --all-topics")
        file = _read_file(Path(value), group)
        jobs = [_Job(_open_group(store, name, group), offsets) for name, offsets in file.items()]
    else:
        if bool(topics) == all_topics:
            raise click.UsageError("give --topic or --all-topics")
        scope: Scope = (
            _parse_scope(topics) if topics else dict.fromkeys(_topics_of_group(store, group))
        )
        jobs = [
            _Job(_open_group(store, name, group), to, shift_by, partitions)
            for name, partitions in scope.items()
        ]
    # Try all topics as a dry run before changing the first one.
    reports = [job.run(dry_run=True) for job in jobs]
    if execute:
        reports = []
        for job in jobs:
            with continue_on_error(session, job.group.topic_name):
                reports.append(job.run(dry_run=False))
    if export:
        _export(reports)
    else:
        _print_reports(session, group, reports, execute=execute)


@dataclass(frozen=True)
class _Job:
    """The reset of a group in one topic."""

    group: Group
    to: To
    shift_by: int | None = None
    partitions: list[int] | None = None

    def run(self, *, dry_run: bool) -> ResetReport:
        with warnings.catch_warnings():
            # The report contains the warnings as notes.
            warnings.simplefilter("ignore")
            return self.group.reset(
                self.to, shift_by=self.shift_by, partitions=self.partitions, dry_run=dry_run
            )


def _topics_of_group(store: Store, group: str) -> list[str]:
    """Every topic in which the group has a position; raises if a topic cannot be read, because the
    group may have a position in it."""
    from pylogtable import engine

    topics = []
    for topic, found in engine.groups_by_topic(store).items():
        if isinstance(found, LogTableError):
            raise InvalidRequestError(
                f"topic {topic!r} cannot be read: {found}; name the other topics with --topic"
            ) from found
        if group in found:
            topics.append(topic)
    if not topics:
        raise InvalidRequestError(
            f"there is no group {group!r} in {store.url}; to start one, name a topic with --topic"
        )
    return topics


def _open_group(store: Store, topic: str, group: str) -> Group:
    with suggest_topics(store, topic):
        return store.topic(topic).group(group)


def _parse_scope(topics: Iterable[str]) -> Scope:
    scope: Scope = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if name in scope:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--topic")
        scope[name] = parse_partitions(numbers) if colon else None
    return scope


def _read_file(path: Path, group: str) -> Mapping[str, dict[int, int]]:
    """Positions by topic, from topic,partition,offset lines; each may begin with the group."""
    found: dict[str, dict[int, int]] = {}
    try:
        # utf-8-sig skips the byte order mark that some editors write.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text: {error}") from None
    with io.StringIO(text, newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            *named, topic, partition, offset = [cell.strip() for cell in ["", *row]]
            if named not in ([""], ["", group]) or not (partition.isdigit() and offset.isdigit()):
                raise InvalidRequestError(
                    f"{path}, line {number}: {','.join(row)!r} is not topic,partition,offset"
                )
            if int(partition) in found.setdefault(topic, {}):
                raise InvalidRequestError(
                    f"{path}, line {number}: partition {partition} of {topic} is given twice"
                )
            found[topic][int(partition)] = int(offset)
    if not found:
        raise InvalidRequestError(f"{path} contains no position")
    return found


def _export(reports: Iterable[ResetReport]) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerows((r.topic, move.partition, move.new) for r in reports for move in r)


def _print_reports(
    session: Session, group: str, reports: Iterable[ResetReport], *, execute: bool
) -> None:
    rows = [(report.topic, move) for report in reports for move in report]
    if session.is_json:
        print_json(
            [
                {
                    "group": group,
                    "topic": topic,
                    "partition": move.partition,
                    "old_offset": move.old,
                    "new_offset": move.new,
                    "note": move.note or None,
                    "dry_run": not execute,
                }
                for topic, move in rows
            ]
        )
        return
    print_table(
        ("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"),
        ((group, topic, move.partition, move.old, move.new) for topic, move in rows),
        left=("GROUP", "TOPIC"),
    )
    for topic, move in rows:
        if move.note:
            note(session, f"{topic}, partition {move.partition}: {move.note}")
    if not execute:
        note(session, "nothing was changed; add --execute to do it")
