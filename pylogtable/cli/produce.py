"""`pylogtable produce`: append lines or JSON from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

import pylogtable
from pylogtable import CommitUnknownError, InvalidRequestError, LogTableError
from pylogtable.cli.command import Command
from pylogtable.cli.line_parsers import Columns, JsonLines, LineParser, TextLines
from pylogtable.cli.messages import note, progress
from pylogtable.cli.options import POSITIVE, WholeNumber, many, topic_argument
from pylogtable.cli.output import answer
from pylogtable.cli.parse import parse_pair
from pylogtable.cli.session import Session
from pylogtable.cli.stdin_batches import LineBatch, LineReader, LineTooLongError
from pylogtable.cli.streams import is_terminal, standard_input
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.presentation import count_text, spans_text

if TYPE_CHECKING:
    from pylogtable import AppendResult, Topic

#: A line of JSON may be so many times as long as its record may be: bytes are base64, and quotes
#: and control characters are escaped.
MAX_JSON_RATIO = 2


@dataclass(frozen=True)
class ProduceOptions:
    """The options of `produce`."""

    as_json: bool
    key_separator: str | None
    null_value: str | None
    headers: tuple[str, ...]
    partition: int | None
    batch_bytes: int
    linger: float

    def check(self, *, is_text: bool) -> None:
        """Raise for options that contradict each other or the topic's shape."""
        for_text = (self.key_separator, self.null_value)
        if not is_text and (self.headers or any(given is not None for given in for_text)):
            raise click.UsageError(
                "--key-separator, --null-value and --header are for lines of text; in JSON, put "
                "key, value and headers into the objects"
            )
        if self.key_separator == "":
            raise click.BadParameter("it is empty", param_hint="--key-separator")
        if not self.linger >= 0:
            raise click.BadParameter("it is not a number", param_hint="--linger")


@click.command(
    cls=Command,
    short_help="Append lines or JSON from standard input.",
    examples="""
        echo hello | pylogtable produce clicks
        printf 'u1:a\\nu2:b\\n' | pylogtable produce clicks --key-separator :
        echo '{"key": "u1", "value": {"page": 7}}' | pylogtable produce clicks --json
        echo '{"order_id": 1, "amount": 9.5}' | pylogtable produce orders
        pylogtable consume clicks --output json | pylogtable produce copy --json
    """,
)
@topic_argument
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Each line is a JSON object with key, value (or payload), headers, ts and partition, as "
    "consume --output json writes it. A topic with other columns always takes JSON objects of its "
    "columns.",
)
@click.option("--key-separator", "-K", metavar="TEXT", help="Text between key and value.")
@click.option("--null-value", "-Z", metavar="TEXT", help="Value that stands for null: a tombstone.")
@many("--header", "-H", "headers", metavar="NAME=VALUE", help="Header for every record.")
@click.option(
    "--partition", type=WholeNumber(0, 2**31 - 1), help="Append everything to this partition."
)
@click.option(
    "--batch-bytes",
    type=POSITIVE,
    default=16 << 20,
    show_default=True,
    help="Append when this many bytes have been read.",
)
@click.option(
    "--linger",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Append what has been read after this time, if the input is slow.",
)
def produce(session: Session, /, topic: str, **given: Any) -> None:
    """Append the lines of standard input to TOPIC, with one commit per batch.

    If a line is wrong, its batch is not appended. The message names the line and says which lines
    are appended. Ctrl-C and SIGTERM append what has been read, and end.
    """
    options = ProduceOptions(**given)
    headers = [parse_pair(pair, "--header") for pair in options.headers]
    source = standard_input()
    opened = session.open_topic(topic)
    is_text = not options.as_json and pylogtable.is_kafka_shaped(opened.schema)
    options.check(is_text=is_text)
    if options.partition is not None:
        # Raises if there is no such partition.
        opened.at().ranges([options.partition])
    parser: LineParser = JsonLines(opened.at())
    if is_text:
        parser = TextLines(opened.schema, options.key_separator, options.null_value, headers)
    is_typed = is_terminal(sys.stdin)
    if is_typed:
        note(session, "each line is a record; Ctrl-D ends the input")
    max_line_bytes = DEFAULT_LIMITS.max_record_bytes * (1 if is_text else MAX_JSON_RATIO)
    reader = LineReader(source, options.batch_bytes, options.linger, max_line_bytes)
    appender = _Appender(opened, parser, options.partition)
    try:
        spinner = progress(f"appending to {opened.name}", show=not is_typed)
        with spinner as show_detail, reader.stopped_by_signals() as signals:
            for batch in appender.told_if_too_long(reader.batches()):
                appender.append(batch)
                show_detail(count_text(appender.done.records, "record"))
        signals.raise_again()
    finally:
        if appender.done.commits or sys.exc_info()[0] is None:
            answer(session, appender.done.as_json(), appender.done)


