"""`pylogtable offsets`: what kafka-get-offsets prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from pylogtable.cli.command import Command
from pylogtable.cli.messages import continue_on_error
from pylogtable.cli.options import complete_words, partitions_option, topics_argument
from pylogtable.cli.output import print_json
from pylogtable.cli.parse import parse_partitions, parse_position, parse_time
from pylogtable.cli.session import Session

if TYPE_CHECKING:
    from pylogtable import View

Offsets = dict[int, int | None]


@click.command(
    cls=Command,
    short_help="Print offsets as topic:partition:offset lines.",
    examples="""
        pylogtable offsets orders
        pylogtable offsets orders --time earliest --partition 0,2
        pylogtable offsets --time 2024-05-01T12:00:00Z --store ./logs
    """,
)
@topics_argument
@click.option(
    "--time",
    "when",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="latest (the next offset to be written), earliest, max-timestamp (the record with the "
    "latest timestamp), a time in milliseconds or ISO 8601 (the first record at or after it), or a "
    "duration such as 12h (that long ago). -1, -2 and -3 mean the first three, as in Kafka.",
    shell_complete=complete_words("earliest", "latest", "max-timestamp"),
)
@partitions_option
def offsets(session: Session, topics: tuple[str, ...], when: str, partitions: str | None) -> None:
    """Print offsets of each TOPIC, or of all topics, as topic:partition:offset lines.

    A partition without a matching record has no line; in JSON its offset is null.
    """
    chosen = parse_partitions(partitions)
    find = _finder(when)
    rows = []
    for argument in session.topic_arguments(topics):
        with continue_on_error(session, argument):
            view = session.open_topic(argument).at()
            # Raises if a partition does not exist.
            numbers = list(view.ranges(chosen))
            rows += [
                {"topic": view.name, "partition": number, "offset": offset}
                for number, offset in sorted(find(view, numbers).items())
            ]
    if session.is_json:
        print_json(rows)
        return
    for row in rows:
        if row["offset"] is not None:
            print(f"{row['topic']}:{row['partition']}:{row['offset']}")


def _finder(when: str) -> Callable[[View, Sequence[int]], Offsets]:
    """The function that finds what `--time` asks for. A number is a time, as in Kafka."""
    from pylogtable.engine import locate

    word = {"-1": "latest", "-2": "earliest", "-3": "max-timestamp"}.get(when, when)
    if word == "max-timestamp":
        return lambda view, numbers: view.max_timestamp_offsets(numbers)
    is_number = re.fullmatch(r"-?\d*", word)
    position = parse_position(parse_time(when, "--time") if is_number else word, "--time")

    def find(view: View, numbers: Sequence[int]) -> Offsets:
        found = locate(view, dict.fromkeys(numbers, position))
        return {number: at.asked for number, at in found.items()}

    return find
