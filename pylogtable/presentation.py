"""Numbers, sizes, times and tables as text, HTML and Arrow, for reports, notebooks and the command
line. Pure.

A row of a report is a dataclass or a NamedTuple. Its fields are the columns of every form of it.
`Column` says in a field's annotation what its name and its type do not say.

>>> class Row(NamedTuple):
...     partition: Partition
...     committed_at: datetime | None
...     size_bytes: Annotated[int, Column("size", bytes_text)]

Every cell of an HTML table is escaped, because names come from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cache
from html import escape
from itertools import pairwise
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Shown where there is no value.
ABSENT = "\N{EN DASH}"

#: So many partitions are shown in a notebook.
PARTITIONS_SHOWN = 50

_EPOCH = datetime(1970, 1, 1)
_COUNT_UNITS = ("", "k", "M", "G", "T", "P", "E")
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_TIME_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def number_text(number: int | None) -> str:
    """With thousands separators: 1,234,567."""
    return ABSENT if number is None else f"{number:,}"


def count_text(count: int, noun: str) -> str:
    """A number of things: 1 segment, 1,200 segments."""
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def spans_text(spans: Iterable[tuple[int, Sequence[int]]], before: str, most: int = 8) -> str:
    """Ranges of offsets by partition, after `before`: `, 0:[0,34) 1:[0,33)`; empty if there are
    none."""
    shown = [f"{number}:[{start},{end})" for number, (start, end) in sorted(spans)]
    more = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    return f"{before}{' '.join(shown[:most])}{more}" if shown else ""


def offsets_text(offsets: Mapping[int, int]) -> str:
    """An offset for each partition: `0:34 1:33`."""
    return " ".join(f"{number}:{offset}" for number, offset in sorted(offsets.items()))


def short_count(count: float) -> str:
    """A number in a few characters: 950, 1.2k, 35M."""
    amount, thousands = float(count), 0
    while amount >= 999.5 and thousands < len(_COUNT_UNITS) - 1:
        amount /= 1000
        thousands += 1
    digits = 1 if amount < 9.95 else 0
    return f"{amount:.{digits}f}".removesuffix(".0") + _COUNT_UNITS[thousands]


def bytes_text(size: int | None) -> str:
    """A size in the largest fitting unit: 950 B, 1.5 MiB."""
    if size is None:
        return ABSENT
    amount = float(size)
    for unit in _SIZE_UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_SIZE_UNITS[-1]}"


def percent_text(share: float | None) -> str:
    """Percentage of the total; never rounds to 0% or 100% unless exact."""
    if share is None:
        return ABSENT
    if 0 < share < 0.01:
        return "<1%"
    return ">99%" if 0.99 < share < 1 else f"{share:.0%}"


def duration_text(ms: float | None) -> str:
    """A duration in its largest unit, with the next one if the first is below ten: 3 d 4 h."""
    if ms is None:
        return ABSENT
    left = int(abs(ms))
    if 0 < left < 1000:
        return f"{left} ms"
    for (size, unit), (next_size, next_unit) in pairwise(_TIME_UNITS):
        if left >= size:
            more = left % size // next_size
            first = f"{left // size:,} {unit}"
            wants_more = more and unit != "s" and left // size < 10
            return f"{first} {more} {next_unit}" if wants_more else first
    return "0 s"


def time_text(ms: float | None, unit: str = "seconds") -> str:
    """A time in UTC. `unit` is "day" or a `timespec` of `datetime.isoformat`. A time outside
    Python's calendar is shown as milliseconds."""
    if ms is None:
        return ABSENT
    try:
        moment = _EPOCH + timedelta(milliseconds=int(ms))
    except OverflowError:
        return f"{int(ms):,} ms"
    return str(moment.date()) if unit == "day" else moment.isoformat(" ", unit)


Row = TypeVar("Row")


@dataclass(frozen=True)
class Column:
    """A column of a report. The heading is the name of the field without one. `shown` makes text of
    a value; numbers and times need none. `arrow` is an Arrow type, and may be null if the field is
    or if it `is_nullable`."""

    heading: str = ""
    shown: Callable[[Any], str] | None = None
    arrow: str = ""
    is_nullable: bool = False
    is_text: bool = False


#: The number of a partition.
Partition = Annotated[int, Column(arrow="int32")]

_ARROW = {int: "int64", float: "float64", str: "string", datetime: "time"}


@cache
def columns_of(row: type) -> dict[str, Column]:
    """The columns of a class of rows, by the names of its fields."""
    hints = get_type_hints(row, include_extras=True)
    return {name: _column(name, hint) for name, hint in hints.items()}


def _column(name: str, hint: Any) -> Column:
    column = Column()
    if get_origin(hint) is Annotated:
        hint, column = get_args(hint)
    kinds = get_args(hint) or (hint,)  # of `int | None` they are two
    return replace(
        column,
        heading=column.heading or name.replace("_", " "),
        arrow=column.arrow or _ARROW[kinds[0]],
        is_nullable=column.is_nullable or type(None) in kinds,
        is_text=kinds[0] is str,
    )


def schema_of(row: type) -> pa.Schema:
    """The Arrow schema of a class of rows."""
    import pyarrow as pa

    def kind(name: str) -> pa.DataType:
        return pa.timestamp("ms", "UTC") if name == "time" else pa.type_for_alias(name)

    columns = columns_of(row).items()
    return pa.schema([pa.field(name, kind(c.arrow), c.is_nullable) for name, c in columns])


def arrow_table(row: type, rows: Iterable[Any]) -> pa.Table:
    """Rows of this class as an Arrow table."""
    return computed_table({field: attrgetter(field.name) for field in schema_of(row)}, rows)


def computed_table(
    columns: Mapping[pa.Field, Callable[[Row], Any]], rows: Iterable[Row]
) -> pa.Table:
    """A row for each of these things, with columns that are computed from it."""
    import pyarrow as pa

    found = [{column.name: of(one) for column, of in columns.items()} for one in rows]
    return pa.Table.from_pylist(found, schema=pa.schema(list(columns)))


def rows_html(row: type, rows: Sequence[Any], most: int | None = None) -> str:
    """The rows as a table, or only the first of them."""
    columns = columns_of(row)
    cells = [
        [_cell(getattr(one, name), column) for name, column in columns.items()]
        for one in rows[:most]
    ]
    if len(rows) > len(cells):
        cells.append([f"… {len(rows) - len(cells):,} more", *[""] * (len(columns) - 1)])
    return table_html(cells, [column.heading for column in columns.values()])


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return ABSENT
    if column.shown is not None:
        return column.shown(value)
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(" ", "seconds")
    if isinstance(value, float):
        return f"{value:,.1f}"
    return number_text(value) if isinstance(value, int) else str(value)


class RowsReport(Generic[Row]):
    """A report that is a table: it has `rows` of the class `row_type`."""

    rows: tuple[Row, ...]
    row_type: ClassVar[type]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_table(self) -> pa.Table:
        """A row for each partition, as an Arrow table."""
        return arrow_table(self.row_type, self.rows)


def table_html(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table of text."""
    top = f"<tr>{_cells('th', head)}</tr>" if head else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def titled_html(title: str, *parts: str) -> str:
    """HTML parts below a title."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def _cells(tag: str, row: Sequence[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
