"""`pylogtable tail`: print what is appended, as `consume --follow --from latest` does."""

from __future__ import annotations

from typing import Any

import click

from pylogtable.cli.command import Command
from pylogtable.cli.consume import ConsumeOptions, consume, print_records
from pylogtable.cli.decoding import decoders_of
from pylogtable.cli.options import COUNT, complete_groups, complete_start
from pylogtable.cli.session import Session

#: Options of `consume` that are others here.
_OTHERS = {"start", "count", "follow", "group"}


def _tail(session: Session, /, topic: str, lines: int | None, **given: Any) -> None:
    """Print the records that are appended to TOPIC, until Ctrl-C: `consume --follow --from latest`,
    with its options.

    With -n it begins with the last N offsets of each partition: partitions have no order among
    each other, so there are no last N of a topic.
    """
    if lines is not None:
        if given["start"] is not None:
            raise click.UsageError("give -n or --from, not both")
        given["start"] = f"-{lines}" if lines else None
    start = given.pop("start") or "latest"
    decoders = decoders_of(given)
    options = ConsumeOptions(start=start, follow=True, decoders=decoders, **given)
    print_records(session, topic, options)


tail = Command(
    "tail",
    callback=_tail,
    help=_tail.__doc__,
    short_help="Print what is appended, until Ctrl-C.",
    params=[
        *(one for one in consume.params if one.expose_value and one.name not in _OTHERS),
        click.Option(
            ["--from", "start"],
            metavar="POSITION",
            shell_complete=complete_start,
            help="Begin at a position, written as for consume.  [default: latest]",
        ),
        click.Option(
            ["--group", "-g"],
            metavar="GROUP",
            shell_complete=complete_groups,
            help="Commit what is printed in this consumer group. With --from stored, go on where "
            "it is and share the partitions with its other members.",
        ),
        click.Option(["--count"], type=COUNT, help="Stop after N records."),
        click.Option(
            ["--lines", "-n"], type=COUNT, help="Begin with the last N offsets of each partition."
        ),
    ],
    examples="""
        pylogtable tail clicks
        pylogtable tail clicks -n 10 --format '%p %o %k %s\\n'
    """,
)
