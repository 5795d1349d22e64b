"""Numbers, sizes, times and tables as text and HTML, for reports and notebooks. Pure.

Every cell of a table is escaped, because names come from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from itertools import pairwise

#: Shown where there is no value.
ABSENT = "\N{EN DASH}"

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


def spans_text(offsets: Mapping[int, tuple[int, int]], most: int = 8) -> str:
    """Ranges of offsets by partition, after a comma: `, 0:[0,34) 1:[0,33)`; empty if there are
    none."""
    shown = [f"{number}:[{start},{end})" for number, (start, end) in sorted(offsets.items())]
    more = f" and {len(shown) - most:,} more partitions" if len(shown) > most else ""
    return f", {' '.join(shown[:most])}{more}" if shown else ""


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