@dataclass
class _Done:
    """What has been appended. Adjacent ranges of offsets are joined."""

    topic: str
    records: int = 0
    commits: int = 0
    lines: int = 0
    version: int | None = None
    offsets: dict[int, list[list[int]]] = field(default_factory=dict)

    def add(self, batch: LineBatch, result: AppendResult) -> None:
        self.lines = batch.last
        self.records += result.records
        self.commits += 1
        self.version = result.version
        for number, (start, end) in result.offsets.items():
            ranges = self.offsets.setdefault(number, [])
            if ranges and ranges[-1][1] == start:
                ranges[-1][1] = end
            else:
                ranges.append([start, end])

    def as_json(self) -> dict[str, Any]:
        found = asdict(self)
        del found["lines"]
        return found | {"offsets": dict(sorted(self.offsets.items()))}

    def __str__(self) -> str:
        done = f"{count_text(self.records, 'record')} in {count_text(self.commits, 'commit')}"
        spans = ((number, span) for number, ranges in self.offsets.items() for span in ranges)
        return f"{self.topic}: {done}{spans_text(spans, '; ')}"

    def so_far(self) -> str:
        """Which lines are appended, so that the user can continue after an error."""
        return f"lines 1 to {self.lines} are appended" if self.lines else "no line is appended"


class _Appender:
    """Appends batches of lines, and remembers what it did."""

    def __init__(self, topic: Topic, parser: LineParser, partition: int | None) -> None:
        self._topic = topic
        self._parser = parser
        self._partition = partition
        self.done = _Done(topic.name)

    def told_if_too_long(self, batches: Iterator[LineBatch]) -> Iterator[LineBatch]:
        """The batches; the error of a line that is too long says which lines are appended."""
        try:
            yield from batches
        except LineTooLongError as error:
            raise InvalidRequestError(f"{error}; {self.done.so_far()}") from error

    def append(self, batch: LineBatch) -> None:
        """Append the lines in one commit; the error says which lines are appended."""
        try:
            columns = self._parser.columns(batch)
            if columns:
                self.done.add(batch, self._append_columns(batch, columns))
        except CommitUnknownError as error:
            raise InvalidRequestError(
                f"{error} {self.done.so_far()}; lines {batch.first} to {batch.last} may be"
            ) from error
        except LogTableError as error:
            rest = f", none from line {batch.first} on" if self.done.lines else ""
            raise InvalidRequestError(f"{error}; {self.done.so_far()}{rest}") from error

    def _append_columns(self, batch: LineBatch, columns: Columns) -> AppendResult:
        import pyarrow as pa

        if self._partition is not None:
            rows = len(next(iter(columns.values())))
            columns["partition"] = pa.array([self._partition] * rows, pa.int32())
        try:
            return self._topic.append(pa.table(columns))
        except InvalidRequestError as error:
            if error.row is None:
                raise
            line = self._parser.line_of(batch, error.row)
            raise InvalidRequestError(f"line {line}: {error.problem}") from error
