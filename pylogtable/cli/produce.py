"""`pylogtable produce`: lines or JSON from standard input become records."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import msgspec

import pylogtable
from pylogtable import CommitUnknownError, InvalidRequestError, LogTableError
from pylogtable.cli.command import Command
from pylogtable.cli.lines import Batch, LineReader
from pylogtable.cli.output import counted, note, print_json, progress
from pylogtable.cli.session import complete_topics, session
from pylogtable.cli.shapes import Row, kafka_columns, table_columns
from pylogtable.cli.values import unescape

if TYPE_CHECKING:
    import pyarrow as pa

    from pylogtable import AppendResult, Topic

# What a line that makes no sense may raise on its way to a record.
_WRONG = (ValueError, TypeError, ArithmeticError, msgspec.MsgspecError)


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
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Every line is a JSON object: key, value (or payload), headers, ts, partition, as consume "
    "--output json prints them. Topics with other columns take objects of these columns anyway.",
)
@click.option("--key-separator", "-K", metavar="TEXT", help="A line is a key, this, and a value.")
@click.option("--null-value", "-Z", metavar="TEXT", help="A value that means null: a tombstone.")
@click.option("--header", "-H", multiple=True, metavar="NAME=VALUE", help="On every record.")
@click.option("--partition", type=int, help="All to this partition.")
@click.option(
    "--batch-bytes",
    type=click.IntRange(1),
    default=16 << 20,
    show_default=True,
    help="Append when so much has been read.",
)
@click.option(
    "--linger",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Append what has been read after this time, if input comes slowly.",
)
@click.pass_context
def produce(
    context: click.Context,
    topic: str,
    as_json: bool,
    key_separator: str | None,
    null_value: str | None,
    header: tuple[str, ...],
    partition: int | None,
    batch_bytes: int,
    linger: float,
) -> None:
    """Append lines of standard input to TOPIC, a commit for each batch.

    A batch with a line that is wrong is not appended at all; the message says which line it is, and
    which are appended. Ctrl-C appends what has been read.
    """
    mine = session(context)
    headers = [_header(pair) for pair in header]
    opened = mine.open_topic(topic)
    plain = not as_json and pylogtable.is_kafka_shaped(opened.schema)
    if not plain and (key_separator is not None or null_value is not None or header):
        raise click.UsageError(
            "--key-separator, --null-value and --header are for lines; JSON says it itself", context
        )
    if key_separator == "":
        raise click.BadParameter("it is empty", param_hint="--key-separator")
    if plain:
        parser: _Lines | _Objects = _Lines(opened.schema, key_separator, null_value, headers)
    else:
        parser = _Objects(opened)
    is_typed = sys.stdin.isatty()
    if is_typed:
        note(mine, "every line is a record; Ctrl-D ends")
    reader = LineReader(sys.stdin.buffer, batch_bytes, linger)
    done = _Done(opened.name)
    try:
        shown = progress(f"appending to {opened.name}", show=not is_typed)
        with shown as told, reader.stopped_by_ctrl_c():
            for batch in reader.batches():
                _append(opened, parser, batch, partition, done)
                told(counted(done.records, "record"))
        if reader.is_stopped:
            raise KeyboardInterrupt
    finally:
        if done.commits or sys.exc_info()[0] is None:
            if mine.is_json:
                print_json(done.as_json())
            else:
                print(done)


@dataclass
class _Done:
    """What has been appended; ranges of offsets that touch are one."""

    topic: str
    records: int = 0
    commits: int = 0
    lines: int = 0
    version: int | None = None
    offsets: dict[int, list[list[int]]] = field(default_factory=dict)

    def add(self, batch: Batch, result: AppendResult) -> None:
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

    def as_json(self) -> Row:
        return {
            "topic": self.topic,
            "records": self.records,
            "commits": self.commits,
            "version": self.version,
            "offsets": dict(sorted(self.offsets.items())),
        }

    def __str__(self) -> str:
        places = " ".join(
            f"{number}:[{start},{end})"
            for number, ranges in sorted(self.offsets.items())
            for start, end in ranges
        )
        said = (
            f"{self.topic}: {counted(self.records, 'record')} in {counted(self.commits, 'commit')}"
        )
        return f"{said}; {places}" if places else said

    def so_far(self) -> str:
        """After which it goes on with the first line that is not appended."""
        return f"lines 1 to {self.lines} are appended" if self.lines else "no line is appended"


def _append(
    topic: Topic, parser: _Lines | _Objects, batch: Batch, partition: int | None, done: _Done
) -> None:
    import pyarrow as pa

    try:
        columns = parser.columns(batch)
        rows = next((len(column) for column in columns.values()), 0)
        if not rows:
            return
        if partition is not None:
            columns["partition"] = pa.array([partition] * rows, pa.int32())
        done.add(batch, topic.append(pa.table(columns)))
    except CommitUnknownError as error:
        raise InvalidRequestError(
            f"{error} {done.so_far()}; lines {batch.first} to {batch.last} may be"
        ) from error
    except LogTableError as error:
        raise InvalidRequestError(
            f"{error}; {done.so_far()}, none from line {batch.first} on"
        ) from error


class _Lines:
    """Lines as values, or as keys and values."""

    def __init__(
        self,
        schema: pa.Schema,
        separator: str | None,
        null_value: str | None,
        headers: list[tuple[str, str]],
    ) -> None:
        self._schema = schema
        self._separator = None if separator is None else unescape(separator)
        self._null = None if null_value is None else null_value.encode()
        self._headers = [{"key": name, "value": value.encode()} for name, value in headers]

    def columns(self, batch: Batch) -> dict[str, pa.Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        values = pa.array(batch.lines, pa.binary())
        columns: dict[str, pa.Array] = {}
        if self._separator is not None:
            parts = pc.split_pattern(values, self._separator, max_splits=1)
            whole = pc.equal(pc.list_value_length(parts), 2)
            if not pc.all(whole).as_py():
                at = batch.first + pc.index(whole, False).as_py()
                raise InvalidRequestError(
                    f"line {at} has no {self._separator.decode(errors='replace')!r} in it"
                )
            columns["key"] = pc.list_element(parts, 0)
            values = pc.list_element(parts, 1)
        if self._null is not None:
            is_null = pc.equal(values, self._null)
            values = pc.if_else(is_null, pa.scalar(None, pa.binary()), values)
        columns["value"] = values
        if self._headers:
            every = [self._headers] * len(values)
            columns["headers"] = pa.array(every, self._schema.field("headers").type)
        return columns


class _Objects:
    """A JSON object on every line; lines that are blank are passed over."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._schema = topic.schema
        self._shape = kafka_columns if pylogtable.is_kafka_shaped(self._schema) else table_columns

    def columns(self, batch: Batch) -> dict[str, pa.Array]:
        try:
            rows: list[Any] = msgspec.json.Decoder().decode_lines(b"\n".join(batch.lines))
            return self._shaped(rows) if rows else {}
        except _WRONG as error:
            raise InvalidRequestError(self._first_wrong(batch, error)) from None

    def _shaped(self, rows: list[Any]) -> dict[str, pa.Array]:
        import pyarrow as pa

        if not all(isinstance(row, dict) for row in rows):
            raise ValueError("it is not a JSON object")
        columns = self._shape(rows, self._schema)
        from pylogtable.engine import TopicWriter

        schema = pa.schema([(n, column.type) for n, column in columns.items()])
        TopicWriter(self._topic).check_columns(schema)
        return columns

    def _first_wrong(self, batch: Batch, error: Exception) -> str:
        """The same line by line, to say which it is."""
        for number, line in enumerate(batch.lines, batch.first):
            wrong = self._fault(line)
            if wrong is not None:
                return f"line {number}: {wrong}"
        return f"lines {batch.first} to {batch.last}: {error}"

    def _fault(self, line: bytes) -> Exception | None:
        try:
            if line.strip():
                self._shaped([msgspec.json.decode(line)])
        except _WRONG as wrong:
            return wrong
        return None


def _header(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{pair!r} is not name=value", param_hint="--header")
    return name, value
