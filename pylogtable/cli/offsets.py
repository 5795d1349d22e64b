"""`pylogtable offsets`: what kafka-get-offsets prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pylogtable.cli.command import Command
from pylogtable.cli.output import print_json
from pylogtable.cli.session import complete_topics, session
from pylogtable.cli.values import parse_partitions, parse_time

if TYPE_CHECKING:
    from pylogtable import View


@click.command(
    cls=Command,
    short_help="Offsets as topic:partition:offset lines.",
    examples="""
        pylogtable offsets orders
        pylogtable offsets orders --time earliest --partition 0,2
        pylogtable offsets --time 2024-05-01T12:00:00Z --store ./logs
    """,
)
@click.argument("topic", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--time",
    "when",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="latest (the next offset to be written), earliest, max-timestamp (that of the youngest "
    "record), or the first record at or after a time: milliseconds or ISO-8601. -1, -2 and -3 are "
    "the first three, as in Kafka.",
)
@click.option("--partition", metavar="LIST", help="These partitions: 0,2-4.")
@click.pass_context
def offsets(
    context: click.Context, topic: tuple[str, ...], when: str, partition: str | None
) -> None:
    """Offsets of each TOPIC, or of all, as topic:partition:offset lines.

    A partition without an answer, because it is empty or has no record that late, has no line; in
    JSON its offset is null.
    """
    mine = session(context)
    chosen = parse_partitions(partition)
    rows = [
        {"topic": opened.name, "partition": number, "offset": offset}
        for opened in mine.open_topics(topic)
        for number, offset in sorted(_offsets(opened.at(), when, chosen).items())
    ]
    if mine.is_json:
        print_json(rows)
        return
    for row in rows:
        if row["offset"] is not None:
            print(f"{row['topic']}:{row['partition']}:{row['offset']}")


def _offsets(view: View, when: str, partitions: list[int] | None) -> dict[int, int | None]:
    # Through `ranges`, which refuses a partition that there is not.
    ranges = view.ranges(partitions)
    word = {"-1": "latest", "-2": "earliest", "-3": "max-timestamp"}.get(when, when)
    if word == "latest":
        return {number: end for number, (_, end) in ranges.items()}
    if word == "earliest":
        return {number: start for number, (start, _) in ranges.items()}
    if word == "max-timestamp":
        return view.max_timestamp_offsets(list(ranges))
    return view.offsets_for_time(parse_time(when, "--time"), list(ranges))
