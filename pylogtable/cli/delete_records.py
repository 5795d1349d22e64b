"""`pylogtable delete-records`: make the beginning of partitions unreadable."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pylogtable import InvalidRequestError
from pylogtable.cli.command import Command
from pylogtable.cli.output import confirm, counted, print_json
from pylogtable.cli.session import complete_topics, session

if TYPE_CHECKING:
    from pylogtable import Topic

Wanted = dict[int, int | None]


@click.command(
    cls=Command,
    short_help="Move the log start of partitions.",
    examples="""
        pylogtable delete-records orders --offset 0:1000 --offset 1:latest --dry-run
        pylogtable delete-records --offset-json-file delete.json --yes
    """,
)
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="Everything below this offset goes; latest or -1 is the end.",
)
@click.option(
    "--offset-json-file",
    "file",
    metavar="FILE",
    help='As Kafka takes it: {"partitions": [{"topic": "orders", "partition": 0, "offset": 3}]}.',
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.pass_context
def delete_records(
    context: click.Context,
    topic: str | None,
    offsets: tuple[str, ...],
    file: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Move the log start of TOPIC, or of the topics in a file; vacuum frees the space later."""
    mine = session(context)
    if (file is None) == (not offsets) or (file is None) != (topic is not None):
        raise click.UsageError("give TOPIC and --offset, or --offset-json-file alone", context)
    wanted = {str(topic): _from_options(offsets)} if file is None else _from_file(Path(file))
    opened = [(mine.open_topic(name), places) for name, places in wanted.items()]
    plans = [_checked(topic, places) for topic, places in opened]
    if not dry_run:
        records = sum(max(0, new - old) for plan in plans for old, new in plan.values())
        confirm(f"make up to {counted(records, 'record')} unreadable for ever", yes)
    rows = []
    for (one, places), plan in zip(opened, plans, strict=True):
        starts = {n: new for n, (_, new) in plan.items()} if dry_run else one.delete_records(places)
        rows += [
            {"topic": one.name, "partition": number, "low_watermark": start}
            for number, start in starts.items()
        ]
    if mine.is_json:
        print_json({"dry_run": dry_run, "partitions": rows})
        return
    for row in rows:
        place = f"partition: {row['topic']}-{row['partition']}"
        print(f"{place}\tlow_watermark: {row['low_watermark']}{' (dry run)' if dry_run else ''}")


def _checked(topic: Topic, places: Wanted) -> dict[int, tuple[int, int]]:
    """The log start of each partition, now and then; all is checked before anything is done."""
    view = topic.at()
    view.ranges(list(places))
    plan = {}
    for number, place in sorted(places.items()):
        start, end = view.start_offsets[number], view.end_offsets[number]
        offset = end if place is None else place
        if offset > end:
            raise InvalidRequestError(
                f"offset {offset} of partition {number} of topic {topic.name!r} is out of range: "
                f"its end is {end}"
            )
        plan[number] = (start, max(start, offset))
    return plan


def _from_options(offsets: tuple[str, ...]) -> Wanted:
    wanted: Wanted = {}
    for text in offsets:
        match = re.fullmatch(r"(\d+):(\d+|-1|latest)", text)
        if match is None:
            raise click.BadParameter(
                f"{text!r} is not PARTITION:OFFSET, such as 0:1000 or 0:latest",
                param_hint="--offset",
            )
        if int(match[1]) in wanted:
            raise click.BadParameter(f"partition {match[1]} is named twice", param_hint="--offset")
        wanted[int(match[1])] = None if match[2] in {"-1", "latest"} else int(match[2])
    return wanted


def _from_file(path: Path) -> dict[str, Wanted]:
    wanted: dict[str, Wanted] = {}
    try:
        for entry in json.loads(path.read_text(encoding="utf-8"))["partitions"]:
            name, number, offset = entry["topic"], entry["partition"], entry["offset"]
            if not (isinstance(name, str) and type(number) is int and type(offset) is int):
                raise TypeError(f"{entry} has a value of a wrong type")
            if number in wanted.setdefault(name, {}):
                raise ValueError(f"partition {number} of topic {name!r} is named twice")
            wanted[name][number] = None if offset == -1 else offset
    except (ValueError, KeyError, TypeError) as error:
        detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidRequestError(f"{path} is not Kafka's file of offsets: {detail}") from error
    return wanted
