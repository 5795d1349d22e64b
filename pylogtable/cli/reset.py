"""`pylogtable groups reset`, with the options of kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.command import Command
from pylogtable.cli.output import note, print_json, print_table
from pylogtable.cli.session import Session, complete_groups, complete_topics, session, suggesting
from pylogtable.cli.values import parse_duration, parse_partitions, parse_time

if TYPE_CHECKING:
    from pylogtable import Group, ResetReport, Store

# Topics with the partitions to reset, None for all.
Scope = dict[str, list[int] | None]
To = str | int | datetime | timedelta | dict[int, int] | None


@click.command(
    cls=Command,
    short_help="Put a group elsewhere.",
    examples="""
        pylogtable groups reset billing --topic orders --to-earliest
        pylogtable groups reset billing --topic orders:0,1 --to-offset 100 --execute
        pylogtable groups reset billing --all-topics --by-duration PT1H --execute
        pylogtable groups reset billing --all-topics --to-current --export > positions.csv
        pylogtable groups reset billing --from-file positions.csv --execute
    """,
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:LIST]",
    help="This topic, or these partitions of it: orders:0,2-4. May be repeated.",
    shell_complete=complete_topics,
)
@click.option("--all-topics", is_flag=True, help="Every topic where the group has a position.")
@click.option("--to-earliest", is_flag=True, help="To the beginning.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To where it is; the end, where it is nowhere.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset.")
@click.option("--shift-by", type=int, help="So many offsets forward, or back if negative.")
@click.option("--to-datetime", metavar="TIME", help="To the first record at or after a time.")
@click.option("--by-duration", metavar="DURATION", help="To so long ago: P1DT2H, 12h, 7d.")
@click.option("--from-file", metavar="FILE", help="To the lines topic,partition,offset of a file.")
@click.option("--execute", is_flag=True, help="Really do it.")
@click.option("--dry-run", is_flag=True, help="Only show it: the default.")
@click.option("--export", is_flag=True, help="Print topic,partition,offset lines for --from-file.")
@click.pass_context
def reset(
    context: click.Context,
    /,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    **where: Any,
) -> None:
    """Put GROUP elsewhere. Without --execute it only shows what would happen.

    What lies outside of the log becomes its beginning or its end, and is remarked on. A group with
    live members is refused.
    """
    mine = session(context)
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other", context)
    chosen = [name for name, value in where.items() if value not in (None, False)]
    if len(chosen) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in where)
        raise click.UsageError(f"say where to, by one of {names}", context)
    store = mine.open_store()
    if where["from_file"] is not None:
        if topics or all_topics:
            raise click.UsageError(
                "a file names its topics: leave out --topic, --all-topics", context
            )
        plans = _from_file(Path(where["from_file"]), group)
        jobs = [_Job(_group_in(store, name, group), to=to) for name, to in plans.items()]
    else:
        if bool(topics) == all_topics:
            raise click.UsageError("say where: --topic, or --all-topics", context)
        scope = _scope(topics) if topics else _everywhere(store, group)
        to, shift_by = _target(chosen[0], where[chosen[0]])
        jobs = [
            _Job(_group_in(store, name, group), to=to, shift_by=shift_by, partitions=partitions)
            for name, partitions in scope.items()
        ]
    # All are tried before the first is changed.
    reports = [job.run(dry_run=True) for job in jobs]
    if execute:
        reports = [job.run(dry_run=False) for job in jobs]
    _tell(mine, group, reports, execute=execute, export=export)


class _Job:
    """What is to be done in one topic."""

    def __init__(
        self,
        group: Group,
        *,
        to: To,
        shift_by: int | None = None,
        partitions: Sequence[int] | None = None,
    ) -> None:
        self._group = group
        self._to = to
        self._shift_by = shift_by
        self._partitions = partitions

    def run(self, *, dry_run: bool) -> ResetReport:
        with warnings.catch_warnings():
            # The report says the same.
            warnings.simplefilter("ignore")
            return self._group.reset(
                self._to, shift_by=self._shift_by, partitions=self._partitions, dry_run=dry_run
            )


def _group_in(store: Store, topic: str, group: str) -> Group:
    with suggesting(store, topic):
        return store.topic(topic).group(group)


def _target(option: str, value: Any) -> tuple[To, int | None]:
    if option == "shift_by":
        return None, value
    if option == "to_datetime":
        return parse_time(value, "--to-datetime"), None
    if option == "by_duration":
        return parse_duration(value, "--by-duration"), None
    return (value if option == "to_offset" else option.removeprefix("to_")), None


def _scope(topics: tuple[str, ...]) -> Scope:
    scope: Scope = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if name in scope:
            raise click.BadParameter(f"{name!r} is named twice", param_hint="--topic")
        scope[name] = parse_partitions(numbers) if colon else None
    return scope


def _everywhere(store: Store, group: str) -> Scope:
    topics = store.groups().get(group)
    if not topics:
        raise InvalidRequestError(
            f"there is no group {group!r} below {store.url}; name a topic to begin with"
        )
    return dict.fromkeys(topics)


def _from_file(path: Path, group: str) -> dict[str, dict[int, int]]:
    """Positions by topic, from lines with or without the group in front."""
    plans: dict[str, dict[int, int]] = {}
    try:
        # With the mark that some editors put in front.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not text in UTF-8: {error}") from None
    with io.StringIO(text, newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            *named, topic, partition, offset = [cell.strip() for cell in ["", *row]]
            if named not in ([""], ["", group]) or not (partition.isdigit() and offset.isdigit()):
                raise InvalidRequestError(
                    f"{path}, line {number}: {','.join(row)!r} is not topic,partition,offset"
                )
            if int(partition) in plans.setdefault(topic, {}):
                raise InvalidRequestError(
                    f"{path}, line {number}: partition {partition} of {topic} is named twice"
                )
            plans[topic][int(partition)] = int(offset)
    if not plans:
        raise InvalidRequestError(f"{path} holds no position")
    return plans


def _tell(
    mine: Session, group: str, reports: Iterable[ResetReport], *, execute: bool, export: bool
) -> None:
    rows = [(report.topic, move) for report in reports for move in report]
    if export:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerows((topic, move.partition, move.new) for topic, move in rows)
        return
    if mine.is_json:
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
            note(mine, f"{topic}, partition {move.partition}: {move.note}")
    if not execute:
        note(mine, "nothing was changed; say --execute to do it")
