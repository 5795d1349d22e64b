"""`pylogtable consume`: print records, as kcat does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable import CommitConflictError, InvalidRequestError, OffsetOutOfRangeError
from pylogtable.cli.command import Command
from pylogtable.cli.decoding import Decoding, decoders_of
from pylogtable.cli.following import Silence, next_version
from pylogtable.cli.given_keys import given_keys, key_json_option, key_option
from pylogtable.cli.kafka_values import decode_options
from pylogtable.cli.messages import warn
from pylogtable.cli.options import (
    COUNT,
    complete_end,
    complete_groups,
    complete_start,
    partitions_option,
    topic_argument,
)
from pylogtable.cli.parse import parse_partitions, parse_position
from pylogtable.cli.session import Session
from pylogtable.cli.streams import write_bytes
from pylogtable.cli.template import Template
from pylogtable.cli.to_json import encode_lines, envelopes, objects

if TYPE_CHECKING:
    from pylogtable import Bound, View

#: The offset of each partition.
Positions = dict[int, int]


def start_positions(
    view: View, text: str, partitions: Sequence[int] | None, stored: Positions | None
) -> Positions:
    """The positions that `--from` means. `stored` has the positions of the consumer group, if
    any."""
    if text == "stored" and stored is not None:
        firsts = view.ranges(partitions)
        return {number: stored.get(number, first) for number, (first, _) in firsts.items()}
    ranges = _ranges(view, partitions, start=_parse_bound(text, "--from"))
    return {number: start for number, (start, _) in ranges.items()}


def end_positions(view: View, text: str, partitions: Sequence[int] | None) -> Positions:
    """The positions that `--to` means."""
    ranges = _ranges(view, partitions, end=_parse_bound(text, "--to"))
    return {number: end for number, (_, end) in ranges.items()}


def _ranges(
    view: View, partitions: Sequence[int] | None, start: Bound = None, end: Bound = None
) -> dict[int, tuple[int, int]]:
    try:
        return view.ranges(partitions, start, end)
    except OffsetOutOfRangeError as error:
        raise InvalidRequestError(
            f"offset {error.requested} of partition {error.partition} is out of range: available "
            f"offsets are [{error.log_start}, {error.end}); give one of these, earliest or latest, "
            "or choose with --partition"
        ) from None


def _parse_bound(text: str, option: str) -> Bound:
    """A position, or positions by partition such as `0:100,1:latest`. kcat writes times with a
    letter before the @."""
    if not re.match(r"[0-9]+:", text):
        return parse_position(re.sub(r"^[se]@", "@", text), option)
    pairs = [pair.partition(":") for pair in text.split(",")]
    if not all(number.isdecimal() for number, _, _ in pairs):
        raise click.BadParameter(f"{text!r} is not a list such as 0:100,1:200", param_hint=option)
    by_partition = {int(number): parse_position(at, option) for number, _, at in pairs}
    if len(by_partition) != len(pairs):
        raise click.BadParameter(f"{text!r} names a partition twice", param_hint=option)
    return by_partition


if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable import Consumer, Group, Topic, View
    from pylogtable.kafka import Decoder

# The name of the program in a group; each run adds characters of its own.
MEMBER_NAME = "console-consumer"
# Records are printed in slices of this many, to bound the memory that their text needs.
_SLICE_ROWS = 16_384


@dataclass(frozen=True)
class ConsumeOptions:
    """The options of `consume`."""

    start: str | None
    end: str | None
    count: int | None
    partitions: str | None
    follow: bool
    template: str | None
    key_separator: str | None
    group: str | None
    keys: tuple[str, ...]
    key_objects: tuple[str, ...]
    timeout_ms: int | None
    decoders: Mapping[str, Decoder] = field(default_factory=dict)

    def check(self, *, is_json: bool) -> None:
        """Raise for options that contradict each other."""
        if self.template is not None and (self.key_separator is not None or is_json):
            raise click.UsageError(
                "--format cannot be combined with --key-separator or --output json"
            )
        if self.group is not None and (self.keys or self.key_objects):
            raise click.UsageError(
                "--key cannot be combined with --group: the group's positions would pass the "
                "records of all other keys"
            )
        if self.start == "stored" and self.group is None:
            raise click.UsageError("--from stored needs --group")

    @property
    def text_format(self) -> str:
        """The format of a record as text."""
        if self.template is not None:
            return self.template
        if self.key_separator is not None:
            return f"%k{self.key_separator.replace('%', '%%')}%s\\n"
        return "%s\n"

    @property
    def shares_group(self) -> bool:
        """True if the program joins the group as a member. Positions or partitions that the user
        chooses cannot be shared, so the program then reads alone."""
        chosen = (self.end, self.partitions)
        return (
            self.group is not None and self.start_or_default == "stored" and chosen == (None, None)
        )

    @property
    def waits(self) -> bool:
        """True if the end of the log is not the end."""
        return self.follow or self.timeout_ms is not None

    @property
    def start_or_default(self) -> str:
        """`--from`, or its default."""
        if self.start is not None:
            return self.start
        return "earliest" if self.group is None else "stored"


@click.command(
    cls=Command,
    short_help="Print records, as kcat does.",
    examples="""
        pylogtable consume orders --count 10
        pylogtable consume orders --from -5 --partition 0
        pylogtable consume orders --from 2024-05-01T12:00:00Z --to 2024-05-01T13:00:00Z
        pylogtable consume clicks --follow --from latest --format '%t %p %o %k %s\\n'
        pylogtable consume orders --key user-7 --from 24h
        pylogtable consume orders --group billing --output json
        pylogtable consume orders --value-format avro --schema-registry http://registry:8081
    """,
)
@topic_argument
@click.option(
    "--from",
    "start",
    metavar="POSITION",
    shell_complete=complete_start,
    help="earliest or beginning; latest or end; an offset; -N for the last N offsets of each "
    "partition; a time in ISO 8601, or @ and milliseconds; a duration such as 12h, for that long "
    "ago; 0:100,1:latest for a position per partition; or stored, the group's position (earliest "
    "where it has none).  "
    "[default: earliest, or stored with --group]",
)
@click.option(
    "--to",
    "end",
    metavar="POSITION",
    shell_complete=complete_end,
    help="Stop before this position; written as for --from.",
)
@click.option("--count", "-n", type=COUNT, help="Stop after N records.")
@partitions_option
@key_option
@key_json_option
@click.option("--follow", "-f", is_flag=True, help="Wait for new records; Ctrl-C ends.")
@click.option(
    "--timeout-ms",
    type=COUNT,
    help="Wait for new records, and end when none has come for N milliseconds.",
)
@click.option(
    "--format",
    "template",
    metavar="FORMAT",
    help="%s value, %k key, %t topic, %p partition, %o offset, %T timestamp in ms, %h headers, %S "
    "and %K lengths of value and key, %%; \\n, \\t, \\r, \\xHH.  [default: %s\\n]",
)
@click.option(
    "--key-separator", "-K", metavar="TEXT", help="Print the key and this text before the value."
)
@click.option(
    "--group",
    "-g",
    metavar="GROUP",
    help="Read as a member of this consumer group: start at its positions, commit them, and share "
    "the partitions with its other members. With --from, --to or --partition, read alone, in a "
    "group without members.",
    shell_complete=complete_groups,
)
@decode_options
def consume(session: Session, /, topic: str, **given: Any) -> None:
    """Print the records of TOPIC, one partition after the other, in offset order. With --group,
    partitions take turns. With --key, only the records of these keys, all of them; the others are
    not read if the manifest or Bloom filters exclude them.

    Each record is a line with its value. A topic with columns other than Kafka's prints JSON
    objects. --output json prints each record as one JSON object per line, with all of its fields.
    Bytes that are not UTF-8 are then in base64, under a name that ends in _base64.

    With --value-format, values of Kafka in Avro, JSON or Protobuf are printed as JSON.
    """
    print_records(session, topic, ConsumeOptions(decoders=decoders_of(given), **given))


def print_records(session: Session, topic: str, options: ConsumeOptions) -> None:
    """Print the records of a topic as these options say."""
    options.check(is_json=session.is_json)
    partitions = parse_partitions(options.partitions)
    opened = session.open_topic(topic)
    if options.group is not None and options.shares_group:
        consume_as_member(session, opened, options.group, options)
        return
    view = opened.at()
    group = None if options.group is None else opened.group(options.group)
    keys = given_keys(view, options.keys, options.key_objects, "leave --key out")
    printer = _Printer(_renderer(session, view, options), options.count, group, keys)
    start = options.start_or_default
    printer.positions = start_positions(view, start, partitions, printer.committed)
    if start == "stored":
        _move_into_log(session, printer.positions, view)
    ends = None if options.end is None else end_positions(view, options.end, partitions)
    printer.print_view(view, ends)
    if options.waits:
        with Silence(options.timeout_ms) as silence:
            _follow(session, opened, view, printer, ends, partitions, silence)


def _follow(
    session: Session,
    topic: Topic,
    view: View,
    printer: _Printer,
    ends: Positions | None,
    partitions: Sequence[int] | None,
    silence: Silence,
) -> None:
    """Print what comes after this version, until the end is reached or the silence is over."""
    while not printer.is_done(ends):
        newer = next_version(topic, view, silence)
        if newer is None:
            return
        view = newer
        if partitions is None:
            for number, first in view.start_offsets.items():
                printer.positions.setdefault(number, first)
        _move_into_log(session, printer.positions, view)
        printed = printer.printed
        printer.print_view(view, ends)
        if printer.printed != printed:
            silence.begin()


def consume_as_member(session: Session, topic: Topic, group: str, options: ConsumeOptions) -> None:
    """Print records as a member of the group. Leaving it, also by Ctrl-C or SIGTERM, gives the
    partitions to the other members at once. What is printed is committed; what is not is read
    again."""
    render = _renderer(session, topic.at(), options)
    left = options.count
    all_printed = True
    with topic.consumer(
        group, MEMBER_NAME, max_records=_SLICE_ROWS, follow=options.follow
    ) as consumer:
        seconds = None if options.timeout_ms is None else options.timeout_ms / 1000
        if left == 0:
            return
        try:
            for table in consumer if seconds is None else _until_silent(consumer, seconds):
                all_printed = False
                wanted = table if left is None else table.slice(0, left)
                for batch in wanted.to_batches():
                    write_bytes(render(batch))
                left = None if left is None else left - wanted.num_rows
                all_printed = wanted.num_rows == table.num_rows
                _commit(session, consumer, None if all_printed else wanted)
                if left == 0:
                    return
        except KeyboardInterrupt:
            if all_printed:
                _commit(session, consumer, None)
            raise
        _commit(session, consumer, None)  # partitions without records get a position, too


def _until_silent(consumer: Consumer, seconds: float) -> Iterator[pa.Table]:
    """What the consumer reads, until nothing has come for so long."""
    while (table := consumer.poll(timeout=seconds)).num_rows:
        yield table


def _commit(session: Session, consumer: Consumer, printed: pa.Table | None) -> None:
    """Commit everything that was polled, or only these records of it."""
    try:
        if printed is None:
            consumer.commit()
            return
        last = printed.group_by("partition").aggregate([("offset", "max")])
        numbers, offsets = last["partition"].to_pylist(), last["offset_max"].to_pylist()
        consumer.commit({n: offset + 1 for n, offset in zip(numbers, offsets, strict=True)})
    except CommitConflictError as error:
        warn(session, f"{error} These records are printed again by whoever reads them next.")


Render = Callable[["pa.RecordBatch"], Any]


class _Printer:
    """Prints records from `positions` on and moves them. With a group it commits them, too."""

    def __init__(
        self, render: Render, count: int | None, group: Group | None, keys: Any = None
    ) -> None:
        self._render = render
        self._left = count
        self._group = group
        self._keys = keys
        self.printed = 0
        self.positions: Positions = {}
        self.committed: Positions | None = None if group is None else group.positions()

    def print_view(self, view: View, ends: Positions | None) -> None:
        """Print everything in this version of the topic, up to `ends`."""
        for number, end in view.end_offsets.items():
            if number not in self.positions:
                continue
            if self._left == 0:
                return
            position = self.positions[number]
            stop = end if ends is None else min(end, ends.get(number, end))
            if position < stop:
                for batch in view.read(number, position, stop, keys=self._keys):
                    self._print(number, batch)
                    if self._left == 0:
                        return
            # Offsets removed by compaction at the end count as read; so does an empty partition.
            self._move(number, max(position, stop))

    def is_done(self, ends: Positions | None) -> bool:
        """True if `--count` or `--to` is reached."""
        if self._left == 0:
            return True
        return ends is not None and all(
            position >= ends.get(number, position + 1)
            for number, position in self.positions.items()
        )

    def _print(self, number: int, batch: pa.RecordBatch) -> None:
        for first in range(0, batch.num_rows, _SLICE_ROWS):
            part = batch.slice(first, _SLICE_ROWS)
            if self._left is not None:
                part = part.slice(0, self._left)
                self._left -= part.num_rows
            if part.num_rows:
                write_bytes(self._render(part))
                self.printed += part.num_rows
                self._move(number, part.column("offset")[-1].as_py() + 1)

    def _move(self, number: int, position: int) -> None:
        """Move the position past records that have been printed, and commit it."""
        self.positions[number] = position
        if self._group is None or self.committed is None:
            return
        if self.committed.get(number) != position:
            self._group.commit({number: position})
            self.committed[number] = position


def _renderer(session: Session, view: View, options: ConsumeOptions) -> Render:
    decoding = Decoding(session, view, options.decoders) if options.decoders else None
    if not session.is_json:
        template = Template(options.text_format, view.name, view.schema, view.key)
        if decoding is None:
            return template.render
        return lambda batch: template.render(decoding.batch(batch))
    if decoding is not None:
        return lambda batch: encode_lines(decoding.envelopes(batch, view.name))
    to_rows = envelopes if pylogtable.is_kafka_shaped(view.schema) else objects
    return lambda batch: encode_lines(to_rows(batch, view.name))


def _move_into_log(session: Session, positions: Positions, view: View) -> None:
    """Move positions outside the log to its start or end, with a warning."""
    firsts, ends = view.start_offsets, view.end_offsets
    for number, position in positions.items():
        nearest = min(max(position, firsts[number]), ends[number])
        if nearest != position:
            warn(
                session,
                f"offset {position} of partition {number} no longer exists; continuing at "
                f"{nearest}",
            )
            positions[number] = nearest
