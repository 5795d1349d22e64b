"""`pylogtable consume`: records on standard output, in the manner of kcat."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable import InvalidRequestError
from pylogtable.cli.command import Command
from pylogtable.cli.output import warn
from pylogtable.cli.session import Session, complete_groups, complete_topics, session
from pylogtable.cli.shapes import envelopes, objects
from pylogtable.cli.template import Template, write_json
from pylogtable.cli.values import parse_partitions, to_time

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable import Topic, View

# Printed at a time: what a slice of this many records needs in memory is bounded.
_SLICE_ROWS = 16_384
_SHORTEST_WAIT, _LONGEST_WAIT = 0.02, 1.0

Positions = dict[int, int]


@click.command(
    cls=Command,
    short_help="Print records, in the manner of kcat.",
    examples="""
        pylogtable consume orders --count 10
        pylogtable consume orders --from -5 --partition 0
        pylogtable consume orders --from 2024-05-01T12:00:00Z --to 2024-05-01T13:00:00Z
        pylogtable consume clicks --follow --from latest --format '%t %p %o %k %s\\n'
        pylogtable consume orders --group billing --output json
    """,
)
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    metavar="POSITION",
    help="earliest, latest, an offset, -N (the last N offsets of each partition), a time (ISO-8601 "
    "or @ and milliseconds), 0:100,1:200 (by partition), or stored (with --group: where the group "
    "is, earliest where it has no position).  [default: earliest, or stored with --group]",
)
@click.option("--to", "end", metavar="POSITION", help="Up to there, and without it; as --from.")
@click.option("--count", "-n", type=click.IntRange(0), help="End after so many records.")
@click.option("--partition", metavar="LIST", help="These partitions: 0,2-4.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more at the end; Ctrl-C ends.")
@click.option(
    "--format",
    "template",
    metavar="FORMAT",
    help="%s value, %k key, %t topic, %p partition, %o offset, %T timestamp in ms, %h headers, %S "
    "and %K lengths, %%; \\n, \\t, \\r, \\xHH.  [default: %s\\n]",
)
@click.option("--key-separator", "-K", metavar="TEXT", help="Print the key and this first.")
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    help="Go on where this consumer group is, and commit its positions. Two at once do not share "
    "the partitions: the second to commit is refused.",
    shell_complete=complete_groups,
)
@click.pass_context
def consume(
    context: click.Context,
    topic: str,
    start: str | None,
    end: str | None,
    count: int | None,
    partition: str | None,
    follow: bool,
    template: str | None,
    key_separator: str | None,
    group: str | None,
) -> None:
    """Print the records of TOPIC, one partition after the other, in offset order.

    A record is a line with its value; a topic with other columns than Kafka's prints JSON objects.
    --output json prints an object with all there is to know on every line. Bytes that are not UTF-8
    are in base64 then, under a name that ends in _base64; as text they are printed as they are.
    """
    mine = session(context)
    if template is not None and (key_separator is not None or mine.is_json):
        raise click.UsageError("--format says it all: leave out --key-separator, --output", context)
    if start == "stored" and group is None:
        raise click.UsageError("--from stored needs --group", context)
    chosen = parse_partitions(partition)
    opened = mine.open_topic(topic)
    view = opened.at()
    if template is None:
        template = "%s\n" if key_separator is None else f"%k{key_separator.replace('%', '%%')}%s\\n"
    reader = _Reader(mine, opened, chosen, count, follow)
    reader.render = _renderer(mine, view, template)
    stored: Positions | None = None
    if group is not None:
        joined = opened.group(group)
        stored = joined.positions()
        reader.commit = joined.commit
    if start is None:
        start = "earliest" if group is None else "stored"
    reader.run(view, start, end, stored)


class _Reader:
    """Reads from positions on, and keeps them."""

    def __init__(
        self,
        mine: Session,
        topic: Topic,
        partitions: list[int] | None,
        count: int | None,
        follow: bool,
    ) -> None:
        self._mine = mine
        self._topic = topic
        self._partitions = partitions
        self._left = count
        self._follow = follow
        self.render: Callable[[pa.RecordBatch], Any]
        self.commit: Callable[[Positions], object] | None = None
        self._positions: Positions = {}
        self._committed: Positions = {}

    def run(self, view: View, start: str, end: str | None, stored: Positions | None) -> None:
        self._positions = _resolve(view, start, self._partitions, "--from", stored)
        self._committed = dict(stored or {})
        self._clamp(view, is_stored=start == "stored")
        ends = None if end is None else _resolve(view, end, self._partitions, "--to")
        self._read(view, ends)
        while self._follow and not self._is_done(ends):
            view = self._await(view)
            self._clamp(view, is_stored=True)
            self._read(view, ends)

    def _read(self, view: View, ends: Positions | None) -> None:
        """All there is in this view, up to `ends`."""
        for number, last in view.end_offsets.items():
            if number not in self._positions:
                continue
            upto = last if ends is None else min(last, ends.get(number, last))
            position = self._positions[number]
            if self._left == 0:
                return
            if position < upto:
                for batch in view.read(number, position, upto):
                    self._print(number, batch)
                    if self._left == 0:
                        return
            # Also behind holes at the end, and where there was nothing to read at all.
            self._move(number, max(position, upto))

    def _print(self, number: int, batch: pa.RecordBatch) -> None:
        for first in range(0, batch.num_rows, _SLICE_ROWS):
            part = batch.slice(first, _SLICE_ROWS)
            if self._left is not None:
                part = part.slice(0, self._left)
                self._left -= part.num_rows
            if part.num_rows:
                sys.stdout.flush()
                sys.stdout.buffer.write(self.render(part))
                sys.stdout.buffer.flush()
                self._move(number, part.column("offset")[-1].as_py() + 1)

    def _move(self, number: int, position: int) -> None:
        """What has been printed counts as read, and not before."""
        self._positions[number] = position
        if self.commit is not None and self._committed.get(number) != position:
            self.commit({number: position})
            self._committed[number] = position

    def _is_done(self, ends: Positions | None) -> bool:
        if self._left == 0:
            return True
        return ends is not None and all(
            position >= ends.get(number, position + 1)
            for number, position in self._positions.items()
        )

    def _await(self, view: View) -> View:
        """The next version, asked for less and less often while nothing happens."""
        never, wait = threading.Event(), _SHORTEST_WAIT
        while True:
            newer = self._topic.at()
            if newer.version != view.version:
                break
            never.wait(wait)
            wait = min(wait * 1.5, _LONGEST_WAIT)
        if self._partitions is None:
            for number, first in newer.start_offsets.items():
                self._positions.setdefault(number, first)
        return newer

    def _clamp(self, view: View, *, is_stored: bool) -> None:
        """A position that retention has passed, or that lies behind the end, goes to the nearest
        there is; one that was asked for by its number is refused instead."""
        if not is_stored:
            return
        for number, position in self._positions.items():
            first, last = view.start_offsets[number], view.end_offsets[number]
            nearest = min(max(position, first), last)
            if nearest != position:
                warn(
                    self._mine,
                    f"offset {position} of partition {number} is not there any more; "
                    f"going on at {nearest}",
                )
                self._positions[number] = nearest


def _renderer(mine: Session, view: View, template: str) -> Callable[[pa.RecordBatch], Any]:
    if not mine.is_json:
        return Template(template, view.name, view.schema, view.key).render
    shape = envelopes if pylogtable.is_kafka_shaped(view.schema) else objects
    return lambda batch: write_json(batch, lambda part: shape(part, view.name))


def _resolve(
    view: View,
    text: str,
    partitions: list[int] | None,
    option: str,
    stored: Positions | None = None,
) -> Positions:
    """The offset that a position means, by partition."""
    firsts = {number: start for number, (start, _) in view.ranges(partitions).items()}
    lasts = {number: view.end_offsets[number] for number in firsts}
    if text == "earliest":
        return firsts
    if text == "latest":
        return lasts
    if text == "stored" and option == "--from":
        return {number: (stored or {}).get(number, first) for number, first in firsts.items()}
    if re.fullmatch(r"\d+", text):
        return _checked(view, dict.fromkeys(firsts, int(text)))
    if re.fullmatch(r"-\d+", text):
        return {number: max(firsts[number], lasts[number] + int(text)) for number in firsts}
    if re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text):
        pairs = (pair.split(":") for pair in text.split(","))
        given = {int(number): int(offset) for number, offset in pairs}
        view.ranges(list(given))
        base = firsts if option == "--from" else lasts
        return _checked(view, {number: given.get(number, base[number]) for number in firsts})
    try:
        when = to_time(re.sub(r"^[se]@", "@", text))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no position: write earliest, latest, an offset, -N, 0:100,1:200, a time "
            "such as 2024-05-01T12:00:00Z, or @ and milliseconds",
            param_hint=option,
        ) from None
    found = view.offsets_for_time(when, list(firsts))
    return {number: lasts[number] if at is None else at for number, at in found.items()}


def _checked(view: View, positions: Positions) -> Positions:
    for number, position in positions.items():
        first, last = view.start_offsets[number], view.end_offsets[number]
        if not first <= position <= last:
            raise InvalidRequestError(
                f"offset {position} of partition {number} is out of range: there is [{first}, "
                f"{last}); name one of these, earliest or latest, or choose by --partition"
            )
    return positions
