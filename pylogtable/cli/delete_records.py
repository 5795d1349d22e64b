"""`pylogtable delete-records`: delete the oldest records of partitions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.command import Command
from pylogtable.cli.messages import confirm, continue_on_error
from pylogtable.cli.options import complete_topics, dry_run_option, many, yes_option
from pylogtable.cli.output import print_json
from pylogtable.cli.parse import parse_position
from pylogtable.cli.session import Session
from pylogtable.presentation import count_text

if TYPE_CHECKING:
    from pylogtable import Topic
    from pylogtable.engine import Position

#: The new log start of each partition.
LogStarts = dict[int, "Position"]


@click.command(
    cls=Command,
    short_help="Delete the oldest records of partitions.",
    examples="""
        pylogtable delete-records orders --offset 0:1000 --offset 1:latest --dry-run
        pylogtable delete-records --offset-json-file delete.json --yes
    """,
    destroys=True,
)
@click.argument("topic", required=False, shell_complete=complete_topics)
@many(
    "--offset",
    "offsets",
    metavar="PARTITION:OFFSET",
    help="Delete the records before this offset, time or duration (7d: older than a week); latest "
    "or -1 deletes all.",
)
@click.option(
    "--offset-json-file",
    "file",
    metavar="FILE",
    help="File of the form that Kafka's tool takes: "
    '{"partitions": [{"topic": "orders", "partition": 0, "offset": 3}]}.',
)
@yes_option
@dry_run_option
def delete_records(
    session: Session,
    topic: str | None,
    offsets: tuple[str, ...],
    file: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete the oldest records of TOPIC, or of the topics in a file, by moving their log start.

    The records become unreadable at once. The space is freed by a later vacuum.
    """
    if (file is None) == (not offsets) or (file is None) != (topic is not None):
        raise click.UsageError("give TOPIC and --offset, or --offset-json-file alone")
    wanted = {str(topic): _from_options(offsets)} if file is None else _from_file(Path(file))
    opened = [(session.open_topic(name), starts) for name, starts in wanted.items()]
    # Everything is checked before the first record is deleted.
    plans = [_plan(one, starts) for one, starts in opened]
    if not dry_run:
        records = sum(max(0, new - old) for moves in plans for old, new in moves.values())
        confirm(f"make up to {count_text(records, 'record')} unreadable forever", yes)
    rows: list[dict[str, str | int]] = []
    for (one, _), moves in zip(opened, plans, strict=True):
        with continue_on_error(session, one.name):
            done = {number: new for number, (_, new) in moves.items()}
            if not dry_run:
                done = one.delete_records(done)
            rows += [
                {"topic": one.name, "partition": number, "low_watermark": start}
                for number, start in done.items()
            ]
    if session.is_json:
        print_json({"dry_run": dry_run, "partitions": rows})
        return
    for row in rows:
        place = f"partition: {row['topic']}-{row['partition']}"
        print(f"{place}\tlow_watermark: {row['low_watermark']}{' (dry run)' if dry_run else ''}")


def _plan(topic: Topic, starts: LogStarts) -> dict[int, tuple[int, int]]:
    """The old and new log start of each partition; raises if one cannot be moved there."""
    from pylogtable.engine import locate

    moves = {}
    for number, at in sorted(locate(topic.at(), starts).items()):
        if at.asked is not None and not 0 <= at.asked <= at.end:
            raise InvalidRequestError(
                f"offset {at.asked} of partition {number} of topic {topic.name!r} is out of range: "
                f"its end is {at.end}"
            )
        moves[number] = (at.log_start, at.nearest)
    return moves


def _from_options(offsets: tuple[str, ...]) -> LogStarts:
    wanted: LogStarts = {}
    for text in offsets:
        # As in Kafka, -1 is the end. So other numbers below 0 must not count from the end.
        match = re.fullmatch(r"(\d+):(-1|[^-].*)", text)
        if match is None:
            raise click.BadParameter(
                f"{text!r} is not PARTITION:OFFSET, such as 0:1000 or 0:latest",
                param_hint="--offset",
            )
        if int(match[1]) in wanted:
            raise click.BadParameter(f"partition {match[1]} is given twice", param_hint="--offset")
        position = "latest" if match[2] == "-1" else match[2]
        wanted[int(match[1])] = parse_position(position, "--offset")
    return wanted


def _from_file(path: Path) -> dict[str, LogStarts]:
    wanted: dict[str, LogStarts] = {}
    try:
        for entry in json.loads(path.read_text(encoding="utf-8"))["partitions"]:
            name, number, offset = entry["topic"], entry["partition"], entry["offset"]
            if not (isinstance(name, str) and type(number) is int and type(offset) is int):
                raise TypeError(f"{entry} has a value of a wrong type")
            if number in wanted.setdefault(name, {}):
                raise ValueError(f"partition {number} of topic {name!r} is given twice")
            position = "latest" if offset == -1 else offset
            wanted[name][number] = parse_position(position, "--offset-json-file")
    except (ValueError, KeyError, TypeError) as error:
        detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidRequestError(
            f"{path} is not an offset file as Kafka's tool takes it: {detail}"
        ) from error
    return wanted
